"""Answers as token ids, of a vocabulary in which every byte is a token, and control tokens stand behind them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from typing import Final

from tokenizers import Tokenizer, models, pre_tokenizers

from forebay.core.request import FinishReason
from forebay.recipe.detokenizer import Detokenizer
from forebay.recipe.parsers import AnswerEnd, AnswerParser, Event, ParserSpec, Tool, merge
from forebay.recipe.vocabulary import Prefix, Scheme, TokenizerParts, Vocabulary

DSML: Final = "\uff5cDSML\uff5c"
CONTROL: Final[dict[str, tuple[str, ...]]] = {
    "hermes": ("<tool_call>", "</tool_call>", "<think>", "</think>"),
    "llama3": ("<|python_tag|>", "<|eom_id|>"),
    "mistral": ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"),
    "dsml": (DSML, "<think>", "</think>"),
    "harmony": ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"),
}
TOOLS: Final = (Tool("look", frozenset({"place"})), Tool("run"))
END: Final = "<|eot|>"


@cache
def vocabulary(name: str, *, tokens: bool = True) -> Vocabulary:
    """The control tokens of a format; with `tokens` false only the end token, so that markers are spelled."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    plain = Tokenizer(models.BPE(vocab={char: at for at, char in enumerate(alphabet)}, merges=[]))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    control = {text: len(alphabet) + at for at, text in enumerate([END, *(CONTROL[name] if tokens else ())])}
    return Vocabulary(
        TokenizerParts(
            plain=plain,
            continued=plain,
            scheme=Scheme.BYTE_LEVEL,
            prefix=Prefix.NONE,
            size=len(alphabet) + len(control),
            control=control,
            bos_id=None,
            adds_bos=False,
            stop_ids=(control[END],),
            chat_template=None,
        )
    )


_TEMPLATES: Final = {"llama3": "llama3.1", "mistral": "mistral", "dsml": "deepseek-v4", "harmony": "harmony"}


def spec(name: str, *, tokens: bool = True) -> ParserSpec:
    """How a format's answers are read."""
    return ParserSpec.of(_TEMPLATES.get(name, "chatml"), vocabulary(name, tokens=tokens), "<think></think>")


def ids(name: str, text: str, *, tokens: bool = True) -> list[int]:
    """Token ids of an answer: ⟦marker⟧ is the marker as the format has it, everything else is plain."""
    vocab = vocabulary(name, tokens=tokens)
    found: list[int] = []
    for at, part in enumerate(re.split("⟦(.*?)⟧", text)):
        token = vocab.control.get(part) if at % 2 else None
        found += vocab.plain_ids(part) if token is None else [token]
    return found


def parser(
    name: str, *, tokens: bool = True, tools: Sequence[Tool] | None = TOOLS, prompt: Sequence[int] = ()
) -> AnswerParser:
    """A new parser."""
    vocab = vocabulary(name, tokens=tokens)
    return spec(name, tokens=tokens).parser(
        Detokenizer(vocab), prompt_ids=prompt, tools=tools, stop_ids={vocab.control[END]}, new_id=lambda at: f"id{at}"
    )


def read(
    parsing: AnswerParser, tokens: Sequence[int], cuts: Iterable[int] = (), reason: FinishReason = FinishReason.STOP
) -> tuple[list[Event], AnswerEnd]:
    """The merged events of a whole answer that comes cut at these places."""
    places = sorted({0, len(tokens), *(cut % (len(tokens) + 1) for cut in cuts)})
    events: list[Event] = []
    for start, end in pairwise(places):
        events += parsing.push(tokens[start:end])
    events += parsing.finish(reason)
    return merge(events), parsing.end


def parse(
    name: str, text: str, *, tokens: bool = True, reason: FinishReason = FinishReason.STOP
) -> tuple[list[Event], AnswerEnd]:
    """The same, from text with ⟦markers⟧, after checking that token by token gives the same."""
    whole = ids(name, text, tokens=tokens)
    once = read(parser(name, tokens=tokens), whole, reason=reason)
    assert read(parser(name, tokens=tokens), whole, range(len(whole)), reason) == once
    return once
