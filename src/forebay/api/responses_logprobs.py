"""Which tokens stand behind the texts of an answer, so that each text gets the log probabilities of its own tokens.

Tokens of markers, of reasoning and of calls are left out; a token whose text is held back waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from forebay.api.logprobs import chat_logprobs
from forebay.api.ports import RecipePort
from forebay.api.responses_output import Json
from forebay.core.messages import TokenLogprobs
from forebay.recipe.parsers import Event, ReasoningDelta, TextDelta, ToolCallArguments


class TextLogprobs:
    """The tokens of one answer that no text was found for yet: few, as texts come soon."""

    def __init__(self, recipe: RecipePort) -> None:
        self._recipe = recipe
        self._waiting: list[TokenLogprobs] = []

    def push(self, tokens: Sequence[TokenLogprobs]) -> None:
        """The next tokens, before the events that they bring."""
        self._waiting += tokens

    def of(self, event: Event) -> list[Json]:
        """Those of a text's tokens; none for other events, whose tokens are passed over."""
        match event:
            case TextDelta():
                content: list[Json] = chat_logprobs(self._recipe, self._taken(event.text))["content"]
                return content
            case ReasoningDelta():
                self._taken(event.text)
            case ToolCallArguments():
                self._taken(event.fragment)
            case _:
                pass
        return []

    def _taken(self, text: str) -> list[TokenLogprobs]:
        """The tokens that the text's last occurrence touches. What is before it will get no text any more."""
        if not self._waiting:
            return []
        pieces = [self._recipe.token_bytes(token.token_id) for token in self._waiting]
        wanted = text.encode()
        start = b"".join(pieces).rfind(wanted)
        if start < 0:
            taken, self._waiting = self._waiting, []
            return taken
        end, at, taken, rest = start + len(wanted), 0, [], []
        for token, piece in zip(self._waiting, pieces, strict=True):
            if at >= end:
                rest.append(token)
            elif at + len(piece) > start:
                taken.append(token)
            at += len(piece)
        self._waiting = rest
        return taken
