"""The ids of ordinary conversations are those of the model's own template rendered by Jinja and encoded as a whole."""

from __future__ import annotations

import random
from datetime import datetime
from pathlib import Path

import pytest
from tests.recipe.families import Family, talk, template_text, write_folder
from tokenizers import Tokenizer, pre_tokenizers

from forebay.core.errors import InvalidRequestError
from forebay.core.gguf import read_gguf
from forebay.core.prompt import Origin
from forebay.recipe import Recipe
from forebay.recipe.jinja.sandbox import BoundedEnvironment

_TEXTS = (
    "Hello",
    "What's 17 + 25?",
    "x = [1, 2]\nfor i in x:\n    print(i)\n",
    "émile, 漢字 and 🙂🙂",
    "a\tb   c",
    "1. one\n2. two\n\n- three.",
    "«quoted»…",
)
_SHAPES = (("user",), ("system", "user"), ("user", "assistant", "user"), ("system", "user", "assistant", "user"))


def test_the_typed_template_is_chosen(family: Family) -> None:
    assert family.recipe.template_name == family.spec.expected


def test_ordinary_conversations_have_the_official_ids(family: Family) -> None:
    rng = random.Random(5)
    compared = 0
    for _ in range(60):
        shape = rng.choice(_SHAPES)
        conversation = talk(*((role, rng.choice(_TEXTS)) for role in shape))
        try:
            ids = family.recipe.encode_chat(conversation).ids
        except InvalidRequestError:
            assert "system" in shape
            continue
        compared += 1
        assert ids == family.official_ids(conversation)
    assert compared > 20


def test_thinking_switch_matches_the_template(built: dict[str, Family]) -> None:
    family = built["qwen3"]
    for thinking in (None, True, False):
        conversation = talk(("user", "Hi"), ("assistant", "<b>5</b>"), ("user", "Why?"), thinking=thinking)
        assert family.recipe.encode_chat(conversation).ids == family.official_ids(conversation)


def test_reasoning_of_earlier_turns_is_dropped(built: dict[str, Family]) -> None:
    recipe = built["qwen3"].recipe
    with_reasoning = talk(("user", "Hi"), ("assistant", "<think>\nhm\n</think>\n\nHello"), ("user", "Why?"))
    without = talk(("user", "Hi"), ("assistant", "Hello"), ("user", "Why?"))
    assert recipe.encode_chat(with_reasoning).ids == recipe.encode_chat(without).ids


def test_thinking_without_a_switch_is_refused(built: dict[str, Family]) -> None:
    with pytest.raises(InvalidRequestError, match="no switch") as caught:
        built["chatml"].recipe.encode_chat(talk(("user", "Hi"), thinking=True))
    assert caught.value.param == "thinking"


def test_spans_cover_all_ids_and_tell_who_wrote_what(family: Family) -> None:
    conversation = talk(("user", "What is a fox?"), ("assistant", "A quick animal."), ("user", "émile: why?"))
    prompt = family.recipe.encode_chat(conversation)
    assert [span.start for span in prompt.spans[1:]] == [span.end for span in prompt.spans[:-1]]
    assert (prompt.spans[0].start, prompt.spans[-1].end) == (0, len(prompt.ids))
    spelled = [
        (span.origin, b"".join(map(family.recipe.token_bytes, prompt.ids[span.start : span.end])).decode().strip())
        for span in prompt.spans
    ]
    assert [each for each in spelled if each[0] is not Origin.TEMPLATE] == [
        (Origin.USER, "What is a fox?"),
        (Origin.ASSISTANT, "A quick animal."),
        (Origin.USER, "émile: why?"),
    ]


def test_structure_has_the_same_ids_whatever_is_typed(built: dict[str, Family]) -> None:
    """A text that begins with line breaks can't merge with the template's own."""
    recipe = built["chatml"].recipe
    expected = recipe.encode_chat(talk(("user", "x"))).ids[:3]
    for text in ("\n", "\n\nx", "  x", "\t", " \n x"):
        assert recipe.encode_chat(talk(("user", text))).ids[:3] == expected


def test_no_double_bos(family: Family) -> None:
    if not family.spec.adds_bos:
        pytest.skip("this family has no BOS")
    bos = family.id_of(family.spec.named["bos_token"])
    for text in ("Hi", family.spec.named["bos_token"] + "Hi"):
        assert family.recipe.encode_text(text).ids.count(bos) == 1
        assert family.recipe.encode_text(text).ids[0] == bos
        assert family.recipe.encode_chat(talk(("user", text))).ids[:2].count(bos) == 1


def test_prefill_is_really_continued(family: Family) -> None:
    """The prompt ends with the prefill's own last token, and begins like the question's prompt."""
    recipe = family.recipe
    asked = talk(("user", "Name a fox."))
    open_turn = talk(("user", "Name a fox."), ("assistant", "The quick"))
    prompt = recipe.encode_chat(open_turn, continue_final=True)
    head = recipe.encode_chat(asked).ids
    assert prompt.spans[-1].origin is Origin.ASSISTANT
    assert recipe.decode(prompt.ids).endswith("The quick")
    assert not any(recipe.is_control(token) for token in prompt.ids[prompt.spans[-1].start :])
    if family.name != "qwen3":  # there an answer without reasoning has an empty block of it before
        assert prompt.ids[: len(head)] == head


def test_prefill_keeps_the_system_message(family: Family) -> None:
    try:
        asked = family.recipe.encode_chat(talk(("system", "Be brief now."), ("user", "Name a fox.")))
    except InvalidRequestError:
        pytest.skip("this family has no place for a system message")
    open_turn = talk(("system", "Be brief now."), ("user", "Name a fox."), ("assistant", "The quick"))
    prompt = family.recipe.encode_chat(open_turn, continue_final=True)
    assert "Be brief now." in family.recipe.decode(asked.ids)
    assert "Be brief now." in family.recipe.decode(prompt.ids)


def test_date_comes_from_the_clock(built: dict[str, Family]) -> None:
    ids = built["llama3.2"].recipe.encode_chat(talk(("user", "Hi"))).ids
    assert "Today Date: 03 Feb 2026" in built["llama3.2"].recipe.decode(ids)


def test_a_folder_may_keep_its_template_elsewhere(built: dict[str, Family], tmp_path: Path) -> None:
    family = built["chatml"]
    write_folder(tmp_path, family.whole, family.spec, family.template)
    (tmp_path / "chat_template.jinja").write_text(template_text("chatml-default"), encoding="utf-8")
    recipe = Recipe.load(tmp_path, "hf")
    assert "named after nobody" in recipe.decode(recipe.encode_chat(talk(("user", "Hi"))).ids)


def test_smollm2_equals_transformers(smollm2_file: Path) -> None:
    """The oracle is transformers' own conversion of GGUF vocabularies, with SmolLM2's published words (single digits).

    It is given the vocabulary by our reader, since transformers' reads the whole file for half a minute.
    """
    import transformers.integrations.gguf as conversion

    recipe = Recipe.load(smollm2_file, "gguf")
    metadata = read_gguf(smollm2_file).metadata
    given = {key: metadata[f"tokenizer.ggml.{key}"] for key in ("tokens", "merges", "bos_token_id", "eos_token_id")}
    oracle: Tokenizer = conversion.convert_gguf_tokenizer(  # type: ignore[attr-defined]
        "llama", {"tokenizer_type": "gpt2", **given}
    )[0]
    oracle.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    oracle.add_special_tokens(given["tokens"][:17])
    rng = random.Random(11)
    atoms = [
        *"aB \n\t1é漢🙂.(_",
        "  ",
        "23",
        "'s",
        "def f(x):\n    return",
        "\r\n",
        "\u00a0",
        "न्",
        "\u200b",
        "http://a.b/c?d=1",
    ]
    for _ in range(1500):
        text = "".join(rng.choices(atoms, k=rng.randint(1, 20)))
        ids = recipe.plain_ids(text)
        assert ids == oracle.encode(text, add_special_tokens=False).ids, text
        assert recipe.decode(ids) == text
    template = BoundedEnvironment(datetime.now).from_string(metadata["tokenizer.chat_template"])
    for _ in range(60):
        turns = [(role, rng.choice(_TEXTS)) for role in rng.choice(_SHAPES)]
        messages = [{"role": role, "content": text} for role, text in turns]
        official = oracle.encode(
            template.render(messages=messages, add_generation_prompt=True), add_special_tokens=False
        )
        assert recipe.encode_chat(talk(*turns)).ids == official.ids
