"""Small models of each family: a tiny tokenizer with the family's tokens, and a chat template as its models have.

The templates, in `templates/`, are without their parts for tools, which Forebay does not offer yet.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from hypothesis import settings
from jinja2 import Template
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from forebay.recipe import Conversation, Message, Recipe
from forebay.recipe.hf_tokenizer import hf_parts
from forebay.recipe.jinja.sandbox import BoundedEnvironment

_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
property_test: Final = settings(deadline=None, max_examples=60)
"""For properties: no deadline, since a machine may be busy, and few enough examples to take about a second."""
TEXT: Final = (
    "The quick brown fox jumps over the lazy dog, and 17 + 25 = 42.",
    "system user assistant model INST SYS You are a helpful assistant named after nobody in particular.",
    "def square(x):\n    return x * x\n\n\nprint(square(12))",
    "émile went to 東京 🙂 and wrote: what's that?\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024",
    "im_start im_end start_header_id end_header_id begin_of_text eot_id think tool_call SYSTEM_PROMPT",
)


@dataclass(frozen=True)
class Spec:
    """What makes a family; its chat template is the file of its name in `templates/`."""

    tokens: Sequence[str]
    """Control tokens, the first ones bos and eos where `named` says so."""
    expected: str
    """The name of the typed template that has to be chosen."""
    named: dict[str, str] = field(default_factory=dict)
    adds_bos: bool = False
    unspecial: Sequence[str] = ()
    """Control tokens that the files don't call special."""
    content: Sequence[str] = ()
    """Added tokens that are ordinary text."""
    sentencepiece: bool = False
    swallowing: Sequence[str] = ()
    """Control tokens that take white space off the text behind them."""


@dataclass(frozen=True)
class Family:
    """A recipe, and the oracle: the whole tokenizer, with control tokens, and plain Jinja."""

    name: str
    spec: Spec
    folder: Path
    recipe: Recipe
    whole: Tokenizer
    template: str

    def rendered(self, conversation: Conversation, *, ask: bool = True) -> str:
        """The text that the official library would make."""
        template = _compiled(self.template)
        switches = {} if conversation.thinking is None else {"enable_thinking": conversation.thinking}
        return template.render(
            messages=[{"role": message.role, "content": message.content} for message in conversation.messages],
            add_generation_prompt=ask,
            **self.spec.named,
            **switches,
        )

    def official_ids(self, conversation: Conversation) -> list[int]:
        """What the official library would make of the conversation, with the BOS that the model was trained with."""
        ids = self.whole.encode(self.rendered(conversation), add_special_tokens=False).ids
        if not self.spec.adds_bos:
            return ids
        bos = self.id_of(self.spec.named["bos_token"])
        return ids if ids[:1] == [bos] else [bos, *ids]

    def id_of(self, spelling: str) -> int:
        """The id of a token that the tokenizer has."""
        token_id = self.whole.token_to_id(spelling)
        if token_id is None:
            raise KeyError(spelling)
        return token_id

    @property
    def control(self) -> list[str]:
        """All control spellings."""
        return [*self.spec.tokens, *self.spec.unspecial]


@cache
def _compiled(template: str) -> Template:
    return BoundedEnvironment(lambda: datetime(2026, 2, 3)).from_string(template)


def talk(*turns: tuple[str, str], thinking: bool | None = None) -> Conversation:
    """A conversation from (role, text) pairs."""
    return Conversation([Message(role, text) for role, text in turns], thinking=thinking)  # type: ignore[arg-type]


_S = {"bos_token": "<s>", "eos_token": "</s>"}
_LLAMA3_TOKENS = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
_MISTRAL_TOKENS = (
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[TOOL_CALLS]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
)
_IM = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_LLAMA3_NAMED = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}

FAMILIES: Final[dict[str, Spec]] = {
    "chatml": Spec(_IM, "chatml", {"eos_token": "<|im_end|>"}),
    "chatml-default": Spec(_IM, "chatml", {"eos_token": "<|im_end|>"}),
    "qwen3": Spec(
        _IM,
        "qwen3",
        {"eos_token": "<|im_end|>"},
        unspecial=("<think>", "</think>", "<tool_call>", "</tool_call>"),
    ),
    "llama3": Spec(_LLAMA3_TOKENS, "llama3", _LLAMA3_NAMED, adds_bos=True),
    "llama3.2": Spec(_LLAMA3_TOKENS, "llama3.2", _LLAMA3_NAMED, adds_bos=True),
    "llama2": Spec(("<unk>", "<s>", "</s>"), "llama2", _S, adds_bos=True, sentencepiece=True),
    "mistral-v1": Spec(("<unk>", "<s>", "</s>"), "mistral-v1", _S, adds_bos=True, sentencepiece=True),
    "mistral-v3": Spec(("<unk>", *_MISTRAL_TOKENS), "mistral-v3", _S, adds_bos=True, sentencepiece=True),
    "mistral-tekken": Spec(_MISTRAL_TOKENS, "mistral-v3", _S, adds_bos=True),
    "mistral-v7": Spec(_MISTRAL_TOKENS, "mistral-v7", _S, adds_bos=True),
    "gemma": Spec(
        ("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"),
        "gemma2",
        {"bos_token": "<bos>", "eos_token": "<eos>"},
        adds_bos=True,
        content=("\n\n", "<h1>", "</h1>"),
    ),
    "phi3": Spec(
        ("<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"),
        "phi3",
        {"eos_token": "<|end|>"},
    ),
    "alpaca": Spec(("<unk>", "<s>", "</s>"), "jinja", _S, adds_bos=True, sentencepiece=True),
    "zephyr": Spec(("<unk>", "<s>", "</s>"), "jinja", _S, adds_bos=True, sentencepiece=True),
}


def build_family(name: str, folder: Path) -> Family:
    """Train the tokenizer, write the folder of a model and load it."""
    spec = FAMILIES[name]
    whole = sentencepiece(spec) if spec.sentencepiece else byte_level(spec)
    write_folder(folder, whole, spec, template_text(name))
    recipe = Recipe(hf_parts(folder), now=lambda: datetime(2026, 2, 3))
    return Family(name, spec, folder, recipe, whole, template_text(name))


def template_text(name: str) -> str:
    """A family's chat template."""
    return (Path(__file__).parent / "templates" / f"{name}.jinja").read_text(encoding="utf-8").removesuffix("\n")


def write_folder(folder: Path, whole: Tokenizer, spec: Spec, template: str) -> None:
    """The files of a model's folder that the recipe reads."""
    whole.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {"chat_template": template, "add_bos_token": spec.adds_bos, **spec.named}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def byte_level(spec: Spec) -> Tokenizer:
    """A tiny byte-level BPE, as GPT-2, Llama 3 and Qwen have."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(spec.content),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT * 3, trainer)
    tokenizer = _without_added(tokenizer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in spec.content])
    return _with_added(tokenizer, spec)


def sentencepiece(spec: Spec) -> Tokenizer:
    """A tiny BPE with byte fallback and a space before each text, as Llama 2 has."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    alphabet = [*map(chr, range(0x21, 0x7F)), "▁", "é"]
    pieces = [*spec.tokens, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        special_tokens=pieces,
        show_progress=False,
    )
    words = [word for line in TEXT for word in line.split()]
    tokenizer.train_from_iterator(words * 3, trainer)
    bare = json.loads(tokenizer.to_str())
    bare["added_tokens"] = []
    return _with_added(Tokenizer.from_str(json.dumps(bare)), spec)


def _without_added(tokenizer: Tokenizer) -> Tokenizer:
    bare = json.loads(tokenizer.to_str())
    bare["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(bare))


def _with_added(tokenizer: Tokenizer, spec: Spec) -> Tokenizer:
    tokenizer.add_special_tokens(
        [AddedToken(text, normalized=False, special=True, rstrip=text in spec.swallowing) for text in spec.tokens]
    )
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in spec.unspecial])
    return tokenizer
