"""Thinking in Anthropic's protocol: its budget, its switch, what is shown of it."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest
from anthropic.types import ThinkingBlock
from tests.api.live import Live
from tests.api.messages_asking import ADAPTIVE, ASK, TIME, TWO, WEATHER, create, shape
from tests.api.thinking_recipe import ScriptRouter, script_ids, thinking_recipe

from forebay.recipe import Conversation
from forebay.recipe import Message as Turn


@pytest.mark.parametrize("budget", [1, 3, 20])
def test_thinking_ends_at_its_budget(claude: anthropic.Anthropic, script: ScriptRouter, budget: int) -> None:
    script.say("<think>" + "again and " * 200 + "</think>\n\nSo be it.")
    message = create(claude, thinking={"type": "enabled", "budget_tokens": budget})
    [said] = script.said
    begin, end = (thinking_recipe().vocabulary.control_id(marker) for marker in ("<think>", "</think>"))
    assert said.index(end) - said.index(begin) - 1 == budget
    assert message.stop_reason == "end_turn"
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.usage.output_tokens_details is not None
    assert message.usage.output_tokens_details.thinking_tokens == budget + 2


def test_thinking_shorter_than_its_budget_is_left_alone(claude: anthropic.Anthropic, script: ScriptRouter) -> None:
    script.say(TWO)
    message = create(claude, tools=[WEATHER, TIME], thinking={"type": "enabled", "budget_tokens": 400})
    assert script.said == [script_ids(thinking_recipe(), TWO)]
    assert message.stop_reason == "tool_use"


def test_thinking_is_off_unless_it_is_asked_for(
    claude: anthropic.Anthropic,
    script: ScriptRouter,
) -> None:
    script.say("Yes.")
    disabled: Any = {"type": "disabled"}
    for fields, thinking in [({}, False), ({"thinking": disabled}, False), ({"thinking": ADAPTIVE}, True)]:
        create(claude, **fields)
        asked = Conversation([Turn("user", "How is the weather?")], thinking=thinking)
        assert script.requests[-1].prompt_ids == thinking_recipe().encode_chat(asked).ids


def test_thinking_can_be_left_out_of_the_answer(claude: anthropic.Anthropic, script: ScriptRouter) -> None:
    script.say("<think>\nSecret.\n</think>\n\nYes.")
    for thinking in ({"type": "adaptive", "display": "omitted"}, ADAPTIVE):
        block = create(claude, thinking=thinking).content[0]
        assert isinstance(block, ThinkingBlock)
        assert block.thinking == ("" if "display" in thinking else "Secret.")
        assert block.signature


def test_stop_sequences_see_text_only(claude: anthropic.Anthropic, script: ScriptRouter) -> None:
    script.say("<think>\nUlm, I think.\n</think>\n\nIt is Ulm, I say.")
    message = create(claude, thinking=ADAPTIVE, stop_sequences=[", I"])
    assert shape(message) == [("thinking", "Ulm, I think."), "It is Ulm"]
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", ", I")


def test_effort_changes_nothing_where_thinking_is_off(claude: anthropic.Anthropic, script: ScriptRouter) -> None:
    script.say("Yes.")
    create(claude)
    create(claude, output_config={"effort": "high"})
    assert script.requests[0].prompt_ids == script.requests[1].prompt_ids


def test_a_model_that_does_not_reason_takes_no_budget(shared: Live) -> None:
    body = {"model": "smollm2", "max_tokens": 9, "messages": ASK}
    answer = shared.http.post("/v1/messages", json=body | {"thinking": {"type": "enabled", "budget_tokens": 5}})
    assert answer.status_code == 400
    assert "can't be held to a budget" in answer.json()["error"]["message"]
    harmless = {"thinking": ADAPTIVE, "output_config": {"effort": "high"}}
    assert shared.http.post("/v1/messages", json=body | harmless).status_code == 200
