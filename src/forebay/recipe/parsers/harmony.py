"""Harmony, the format of gpt-oss: an answer is a series of messages, each with a header that names its channel.

`<|channel|>analysis` is reasoning, `final` and a `commentary` to nobody are text, a message `to=functions.x` is a call.
A header that can't be read is reported and its message shown as text; nothing raises.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto
from typing import ClassVar, Final

from forebay.recipe.parsers.arguments import Arguments
from forebay.recipe.parsers.call_format import Remainder
from forebay.recipe.parsers.events import ProblemKind
from forebay.recipe.parsers.markers import Marker
from forebay.recipe.parsers.output import Output
from forebay.recipe.vocabulary import Vocabulary

_START: Final = "<|start|>"
_CHANNEL: Final = "<|channel|>"
_CONSTRAIN: Final = "<|constrain|>"
_MESSAGE: Final = "<|message|>"
_ENDS: Final = ("<|end|>", "<|call|>", "<|return|>")
_RECIPIENT: Final = re.compile(r"\bto=([^\s<]+)")
_MAX_HEADER: Final = 1024
_PARAGRAPH: Final = "\n\n"
"""Between two messages of one channel, which become one text."""


class _In(Enum):
    HEADER = auto()
    BETWEEN = auto()
    """Behind a message."""
    REASONING = auto()
    TEXT = auto()
    CALL = auto()
    REMAINDER = auto()


def opened_channel(prompt_ids: Sequence[int], vocabulary: Vocabulary) -> str | None:
    """The channel of the message that a prompt ends within; None where it ends within a header, or within none."""
    start, message = (vocabulary.control.get(spelling) for spelling in (_START, _MESSAGE))
    header: list[int] = []
    begun = False
    for token in reversed(prompt_ids):
        if token == start:
            break
        begun = begun or token == message
        if begun:
            header.append(token)
    spelled = b"".join(map(vocabulary.token_bytes, reversed(header))).decode("utf-8", "replace")
    channel = spelled.partition(_CHANNEL)[2].removesuffix(_MESSAGE).split()
    return channel[0] if begun and channel else None


class HarmonyMessages:
    """Starts within the header that the prompt has begun (`<|start|>assistant`), or within a message."""

    markers: ClassVar = (_START, _CHANNEL, _CONSTRAIN, _MESSAGE, *_ENDS)
    idle: ClassVar = False
    """Reasoning is a channel here, so other markers of reasoning have no meaning."""
    in_string: ClassVar = False
    """A control token ends a message wherever it stands."""

    def __init__(self, out: Output, channel: str | None = None) -> None:
        """`channel`: of the message that the prompt has begun; None where it ends within a header."""
        self._out = out
        self._in = _In.HEADER
        if channel is not None:
            self._in = _In.REASONING if channel == "analysis" else _In.TEXT
        self._before: list[str] = []
        """A header's text before the marker of its channel, and behind it; None as long as it has not come."""
        self._behind: list[str] | None = None
        self._size = 0
        self._arguments = Arguments(out)
        self._remainder = Remainder(out, "", started=True)

    def text(self, text: str) -> None:
        """A part of a header or of a message."""
        if self._in is _In.CALL:
            self._feed(text)
        elif self._in is _In.REASONING:
            self._out.reasoning(text)
        elif self._in is _In.REMAINDER:
            self._remainder.text(text)
        elif self._in is _In.HEADER:
            self._take_header(text)
        else:
            self._out.text(text)

    @property
    def _part(self) -> list[str]:
        return self._before if self._behind is None else self._behind

    def _take_header(self, text: str) -> None:
        room = _MAX_HEADER - self._size
        self._part.append(text[:room])
        self._size += len(text)
        if len(text) > room:
            self._show_header("A message's header is too long.")
            self.text(text[room:])

    def _feed(self, text: str) -> None:
        if self._arguments.done:
            end = 0
            if not text.strip():
                return
        else:
            end = self._arguments.feed(text)
        if self._arguments.failed or text[end:].strip():
            self._in, self._remainder = _In.REMAINDER, Remainder(self._out, text[end:], started=True)

    def marker(self, marker: Marker) -> bool:
        """The borders of headers and messages."""
        spelling = marker.spelling
        if spelling not in self.markers:
            return False
        if self._in is _In.HEADER:
            return self._in_header(spelling)
        if spelling == _START or spelling in _ENDS:
            self._end_message(ProblemKind.INVALID_ARGUMENTS, "A call's arguments are not a JSON object.")
            if spelling == _START:
                self._begin_header()
        elif spelling == _CHANNEL and self._in is _In.BETWEEN:
            self._begin_header()
            self._behind = []
        else:
            return False
        return True

    def _in_header(self, spelling: str) -> bool:
        if spelling == _MESSAGE:
            self._begin_message("".join(self._before), "".join(self._behind or ()))
        elif spelling in _ENDS:
            self._show_header("A message ended within its header.")
            self._in = _In.BETWEEN
        elif spelling == _START:
            self._show_header("A message's header has no end.")
            self._begin_header()
        elif spelling == _CHANNEL and self._behind is None:
            self._behind = []
        else:
            self._part.append(" ")
        return True

    def _begin_header(self) -> None:
        self._in, self._before, self._behind, self._size = _In.HEADER, [], None, 0
        self._out.border()

    def _begin_message(self, before: str, channel: str) -> None:
        self._out.border()
        recipient = _RECIPIENT.search(channel) or _RECIPIENT.search(before)
        name = channel.split()[:1]
        if recipient is not None:
            self._begin_call(recipient[1])
        elif name == ["analysis"]:
            self._in = _In.REASONING
            self._out.reasoning(_PARAGRAPH)
        else:
            self._in = _In.TEXT
            self._out.text(_PARAGRAPH)
            if name not in (["final"], ["commentary"]):
                self._out.problem(ProblemKind.MISSING_FIELD, "A message's header names no channel that is known.")

    def _begin_call(self, recipient: str) -> None:
        self._in, self._arguments = _In.CALL, Arguments(self._out)
        self._out.start_call(recipient.removeprefix("functions."))

    def _show_header(self, message: str) -> None:
        """What should have been a header is text; of its markers nothing is shown."""
        text = "".join((*self._before, *(self._behind or ())))
        self._before, self._behind, self._in = [], None, _In.TEXT
        if text.strip():
            self._out.text(text)
        self._out.problem(ProblemKind.MALFORMED_CALL, message)

    def _end_message(self, kind: ProblemKind, message: str) -> None:
        if self._in is _In.CALL and self._arguments.done:
            self._out.end_call(self._arguments.keys)
        elif self._in is _In.CALL:
            self._out.break_call(kind, message)
        elif self._in is _In.REMAINDER:
            self._remainder.close(ProblemKind.INVALID_ARGUMENTS, "A call's arguments are not a JSON object.")
        self._in = _In.BETWEEN
        self._out.border()

    def finish(self) -> None:
        """A call that is open now is complete when its arguments are: its end marker is a stop token."""
        if self._in is _In.HEADER and (self._before or self._behind is not None):
            self._show_header("The answer ended within a message's header.")
        elif self._in not in (_In.HEADER, _In.TEXT):
            self._end_message(ProblemKind.TRUNCATED_CALL, "The answer ended within a tool call.")
