"""The messages of Anthropic's protocol → a conversation. Turns of one role in a row become one, as Anthropic documents.

The recipe names the field that it objects to by the conversation's indexes; here they are led back to the request's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from forebay.api.anthropic_types import PromptFields
from forebay.api.asking import Ask, Prepared
from forebay.api.auth import Identity
from forebay.api.parts import CacheControl, texts_of
from forebay.api.service import Service
from forebay.core.errors import InvalidRequestError
from forebay.recipe import Conversation, Message

_Role = Literal["system", "user", "assistant"]
_INDEXED = re.compile(r"messages\.(\d+)(.*)")


@dataclass(frozen=True, slots=True)
class AnthropicPrompt:
    """A conversation, and where each of its messages stands in the request."""

    conversation: Conversation
    sources: list[str]
    """`system` or `messages.N` for each message."""

    @property
    def prefilled(self) -> bool:
        """Whether the last message is the assistant's, whose answer goes on from there."""
        return self.conversation.messages[-1].role == "assistant"

    def in_request(self, param: str | None) -> str | None:
        """A field of the conversation as a field of the request."""
        found = _INDEXED.fullmatch(param or "")
        if found is None or int(found[1]) >= len(self.sources):
            return param
        source = self.sources[int(found[1])]
        return source if source == "system" else source + found[2]


def prompt_of(body: PromptFields) -> AnthropicPrompt:
    """The conversation that a request describes."""
    turns: list[tuple[_Role, list[str], str]] = []
    if body.system:
        turns.append(("system", _parts(texts_of(body.system)), "system"))
    for index, message in enumerate(body.messages):
        parts = _parts(texts_of(message.content))
        if turns and turns[-1][0] == message.role:
            turns[-1][1].extend(parts)
        else:
            turns.append((message.role, parts, f"messages.{index}"))
    messages = [Message(role, parts[0] if len(parts) == 1 else parts) for role, parts, _ in turns]
    return AnthropicPrompt(Conversation(messages), [source for _, _, source in turns])


def cache_controls(body: PromptFields) -> list[CacheControl | None]:
    """Every `cache_control` of a request: its own, and those of its text blocks."""
    contents = [body.system, *(message.content for message in body.messages)]
    blocks = [part for content in contents if content is not None and not isinstance(content, str) for part in content]
    return [body.cache_control, *(block.cache_control for block in blocks)]


def _parts(text: str | list[str]) -> list[str]:
    return [text] if isinstance(text, str) else list(text)


async def prepared(prompt: AnthropicPrompt, service: Service, identity: Identity) -> Prepared:
    """The prompt, encoded. Raises InvalidRequestError in the terms of the request."""
    try:
        return await service.prepare(Ask(prompt.conversation, continue_final=prompt.prefilled), identity)
    except InvalidRequestError as error:
        raise InvalidRequestError(error.message, prompt.in_request(error.param)) from error
