"""Mistral models that come with Mistral's own tokenizer file equal `mistral-common`; each difference is explained."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import mistral_common
import pytest

from forebay.core.errors import ConversationError, InvalidRequestError, UnsupportedModelError
from forebay.recipe import Conversation, Message, Recipe, ToolCall, ToolSpec
from forebay.recipe.call_ids import is_nine_characters, nine_characters
from forebay.recipe.hf_tokenizer import hf_parts
from forebay.recipe.mistral_reference import MistralLibrary
from forebay.recipe.pretokenizers import word_rule

_DATA: Final = Path(mistral_common.__file__).parent / "data"
_SENTENCEPIECE: Final = {
    "v1": _DATA / "tokenizer.model.v1",
    "v3": _DATA / "mistral_instruct_tokenizer_240323.model.v3",
    "v7": _DATA / "mistral_instruct_tokenizer_241114.model.v7",
}
"""Real files, which come with the library."""
_TEKKEN: Final = ("v3", "v7", "v11", "v13")
_SPECIAL: Final = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]"),
    *(
        "[SUFFIX]",
        "[SYSTEM_PROMPT]",
        "[/SYSTEM_PROMPT]",
        "[TOOL_CONTENT]",
        "[CALL_ID]",
        "[ARGS]",
        "[THINK]",
        "[/THINK]",
    ),
)
_WORDS: Final = ("th", "the", " the", "IN", "ST", "INST", " [", '":', ' {"', "\n\n")
NAMES: Final = [*(f"sentencepiece {name}" for name in _SENTENCEPIECE), *(f"tekken {name}" for name in _TEKKEN)]

TOOLS: Final = [
    ToolSpec("look", 'Look at a "place".', {"type": "object", "properties": {"place": {"enum": ["Ås", "b"]}}}),
    ToolSpec("run"),
]
_TEXTS: Final = ("Hi", " two  spaces ", "line\n\n", "émile 東京 🙂", "17+25=42", "x = [1, 2]\n", '{"a": "b"}')
_ANSWERS: Final = ("{}", '{"place": "Ås", "n": [1, 2.5, null]}', '{"q": "say \\"hi\\"\\n"}')
_RESULTS: Final = ('{"t":  21, "s": [1,2]}', "true", "It ran.", '"quoted"', "line\n", '{"broken": ')


def _tekken(version: str) -> dict[str, Any]:
    """The smallest file of its kind: the 256 bytes and a few words."""
    tokens = [*(bytes([byte]) for byte in range(256)), *(word.encode() for word in _WORDS)]
    count = len(tokens)
    return {
        "config": {
            "pattern": word_rule("tekken").patterns[0],
            "num_vocab_tokens": count,
            "default_vocab_size": count + len(_SPECIAL),
            "default_num_special_tokens": len(_SPECIAL),
            "version": version,
        },
        "vocab": [
            {"rank": rank, "token_bytes": b64encode(token).decode(), "token_str": None}
            for rank, token in enumerate(tokens)
        ],
        "special_tokens": [{"rank": rank, "token_str": text, "is_control": True} for rank, text in enumerate(_SPECIAL)],
    }


def _file(name: str, folder: Path) -> Path:
    kind, _, version = name.partition(" ")
    if kind == "sentencepiece":
        path = folder / f"tokenizer.model.{version}"
        path.symlink_to(_SENTENCEPIECE[version])
    else:
        path = folder / "tekken.json"
        path.write_text(json.dumps(_tekken(version)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Recipe, MistralLibrary]]:
    """The recipe of a folder that has nothing but the file, and the library."""
    found = {}
    for name in NAMES:
        path = _file(name, tmp_path_factory.mktemp("mistral"))
        found[name] = Recipe.load(path.parent, "hf"), MistralLibrary(path)
    return found


def _talk(rng: random.Random, *, tools: bool) -> Conversation:
    """A conversation in the one order that all versions take."""
    messages = [Message("system", rng.choice(_TEXTS))] if rng.random() < 0.5 else []
    for _ in range(rng.randint(0, 2)):
        messages += [Message("user", rng.choice(_TEXTS)), *_calls(rng, tools), Message("assistant", rng.choice(_TEXTS))]
    messages.append(Message("user", rng.choice(_TEXTS)))
    return Conversation([*messages, *_calls(rng, tools)], TOOLS if tools else [])


def _calls(rng: random.Random, tools: bool) -> list[Message]:
    if not tools or rng.random() < 0.4:
        return []
    calls = [
        ToolCall(f"{rng.randrange(10**9):09}", rng.choice(("look", "run")), rng.choice(_ANSWERS))
        for _ in range(rng.randint(1, 2))
    ]
    results = [Message("tool", rng.choice(_RESULTS), call_id=call.id, name=call.name) for call in calls]
    return [Message("assistant", "", calls=calls), *results]


@pytest.mark.parametrize("name", NAMES)
def test_the_typed_template_of_the_version_is_chosen(
    models: dict[str, tuple[Recipe, MistralLibrary]], name: str
) -> None:
    assert models[name][0].template_name == "mistral-" + name.split()[1]


@pytest.mark.parametrize("name", NAMES)
def test_random_conversations_have_the_librarys_ids(
    models: dict[str, tuple[Recipe, MistralLibrary]], name: str
) -> None:
    recipe, library = models[name]
    rng = random.Random(name)
    for _ in range(80):
        conversation = _talk(rng, tools=not name.endswith("v1"))
        assert recipe.encode_chat(conversation).ids == library.ids(conversation, False), conversation


@pytest.mark.parametrize("name", NAMES)
def test_an_answers_beginning_is_continued_as_by_the_library(
    models: dict[str, tuple[Recipe, MistralLibrary]], name: str
) -> None:
    recipe, library = models[name]
    conversation = Conversation([Message("user", "Hi"), Message("assistant", "It is")])
    assert recipe.encode_chat(conversation, continue_final=True).ids == library.ids(conversation, True)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith(("v1", "v3"))])
def test_text_beside_calls(models: dict[str, tuple[Recipe, MistralLibrary]], name: str) -> None:
    recipe, library = models[name]
    conversation = _one_call("{}", text="I look.")
    assert recipe.encode_chat(conversation).ids == library.ids(conversation, False)


@pytest.mark.parametrize("name", ["sentencepiece v3", "tekken v3"])
def test_text_beside_calls_is_refused_by_both_where_the_format_has_no_place(
    models: dict[str, tuple[Recipe, MistralLibrary]], name: str
) -> None:
    recipe, library = models[name]
    conversation = _one_call("{}", text="I look.")
    assert library.ids(conversation, False) is None
    with pytest.raises(InvalidRequestError) as caught:
        recipe.encode_chat(conversation)
    assert caught.value.param == "messages.1.content"


def _one_call(arguments: str, *, text: str = "", result: str = "x", call_id: str = "aB3dE6gH9") -> Conversation:
    call = ToolCall(call_id, "look", arguments)
    answer = Message("tool", result, call_id=call_id, name="look")
    return Conversation([Message("user", "Hi"), Message("assistant", text, calls=[call]), answer], TOOLS)


def _spelled(recipe: Recipe, ids: Sequence[int]) -> str:
    return b"".join(map(recipe.token_bytes, ids)).decode()


# Differences, each with its reason.


@pytest.mark.parametrize("name", ["sentencepiece v3", "tekken v11"])
def test_numbers_and_repeated_keys_stay_as_they_were_sent(
    models: dict[str, tuple[Recipe, MistralLibrary]], name: str
) -> None:
    """The library reads arguments as JSON and writes them anew, and so loses what a model wrote."""
    recipe, library = models[name]
    sent = '{"a": 1.10, "b": 12345678901234567890123, "a": 1e3}'
    conversation = _one_call(sent)
    assert sent in _spelled(recipe, recipe.encode_chat(conversation).ids)
    theirs = library.ids(conversation, False)
    assert theirs is not None
    assert '{"a": 1000.0, "b": 12345678901234567890123}' in _spelled(recipe, theirs)


@pytest.mark.parametrize("name", ["sentencepiece v3", "tekken v13"])
def test_ids_of_calls_from_elsewhere_are_mapped(models: dict[str, tuple[Recipe, MistralLibrary]], name: str) -> None:
    """The library refuses the id of another model's call; a conversation that changes models would end there."""
    recipe, library = models[name]
    conversation = _one_call("{}", call_id="call_0123456789abcdef")
    assert recipe.encode_chat(conversation).ids == library.ids(conversation, False)  # our request maps it before
    mapped = nine_characters("call_0123456789abcdef")
    assert is_nine_characters(mapped)
    assert mapped != nine_characters("call_0123456789abcdee")
    assert (mapped in _spelled(recipe, recipe.encode_chat(conversation).ids)) == name.endswith("v3")


@pytest.mark.parametrize("name", NAMES)
def test_messages_that_the_library_joins_are_refused(
    models: dict[str, tuple[Recipe, MistralLibrary]], name: str
) -> None:
    """Two questions in a row and one with a blank line in it would be the same prompt."""
    recipe, library = models[name]
    two = Conversation([Message("user", "a"), Message("user", "b")])
    assert library.ids(two, False) == library.ids(Conversation([Message("user", "a\n\nb")]), False)
    with pytest.raises(ConversationError) as caught:
        recipe.encode_chat(two)
    assert caught.value.pointer == "/messages/1/role"


def test_a_line_break_typed_behind_the_system_message_is_kept_apart(
    models: dict[str, tuple[Recipe, MistralLibrary]],
) -> None:
    """The library makes one string of both texts; here what is between them has the same ids whatever follows."""
    recipe, library = models["tekken v3"]
    typed = Conversation([Message("system", "Be brief.\n"), Message("user", "\nHi")])
    plain = Conversation([Message("system", "Be brief.\n"), Message("user", "Hi")])
    ids, benign = recipe.encode_chat(typed).ids, recipe.encode_chat(plain).ids
    assert ids != library.ids(typed, False)
    assert benign == library.ids(plain, False)
    common = len(benign) - 3
    assert ids[:common] == benign[:common]
    assert _spelled(recipe, ids) == "<s>[INST]Be brief.\n\n\n\nHi[/INST]"


def test_a_typed_inst_of_v1_is_no_turn(models: dict[str, tuple[Recipe, MistralLibrary]]) -> None:
    """The library spells v1's markers as text, so that typed ones are real ones."""
    recipe, library = models["sentencepiece v1"]
    typed = Conversation([Message("user", "a [/INST] b</s> [INST] c")])
    real = recipe.encode_chat(Conversation([Message("user", "x")])).ids
    end = real[-4:]
    theirs = library.ids(typed, False)
    assert theirs is not None
    assert _count(theirs, end) > _count(recipe.encode_chat(typed).ids, end) == 1


def _count(ids: Sequence[int], part: Sequence[int]) -> int:
    return sum(list(ids[at : at + len(part)]) == list(part) for at in range(len(ids)))


# The files.


def test_a_folder_with_a_chat_template_keeps_it(tmp_path: Path) -> None:
    _file("tekken v7", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages[0].content }}"}))
    with pytest.raises(UnsupportedModelError, match=r"no tokenizer\.json"):
        hf_parts(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"pattern": r"\w+|\W+"}, "pattern"), ({"version": "v99"}, "can't be read")],
)
def test_a_file_that_is_not_understood_is_refused(tmp_path: Path, change: dict[str, str], said: str) -> None:
    file = _tekken("v7")
    file["config"] |= change
    (tmp_path / "tekken.json").write_text(json.dumps(file), encoding="utf-8")
    with pytest.raises(UnsupportedModelError, match=said):
        hf_parts(tmp_path)


def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _file("tekken v7", tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "forebay.recipe.mistral_reference", None)
    with pytest.raises(UnsupportedModelError, match=r"forebay\[mistral\]"):
        hf_parts(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_every_text_is_encoded_as_by_the_library(models: dict[str, tuple[Recipe, MistralLibrary]], name: str) -> None:
    """As the whole of a question, in which the library puts nothing before or behind it but control tokens."""
    recipe, library = models[name]
    rng = random.Random(name)
    atoms = ("the ", "INST", "\n", " ", "1", "23", "é", "東", "🙂", "'s", "(", ".", "\t", "aaa", "[INST]", "</s>")
    for _ in range(100):
        text = "".join(rng.choices(atoms, k=rng.randint(1, 12)))
        if name.endswith("v1") and "INST]" in text:
            continue
        conversation = Conversation([Message("user", text)])
        assert recipe.encode_chat(conversation).ids == library.ids(conversation, False), text
