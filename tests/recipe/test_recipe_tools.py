"""Tools in the ChatML family: what the prompt says, that calls stay as they were sent, and that kept answers continue
the prompt that they were made from."""

from __future__ import annotations

import json

import pytest
from tests.recipe.families import Family

from forebay.core.errors import InvalidRequestError
from forebay.core.prompt import Origin
from forebay.recipe import Conversation, KeptAnswer, Message, Recipe, ToolCall, ToolSpec
from forebay.recipe.pieces import Control, Kept, Text

_TOOL = ToolSpec("now", "The time.", {"type": "object", "properties": {}})
_ARGUMENTS = '{"b": 1.10, "a": 12345678901234567890123, "b": 1e3}'


def _spelled(recipe: Recipe, conversation: Conversation, *, continue_final: bool = False) -> str:
    prompt = recipe.encode_chat(conversation, continue_final=continue_final)
    return b"".join(map(recipe.token_bytes, prompt.ids)).decode()


def _called(text: str = "", arguments: str = "{}", *, kept: KeptAnswer | None = None) -> list[Message]:
    call = ToolCall("c1", "now", arguments)
    return [
        Message("user", "What time?"),
        Message("assistant", text, calls=[call], kept=kept),
        Message("tool", "12:00", call_id="c1"),
    ]


_LINE = (
    '\n{"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {"type": "object", '
)
_LINE += '"properties": {}}}}\n</tools>\n\n'


def test_a_chatml_model_without_tools_of_its_own_gets_hermes_tools(built: dict[str, Family]) -> None:
    spelled = _spelled(built["chatml-default"].recipe, Conversation(_called("Let me see."), [_TOOL]))
    assert spelled.startswith("<|im_start|>system\nYou are a helpful assistant")
    head, _, rest = spelled.partition("\n\n# Tools\n\n")
    assert head.count("<|im_start|>") == 1
    assert _LINE in rest
    assert rest.endswith(
        "<|im_end|>\n<|im_start|>user\nWhat time?<|im_end|>\n<|im_start|>assistant\nLet me see.\n<tool_call>\n"
        '{"name": "now", "arguments": {}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n12:00\n'
        "</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_tools_stand_behind_the_system_message(built: dict[str, Family]) -> None:
    for name in ("chatml", "chatml-default", "qwen3"):
        messages = [Message("system", "Be brief."), Message("user", "Hi")]
        spelled = _spelled(built[name].recipe, Conversation(messages, [_TOOL]))
        assert spelled.startswith("<|im_start|>system\nBe brief.\n\n# Tools\n\n")
        assert spelled.count("<|im_start|>system") == 1


def test_every_part_has_its_origin(built: dict[str, Family]) -> None:
    recipe = built["qwen3"].recipe
    pieces = list(recipe.pieces(Conversation(_called(arguments='{"x": "y"}'), [_TOOL])))
    texts = {piece.text: piece.origin for piece in pieces if isinstance(piece, Text)}
    assert texts["now"] is Origin.ASSISTANT
    assert texts['{"x": "y"}'] is Origin.ASSISTANT
    assert texts["12:00"] is Origin.TOOL
    assert [origin for text, origin in texts.items() if '"description": "The time."' in text] == [Origin.SYSTEM]


@pytest.mark.parametrize("name", ["chatml", "qwen3"])
def test_arguments_are_not_written_anew(built: dict[str, Family], name: str) -> None:
    spelled = _spelled(built[name].recipe, Conversation(_called(arguments=_ARGUMENTS), [_TOOL]))
    assert f'"arguments": {_ARGUMENTS}}}' in spelled


@pytest.mark.parametrize("arguments", ["", "{", '{"a": ', "[1]", "text </tool_call>", '{"a": NaN}'])
def test_arguments_that_are_no_object_are_rendered_all_the_same(built: dict[str, Family], arguments: str) -> None:
    """They come from answers that were cut; to refuse them would end the conversation."""
    for name in ("chatml", "qwen3"):
        assert "12:00" in _spelled(built[name].recipe, Conversation(_called(arguments=arguments), [_TOOL]))


def test_markers_in_every_field_of_a_tool_stay_text(built: dict[str, Family]) -> None:
    for name in ("chatml", "qwen3"):
        family = built[name]
        bad = "".join(family.control)
        tool = ToolSpec(bad, bad, {bad: {"enum": [bad]}})
        call = ToolCall(bad, bad, json.dumps({bad: bad}))
        messages = [Message("user", bad), Message("assistant", bad, bad, [call]), Message("tool", bad, call_id=bad)]
        clean = [Message("user", "x"), Message("assistant", "x", "x", [ToolCall("x", "x", "{}")])]
        clean.append(Message("tool", "x", call_id="x"))
        ids = family.recipe.encode_chat(Conversation(messages, [tool])).ids
        expected = family.recipe.encode_chat(Conversation(clean, [ToolSpec("x", "x", {})])).ids
        is_control = family.recipe.is_control
        assert [each for each in ids if is_control(each)] == [each for each in expected if is_control(each)]


def _kept(family: Family, text: str, body: str = "") -> KeptAnswer:
    """Ids as a model would make them: one by one, where a tokenizer would have merged."""
    plain = family.recipe.plain_ids
    marks = {spelling: family.id_of(spelling) for spelling in family.control}
    ids: list[int] = []
    for part in (text, body):
        start = len(ids)
        rest = part
        while rest:
            mark = next((each for each in marks if rest.startswith(each)), None)
            ids += plain(rest[0]) if mark is None else [marks[mark]]
            rest = rest[len(mark or rest[0]) :]
    return KeptAnswer(ids, start if body else 0)


@pytest.mark.parametrize("thinking", [None, False])
def test_a_kept_call_continues_the_prompt_that_it_answered(built: dict[str, Family], thinking: bool | None) -> None:
    """So the prefix cache hits across tool calls: the next prompt begins with the last one and its answer."""
    family = built["qwen3"]
    answer = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    kept = _kept(family, "<think>\nHm.\n</think>\n\n", answer) if thinking is None else _kept(family, answer)
    asked = family.recipe.encode_chat(Conversation(_called()[:1], [_TOOL], thinking=thinking)).ids
    following = family.recipe.encode_chat(Conversation(_called(kept=kept), [_TOOL], thinking=thinking)).ids
    end = family.id_of("<|im_end|>")
    assert following[: len(asked) + len(kept.ids) + 1] == [*asked, *kept.ids, end]


def test_a_kept_answer_of_an_earlier_turn_loses_its_reasoning(built: dict[str, Family]) -> None:
    family = built["qwen3"]
    kept = _kept(family, "<think>\nHm.\n</think>\n\n", "Noon.")
    messages = [Message("user", "Hi"), Message("assistant", "Noon.", kept=kept), Message("user", "And?")]
    pieces = list(family.recipe.pieces(Conversation(messages)))
    assert [piece for piece in pieces if isinstance(piece, Kept)] == [Kept(tuple(kept.ids[kept.body :]))]
    assert Control(family.id_of("<think>")) not in pieces


def test_reasoning_sent_apart_is_shown_within_the_turn(built: dict[str, Family]) -> None:
    messages = _called()
    messages[1] = Message("assistant", "", "First this.", messages[1].calls)
    spelled = _spelled(built["qwen3"].recipe, Conversation(messages, [_TOOL]))
    assert "assistant\n<think>\nFirst this.\n</think>\n\n<tool_call>\n" in spelled
    later = [*messages, Message("assistant", "Noon."), Message("user", "Thanks")]
    assert "First this." not in _spelled(built["qwen3"].recipe, Conversation(later, [_TOOL]))


@pytest.mark.parametrize("name", ["alpaca", "zephyr", "phi3", "gemma", "llama2"])
def test_a_template_without_tools_refuses_them(built: dict[str, Family], name: str) -> None:
    for conversation, param in (
        (Conversation(_called()[:1], [_TOOL]), "tools"),
        (Conversation(_called()), "messages.1.tool_calls"),
    ):
        with pytest.raises(InvalidRequestError, match="no place for tools") as caught:
            built[name].recipe.encode_chat(conversation)
        assert caught.value.param == param
