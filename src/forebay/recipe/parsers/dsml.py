"""Calls as DeepSeek V3.2, V4 and V4.1 write them: DSML, tags around each argument, of which one piece is a token.

Behind `<` or `</` and the marker stand `tool_calls` (V3.2: `function_calls`, V4.1: ` calls`), in it `invoke name="…"`,
and in that `parameter name="…" string="true|false"` around a value: text as it is, or JSON. It becomes a JSON object
here, argument by argument. A tag is only one where `<` or `</` and the marker stand together; anything else in a
value is its text.
"""

from __future__ import annotations

import json
from enum import Enum, auto
from typing import ClassVar, Final

from forebay.recipe.parsers.call_format import Remainder
from forebay.recipe.parsers.dsml_tags import Tag, TagReader
from forebay.recipe.parsers.events import ProblemKind
from forebay.recipe.parsers.json_scanner import JsonScanner
from forebay.recipe.parsers.markers import Marker
from forebay.recipe.parsers.output import Output

_MARKER: Final = "\uff5cDSML\uff5c"
_BLOCKS: Final = ("calls", "tool_calls", "function_calls")


class _In(Enum):
    TEXT = auto()
    BLOCK = auto()
    """Between calls."""
    CALL = auto()
    """Between arguments."""
    STRING = auto()
    JSON = auto()
    REMAINDER = auto()


class DsmlCalls:
    """All versions' tags are understood; a model uses those of its own."""

    markers: ClassVar = (_MARKER,)

    def __init__(self, out: Output) -> None:
        self._out = out
        self._in = _In.TEXT
        self._angle = ""
        """`<` or `</` at the end of what came: the marker may follow."""
        self._tag: TagReader | None = None
        self._tagged = False
        """Only whitespace has come since a tag of a block."""
        self._keys: list[str] = []
        self._scanner = JsonScanner()
        self._remainder = Remainder(out, "", started=False)

    @property
    def idle(self) -> bool:
        """Outside all calls."""
        return self._in is _In.TEXT and self._tag is None

    @property
    def in_string(self) -> bool:
        """Within an argument that is text, or within a string of one that is JSON."""
        return self._in is _In.STRING or (self._in is _In.JSON and self._scanner.in_string)

    def text(self, text: str) -> None:
        """Visible text, a tag or an argument."""
        at = 0
        while at < len(text) and self._tag is not None:
            at = self._tag.feed(text, at)
            if self._tag.over:
                self._close_tag(self._tag)
        if at == len(text):
            return
        text = self._angle + text[at:]
        kept = _angle(text)
        self._angle = text[len(text) - kept :]
        self._content(text[: len(text) - kept])

    def _content(self, text: str) -> None:
        """Text that belongs to no tag."""
        if self._in is _In.STRING:
            self._out.arguments(_escaped(text))
        elif self._in is _In.JSON:
            self._json(text)
        elif self._in is _In.REMAINDER:
            self._remainder.text(text)
        else:
            self._loose(text)

    def _loose(self, text: str) -> None:
        """Text outside arguments; whitespace behind a tag within a block is a part of the format."""
        if self._tagged:
            text = text.lstrip()
            self._tagged = not text
        if text and self._in is _In.CALL:
            self._fail("There is text between the arguments of a tool call.", text)
        elif text:
            self._out.text(text)

    def _json(self, text: str) -> None:
        begun = self._scanner.started
        end = self._scanner.feed(text)
        taken = text[:end] if begun else text[:end].lstrip()
        self._out.arguments(taken)
        if self._scanner.failed or text[end:].strip():
            rest = text[end:] if self._scanner.failed else text[end:].lstrip()
            self._fail("An argument that is marked as JSON is not valid JSON.", rest)

    def marker(self, marker: Marker) -> bool:
        """The token in all tags."""
        if marker.spelling != _MARKER:
            return False
        if self._tag is not None:
            self._abandon(self._tag)
        if not self._angle:
            return self._literal()
        self._tag, self._angle = TagReader(marker, closing=self._angle == "</"), ""
        return True

    def _abandon(self, reader: TagReader) -> None:
        """A tag is open, but the next one or the end is there: it was none."""
        self._tag = None
        before, behind = reader.spelling
        kept = _angle(behind)
        self._no_tag(before, behind[: len(behind) - kept], reader.marker)
        self._angle = behind[len(behind) - kept :]

    def _literal(self) -> bool:
        """The marker without an angle bracket: a part of a value, else nothing."""
        if self._in in (_In.STRING, _In.JSON, _In.REMAINDER):
            self._content(_MARKER)
            return True
        return False

    def _close_tag(self, reader: TagReader) -> None:
        self._tag = None
        tag = reader.tag
        if tag is not None and self._act(tag):
            self._tagged = self._in in (_In.BLOCK, _In.CALL)
        else:
            self._no_tag(*reader.spelling, reader.marker)

    def _no_tag(self, before: str, behind: str, marker: Marker) -> None:
        """What looked like a tag is text; outside values the token in it is left out and reported."""
        if marker.token is None or self._in in (_In.STRING, _In.JSON, _In.REMAINDER):
            self._content(before + _MARKER + behind)
            return
        self._content(before)
        self._out.stray(_MARKER)
        self._content(behind)

    def _act(self, tag: Tag) -> bool:
        """Follow a tag; False where it has no meaning."""
        if self._in in (_In.STRING, _In.JSON):
            return tag.closing and tag.name == "parameter" and self._end_value()
        if self._in is _In.TEXT or (self._in is _In.REMAINDER and tag.name in _BLOCKS):
            return self._block(tag)
        if self._in is _In.BLOCK:
            return self._in_block(tag)
        return self._in is _In.CALL and self._in_call(tag)

    def _block(self, tag: Tag) -> bool:
        if tag.name not in _BLOCKS or tag.closing is not (self._in is _In.REMAINDER):
            return False
        self._close(ProblemKind.MALFORMED_CALL, "A tool call is not what the format asks for.")
        self._out.border()
        self._in = _In.TEXT if tag.closing else _In.BLOCK
        return True

    def _in_block(self, tag: Tag) -> bool:
        if tag.closing and tag.name in _BLOCKS:
            self._in = _In.TEXT
        elif not tag.closing and tag.name == "invoke" and tag.attribute:
            self._in, self._keys = _In.CALL, []
            self._out.start_call(tag.attribute)
        else:
            return False
        self._out.border()
        return True

    def _in_call(self, tag: Tag) -> bool:
        if tag.closing and tag.name == "invoke":
            self._out.arguments("}" if self._keys else "{}")
            self._out.end_call(self._keys)
            self._in = _In.BLOCK
        elif not tag.closing and tag.name == "parameter" and tag.attribute is not None:
            self._begin_value(tag.attribute, tag.string)
        else:
            self._fail("A tag within a tool call has no meaning there.", "")
        return True

    def _begin_value(self, name: str, string: bool | None) -> None:
        self._out.arguments(("{" if not self._keys else ", ") + json.dumps(name, ensure_ascii=False) + ": ")
        self._keys.append(name)
        if string is None:
            self._out.problem(ProblemKind.MISSING_FIELD, f"The argument {name!r} doesn't say whether it is a string.")
        if string is False:
            self._in, self._scanner = _In.JSON, JsonScanner()
        else:
            self._in = _In.STRING
            self._out.arguments('"')

    def _end_value(self) -> bool:
        if self._in is _In.STRING:
            self._out.arguments('"')
        elif self._scanner.in_string:
            return False
        else:
            self._scanner.end()
            if not self._scanner.done:
                self._fail("An argument that is marked as JSON is not valid JSON.", "")
                return True
        self._in = _In.CALL
        return True

    def _fail(self, message: str, text: str) -> None:
        """The open call can't be completed; the rest of its block can't be read."""
        self._in = _In.REMAINDER
        self._out.break_call(ProblemKind.INVALID_ARGUMENTS, message)
        self._remainder = Remainder(self._out, text, started=True)

    def finish(self) -> None:
        """A call that is open now is truncated, and so is a tag between its arguments."""
        if self._in is _In.CALL:
            self._tag, self._angle = None, ""
        if self._tag is not None:
            self._abandon(self._tag)
        angle, self._angle = self._angle, ""
        self._content(angle)
        self._close(ProblemKind.TRUNCATED_CALL, "The answer ended within a tool call.")

    def _close(self, kind: ProblemKind, message: str) -> None:
        if self._in in (_In.CALL, _In.STRING, _In.JSON):
            self._out.break_call(kind, message)
        elif self._in is _In.REMAINDER:
            self._remainder.close(ProblemKind.MALFORMED_CALL, "The rest of a block of tool calls can't be read.")
        self._in = _In.TEXT


def _angle(text: str) -> int:
    """How many characters at the end may begin a tag."""
    return 2 if text.endswith("</") else int(text.endswith("<"))


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
