"""Which parser a model's answers need, by its template and its vocabulary."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from forebay.recipe.call_ids import new_nine_characters
from forebay.recipe.parsers.answer import AnswerParser
from forebay.recipe.parsers.call_format import CallFormat, NoCalls
from forebay.recipe.parsers.dsml import DsmlCalls
from forebay.recipe.parsers.harmony import HarmonyMessages, opened_channel
from forebay.recipe.parsers.hermes import HermesCalls
from forebay.recipe.parsers.llama3 import Llama3Calls
from forebay.recipe.parsers.markers import MarkerReader, TokenText
from forebay.recipe.parsers.mistral import MistralCalls
from forebay.recipe.parsers.output import Output, Tool
from forebay.recipe.parsers.reasoning import KNOWN, Reasoning, ReasoningMarkers, opened_by_prompt
from forebay.recipe.vocabulary import Vocabulary


class ToolFormat(StrEnum):
    """How a model writes tool calls."""

    HERMES = "hermes"
    LLAMA3 = "llama3"
    MISTRAL = "mistral"
    DSML = "dsml"
    HARMONY = "harmony"


_FORMATS: Final[dict[ToolFormat, type[HermesCalls | Llama3Calls | MistralCalls | DsmlCalls | HarmonyMessages]]] = {
    ToolFormat.HERMES: HermesCalls,
    ToolFormat.LLAMA3: Llama3Calls,
    ToolFormat.MISTRAL: MistralCalls,
    ToolFormat.DSML: DsmlCalls,
    ToolFormat.HARMONY: HarmonyMessages,
}
_BY_TOKEN: Final = (
    ("\uff5cDSML\uff5c", ToolFormat.DSML),
    ("<|channel|>", ToolFormat.HARMONY),
    ("[TOOL_CALLS]", ToolFormat.MISTRAL),
    ("<tool_call>", ToolFormat.HERMES),
    ("<|python_tag|>", ToolFormat.LLAMA3),
)
_BY_TEMPLATE: Final = (
    ("deepseek", ToolFormat.DSML),
    ("harmony", ToolFormat.HARMONY),
    ("mistral", ToolFormat.MISTRAL),
    ("llama3", ToolFormat.LLAMA3),
)


def new_call_id(index: int) -> str:
    """An id as OpenAI's look."""
    return "call_" + secrets.token_hex(12)


def _new_short_id(index: int) -> str:
    return new_nine_characters()


@dataclass(frozen=True, slots=True)
class ParserSpec:
    """How one model's answers are read."""

    vocabulary: Vocabulary
    tool_format: ToolFormat
    reasoning: ReasoningMarkers | None
    """None: the model is not known to reason between markers, or its format has channels."""

    @classmethod
    def of(cls, template_name: str, vocabulary: Vocabulary, chat_template: str | None = None) -> ParserSpec:
        """Choose by the tokens that the vocabulary has, then by the template's name (`llama3.1`, …); else Hermes.

        `chat_template`, where the model has one, says whether reasoning is written with markers that are no tokens.
        """
        control = vocabulary.control
        by_name = next((form for name, form in _BY_TEMPLATE if template_name.startswith(name)), ToolFormat.HERMES)
        form = next((form for token, form in _BY_TOKEN if token in control), by_name)
        if form is ToolFormat.HARMONY:
            return cls(vocabulary, form, None)
        pair = next((pair for pair in KNOWN if pair.begin in control and pair.end in control), None)
        if pair is None and chat_template:
            pair = next((pair for pair in KNOWN if pair.end in chat_template), None)
        return cls(vocabulary, form, pair)

    @property
    def new_id(self) -> Callable[[int], str]:
        """Makes ids of calls as the format has them: Mistral's are nine letters and digits, others are free."""
        return _new_short_id if self.tool_format is ToolFormat.MISTRAL else new_call_id

    def parser(
        self,
        text: TokenText,
        *,
        prompt_ids: Sequence[int] = (),
        tools: Sequence[Tool] | None = None,
        stop_ids: Collection[int] = (),
        new_id: Callable[[int], str] | None = None,
    ) -> AnswerParser:
        """A parser for one answer.

        Args:
            text: plain tokens to text; a `Detokenizer` of this answer.
            prompt_ids: the prompt, which may end within reasoning.
            tools: what was offered; None looks for no calls at all.
            stop_ids: tokens that end the answer, which are no news within it.
            new_id: makes the id of the call with this index; None for the format's own kind.
        """
        out = Output(tools or (), new_id or self.new_id)
        harmony = self.tool_format is ToolFormat.HARMONY
        calls: CallFormat
        if harmony:
            calls = HarmonyMessages(out, opened_channel(prompt_ids, self.vocabulary))
        else:
            calls = NoCalls(out) if tools is None else _FORMATS[self.tool_format](out)
        markers = () if tools is None and not harmony else _FORMATS[self.tool_format].markers
        if self.reasoning is None:
            reasoning = Reasoning(None)
        else:
            markers = (*markers, self.reasoning.begin, self.reasoning.end)
            is_open = opened_by_prompt(prompt_ids, self.reasoning, self.vocabulary)
            reasoning = Reasoning(self.reasoning, is_open=is_open)
        reader = MarkerReader(text, self.vocabulary.control, markers, stop_ids)
        return AnswerParser(reader, out, calls, reasoning)
