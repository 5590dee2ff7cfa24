"""The errors that cross package borders, each saying what went wrong and what to change.

Not HTTP: `api/` maps each class to its protocol's own shape and status. A message never holds a path of the server or a
traceback, since it may be shown to a client.
"""

from __future__ import annotations

from collections.abc import Sequence


class ForebayError(Exception):
    """Base of all errors that Forebay raises on purpose."""


class InvalidRequestError(ForebayError):
    """The request can't be served as it was asked; `param` names the field (dotted path) when one is to blame."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class ContextLengthError(InvalidRequestError):
    """The prompt does not fit into the model's context together with at least one new token."""

    def __init__(self, prompt_tokens: int, max_model_len: int, param: str | None = None) -> None:
        super().__init__(
            f"The prompt has {prompt_tokens} tokens, but the model's context is {max_model_len} tokens, of which at "
            f"least one must be left for the answer. Shorten the prompt.",
            param,
        )
        self.prompt_tokens = prompt_tokens
        self.max_model_len = max_model_len


class ConversationError(InvalidRequestError):
    """A well-formed conversation that can't be served as it is: its roles are out of order, or, where markers are
    refused, a text holds one. HTTP: 422.

    `path` leads to the place in the terms of Chat Completions (`"messages", 3, "content"`), `offset` counts characters
    of the string there, `marker` is what was found.
    """

    def __init__(
        self, message: str, path: Sequence[str | int], *, offset: int | None = None, marker: str | None = None
    ) -> None:
        super().__init__(message, ".".join(map(str, path)))
        self.path = tuple(path)
        self.offset = offset
        self.marker = marker

    @property
    def pointer(self) -> str:
        """The place as a JSON pointer, `/messages/3/content`."""
        return json_pointer(self.path)


def json_pointer(path: Sequence[str | int]) -> str:
    """A path of keys and indexes as RFC 6901 writes it."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


class OverloadedError(ForebayError):
    """A bound on waiting work is reached; the same request may be sent again after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after


class EngineUnavailableError(ForebayError):
    """No engine process is there to serve the request."""


class ModelNotFoundError(ForebayError):
    """The name given for a model leads to no file, folder or hub repository that can be reached."""


class UnsupportedModelError(ForebayError):
    """The model is there, but needs something that Forebay lacks; the message names it."""


class ConfigError(ForebayError):
    """Start-up options that contradict each other or the machine."""
