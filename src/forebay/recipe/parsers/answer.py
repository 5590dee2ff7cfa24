"""One answer's parser: markers to reasoning, text and calls. The formats of calls are modules of their own."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.core.request import FinishReason
from forebay.recipe.parsers.call_format import CallFormat
from forebay.recipe.parsers.events import AnswerEnd, Event
from forebay.recipe.parsers.markers import Item, Marker, MarkerReader
from forebay.recipe.parsers.output import Output
from forebay.recipe.parsers.reasoning import Reasoning


class AnswerParser:
    """Reads one answer as its tokens come. Not shared between answers.

    It never raises, whatever the ids are, and takes time linear in them.
    """

    def __init__(self, reader: MarkerReader, out: Output, calls: CallFormat, reasoning: Reasoning) -> None:
        """Parts that belong together; `ParserSpec.parser` makes them."""
        self._reader = reader
        self._out = out
        self._calls = calls
        self._reasoning = reasoning
        self._finished: FinishReason | None = None

    def push(self, token_ids: Sequence[int]) -> list[Event]:
        """Take new tokens, any number at once; the token that ends the answer may be among them."""
        for item in self._reader.push(token_ids):
            self._take(item)
        return self._out.drain()

    def finish(self, reason: FinishReason) -> list[Event]:
        """The answer is over, for this reason; afterwards `end` is known."""
        for item in self._reader.finish():
            self._take(item)
        self._calls.finish()
        self._out.rest()
        self._finished = reason
        return self._out.drain()

    @property
    def end(self) -> AnswerEnd:
        """How the answer ended. Raises ValueError before `finish`."""
        if self._finished is None:
            raise ValueError("The answer has not ended yet.")
        if self._out.malformed or self._finished is FinishReason.ERROR:
            return AnswerEnd.MALFORMED
        if self._out.truncated or self._finished is FinishReason.LENGTH:
            return AnswerEnd.LENGTH
        return AnswerEnd.TOOL_CALLS if self._out.calls else AnswerEnd.STOP

    @property
    def in_reasoning(self) -> bool:
        """Whether the next token is reasoning."""
        return self._reasoning.open

    def _take(self, item: Item) -> None:
        if isinstance(item, str):
            if self._reasoning.open:
                self._out.reasoning(item)
            else:
                self._calls.text(item)
        elif not self._structure(item):
            self._unused(item)

    def _structure(self, marker: Marker) -> bool:
        if self._reasoning.open or self._calls.idle:
            if self._reasoning.marker(marker):
                self._out.border()
                return True
            if self._reasoning.open:
                return False
        return self._calls.marker(marker)

    def _unused(self, marker: Marker) -> None:
        """A marker that means nothing here. Spelled with plain tokens it is text, and one of reasoning within a string
        is a part of it; any other is left out and reported."""
        if marker.token is None:
            self._take(marker.spelling)
        elif self._calls.in_string and self._reasoning.knows(marker):
            self._calls.text(marker.spelling)
        elif not self._reader.ends(marker.token):
            self._out.stray(marker.spelling)
