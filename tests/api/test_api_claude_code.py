"""Claude Code against a running server, turn after turn: every prompt goes on behind the one before and its answer, so
that the prefix cache serves all of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.api.claude_code import HEADERS, ClaudeCode, counting, put_together
from tests.api.live import Live, events
from tests.api.thinking_recipe import ScriptRouter, script_router, thinking_recipe
from tests.recipe.families import build_family

from forebay.api import ApiConfig

ANSWERS = (
    '<think>\nI have to read it first.\n</think>\n\nI\'ll read it.\n\n<tool_call>\n{"name": "Read", "arguments": '
    '{"limit": 1.10, "file_path": "/a \\u00e9"}}\n</tool_call>\n<tool_call>\n{"name": "Grep", "arguments": '
    '{"file_path": "/", "limit": 12345678901234567890123}}\n</tool_call>',
    '<tool_call>\n{"arguments": {"file_path":"/b"}, "name": "Write"}\n</tool_call>',
    "<think>\nDone, then.\n</think>\n\nDone.",
    "You are welcome.",
)


def send(live: Live, body: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The answer's blocks, and the usage at its end; what count_tokens said of it has to be true."""
    counted = live.http.post("/v1/messages/count_tokens?beta=true", json=counting(body), headers=HEADERS)
    answer = live.http.post("/v1/messages?beta=true", json=body, headers=HEADERS)
    assert answer.status_code == 200, answer.text
    sent = [json.loads(data) for _, data in events(answer.text)]
    assert sent[-1]["type"] == "message_stop"
    usage: dict[str, Any] = sent[-2]["usage"]
    assert counted.json() == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}
    return put_together(sent), usage


@pytest.mark.parametrize(
    "thinking",
    [{"type": "adaptive"}, {"type": "adaptive", "display": "omitted"}, {"type": "enabled", "budget_tokens": 31_999}],
)
def test_every_prompt_goes_on_behind_the_last_answer(
    scripted: Live, script: ScriptRouter, thinking: dict[str, Any]
) -> None:
    script.say(*ANSWERS)
    program = ClaudeCode(thinking=thinking)
    body = program.ask("Read /a, please.")
    for turn, answer in enumerate(ANSWERS):
        blocks, _ = send(scripted, body)
        program.answered(blocks)
        if turn < 2:
            assert [block["type"] for block in blocks].count("tool_use") == 2 - turn
            body = program.results("ok", system="The file was changed meanwhile." if turn else None)
        else:
            assert blocks[-1]["text"] == answer.rpartition("\n")[2]
            body = program.ask("Thanks.")
    prompts = [request.prompt_ids for request in script.requests]
    end = thinking_recipe().vocabulary.control_id("<|im_end|>")
    for before, said, prompt in zip(prompts, script.said, prompts[1:], strict=False):
        whole = [*before, *said, end]
        assert prompt[: len(whole)] == whole


def test_a_tool_loop_on_qwen3s_own_template(tmp_path: Path) -> None:
    """The template drops the reasoning of turns before the last question; within a loop everything stays."""
    router = script_router(build_family("qwen3", tmp_path).recipe)
    router.say(*ANSWERS)
    with Live(router, router.recipe, ApiConfig()) as live:
        program = ClaudeCode()
        body = program.ask("Read /a, please.")
        for _ in range(2):
            program.answered(send(live, body)[0])
            body = program.results("ok")
        assert send(live, body)[0][-1]["text"] == "Done."
    prompts = [request.prompt_ids for request in router.requests]
    for before, said, prompt in zip(prompts, router.said, prompts[1:], strict=False):
        assert prompt[: len(before) + len(said)] == [*before, *said]


def test_the_billing_line_is_all_that_is_left_out(scripted: Live) -> None:
    def count(system: Any) -> int:
        body = {"model": "smollm2", "messages": [{"role": "user", "content": "Hi"}], "system": system}
        counted: int = scripted.http.post("/v1/messages/count_tokens", json=body).json()["input_tokens"]
        return counted

    line = "x-anthropic-billing-header: cc_version=2.1.154.abc; cc_entrypoint=cli; cch=00000;"
    assert count(f"{line}\nBe brief.") == count("Be brief.")
    assert count([{"type": "text", "text": line}]) == count(None)
    for other in (f"Be brief.\n{line}", f"{line} You are a poet.", "x-anthropic-billing-header"):
        assert count(other) > count(None) + 5
    assert count(f"{line} You are a poet.") > count("You are a poet.") + 5


def test_its_marks_ask_for_the_longest_retention(scripted: Live, script: ScriptRouter) -> None:
    script.say("Hi.")
    send(scripted, ClaudeCode().ask("Hi"))
    assert script.requests[-1].retention == "agent"
