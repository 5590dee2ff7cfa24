"""How a prompt looks in a terminal, as a web page and as a picture: pieces in the colour of who wrote them.

Text of a prompt is anyone's, so characters that a terminal would act on are shown by name.
"""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from forebay.recipe.rendering import Rendering

STYLES: Final = {
    "template": "bright_black",
    "system": "magenta",
    "user": "green",
    "assistant": "cyan",
    "tool": "yellow",
}
_CONTROL: Final = "bold white on blue"
_FORGED: Final = "bold white on red"
_WIDTH: Final = 110
_SHOWN_IDS: Final = 10
_ELSEWHERE: Final = re.compile(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", re.DOTALL)
"""Fonts that a picture would fetch, and where its maker lives."""


class View:
    """One prompt, with or without its string rendering."""

    def __init__(self, ours: Rendering, string: Rendering | None, template: str) -> None:
        self._ours = ours
        self._string = string
        self._template = template

    def print(self) -> None:
        """To standard output, in colour where it is a terminal."""
        console = Console()
        console.print(self._whole())

    def html(self) -> str:
        """A web page that needs nothing from elsewhere."""
        return self._recorded().export_html()

    def svg(self) -> str:
        """A picture that needs nothing from elsewhere."""
        return _ELSEWHERE.sub("", self._recorded().export_svg(title=f"forebay recipe show ({self._template})"))

    def _recorded(self) -> Console:
        console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
        console.print(self._whole())
        return console

    def _whole(self) -> RenderableType:
        if self._string is None:
            return Group(_legend(), Text(), _listing(self._ours), Text(), self._summary())
        return Group(_legend(), Text(), self._beside(self._string), Text(), self._summary(), _forged(self._string))

    def _beside(self, string: Rendering) -> Table:
        table = Table(expand=True, show_lines=False)
        table.add_column(f"Forebay: {len(self._ours.tokens)} tokens", ratio=1)
        table.add_column(f"as a string: {len(string.tokens)} tokens", ratio=1)
        table.add_row(_flowing(self._ours), _flowing(string))
        return table

    def _summary(self) -> Text:
        text = f"Template {self._template}, {len(self._ours.tokens)} tokens"
        if self._string is None:
            return Text(f"{text}.")
        forged = self._string.forged
        return Text(f"{text}. Rendered as a string: {forged} control token{'' if forged == 1 else 's'} forged.")


def _legend() -> Text:
    legend = Text()
    for name, style in STYLES.items():
        legend.append(name, style).append("  ")
    return (
        legend.append(_boxed("control token"), _CONTROL)
        .append("  ")
        .append(_boxed("forged by someone's text"), _FORGED)
    )


def _pieces(rendering: Rendering) -> Iterator[tuple[dict[str, Any], list[int], str]]:
    """Each piece with its ids and its style."""
    fields = rendering.as_json()
    for piece in fields["pieces"]:
        style = _FORGED if piece["forged"] else _CONTROL if piece["control"] else STYLES[piece["origin"]]
        yield piece, fields["ids"][piece["start"] : piece["end"]], style


def _flowing(rendering: Rendering) -> Text:
    """The text as it stands, control tokens with their ids."""
    flowing = Text()
    for piece, ids, style in _pieces(rendering):
        shown = visible(piece["text"])
        flowing.append(_boxed(f"{shown} {ids[0]}") if piece["control"] else shown.replace("\n", "↵\n"), style)
    return flowing


def _boxed(text: str) -> str:
    """With room around it, that neither wraps nor is trimmed."""
    return f"\u00a0{text}\u00a0".replace(" ", "\u00a0")


def _listing(rendering: Rendering) -> Table:
    """A line for each piece: where it begins, who wrote it, the text, the ids."""
    table = Table(box=None, pad_edge=False)
    table.add_column("at", justify="right")
    table.add_column("origin")
    table.add_column("text", ratio=3)
    table.add_column("ids", ratio=2, style="dim")
    for piece, ids, style in _pieces(rendering):
        shown = visible(piece["text"]).replace("\n", "↵\n").removesuffix("\n")
        more = f" … {len(ids)} in all" if len(ids) > _SHOWN_IDS else ""
        listed = " ".join(map(str, ids[:_SHOWN_IDS])) + more
        table.add_row(str(piece["start"]), Text(piece["origin"], STYLES[piece["origin"]]), Text(shown, style), listed)
    return table


def _forged(string: Rendering) -> Text:
    """A line for each control token that a string rendering would have made of someone's text."""
    lines = [
        f"  at {at}: {visible(token.text)} (id {token.id}), typed by: {token.origin.value}"
        for at, token in enumerate(string.tokens)
        if token.forged
    ]
    return Text("\n".join(lines))


def visible(text: str) -> str:
    """The text with every character that a terminal would act on, or would not show, by its code; line breaks stay."""
    return "".join(
        character
        if character == "\n" or unicodedata.category(character) not in ("Cc", "Cf", "Co", "Cn", "Zl", "Zp")
        else f"⟨U+{ord(character):04X}⟩"
        for character in text
    )
