"""Where an answer's reasoning begins and ends: `<think>…</think>` and its kin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from forebay.recipe.parsers.markers import Marker
from forebay.recipe.vocabulary import Vocabulary

_TAIL_TOKENS: Final = 32


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """The markers around reasoning."""

    begin: str
    end: str


KNOWN: Final = (
    ReasoningMarkers("<think>", "</think>"),
    ReasoningMarkers("[THINK]", "[/THINK]"),
    ReasoningMarkers("<|START_THINKING|>", "<|END_THINKING|>"),
    ReasoningMarkers("<seed:think>", "</seed:think>"),
    ReasoningMarkers("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    ReasoningMarkers("<reasoning>", "</reasoning>"),
)
"""The first pair that a vocabulary has as tokens is its own."""


class Reasoning:
    """The state of one answer.

    Markers that are control tokens act anywhere outside calls. Spelled ones open reasoning only at the answer's start,
    and close it only at the start of a line, so that text about them stays text.
    """

    def __init__(self, markers: ReasoningMarkers | None, *, is_open: bool = False) -> None:
        """`is_open`: the prompt ends within reasoning that the template has begun."""
        self._markers = markers
        self.open = is_open and markers is not None

    def knows(self, marker: Marker) -> bool:
        """Whether it is one of reasoning's markers."""
        return self._markers is not None and marker.spelling in (self._markers.begin, self._markers.end)

    def marker(self, marker: Marker) -> bool:
        """Take a marker; False when it doesn't change the state."""
        if self._markers is None:
            return False
        if self.open:
            acts = marker.spelling == self._markers.end and (marker.token is not None or marker.starts_line)
        else:
            acts = marker.spelling == self._markers.begin and (marker.token is not None or marker.starts_answer)
        self.open ^= acts
        return acts


def opened_by_prompt(prompt_ids: Sequence[int], markers: ReasoningMarkers, vocabulary: Vocabulary) -> bool:
    """Whether a prompt ends within reasoning: behind the marker that begins it, and maybe reasoning to be continued.

    What earlier turns hold doesn't matter: where the marker is a token it has to be the last control token, and where
    it is spelled only whitespace may stand behind it.
    """
    begin = vocabulary.control.get(markers.begin)
    if begin is not None:
        return next((token for token in reversed(prompt_ids) if vocabulary.is_control(token)), None) == begin
    tail = b""
    for token in reversed(prompt_ids[-_TAIL_TOKENS:]):
        if vocabulary.is_control(token):
            break
        tail = vocabulary.token_bytes(token) + tail
    return tail.rstrip().endswith(markers.begin.encode())
