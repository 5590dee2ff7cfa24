"""Requests in Codex' shape, turn after turn: stateless, streamed, with reasoning that the client carries unread.

The shapes were written here from what Codex' source says of its requests; nothing in them was recorded from a user.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from tests.api.live import Live
from tests.api.responses import serving, streamed
from tests.api.tool_recipe import LONG

FUNCTIONS: Final[list[Any]] = [
    {
        "type": "function",
        "name": "shell",
        "description": "Runs a shell command and returns its output.",
        "strict": False,
        "parameters": {
            "type": "object",
            "properties": {
                "command": {"type": "array", "items": {"type": "string"}, "description": "The command"},
                "workdir": {"type": "string"},
                "timeout_ms": {"type": "number"},
            },
            "required": ["command"],
            "additionalProperties": False,
        },
    },
    {
        "type": "function",
        "name": "update_plan",
        "description": "Updates the task plan.",
        "strict": False,
        "parameters": {
            "type": "object",
            "properties": {"plan": {"type": "array", "items": {"type": "object"}}},
            "required": ["plan"],
            "additionalProperties": False,
        },
    },
    {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": {"type": "text"}},
]
ANSWERS: Final = (
    "<think>\nI list the files.\n</think>\n\n"
    '<tool_call>\n{"name": "shell", "arguments": {"command": ["ls", "-l"],  "timeout_ms": 1.0e3}}\n</tool_call>',
    "<think>\nNow the patch.\n</think>\n\nI edit it.\n"
    '<tool_call>\n{"name": "apply_patch", "arguments": {"input": "*** Begin\\n\\"x\\"\\n*** End"}}\n</tool_call>',
    "<think>\nDone.\n</think>\n\nIt is done.",
)


def said(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def body(items: list[Any]) -> dict[str, Any]:
    """A request of a turn, but for `model` and `stream`."""
    return {
        "instructions": "You are a coding agent.",
        "input": items,
        "tools": FUNCTIONS,
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199a213-81c0-7800-8aa1-bbab2a035a53",
        "client_metadata": {"x-codex-installation-id": "1"},
        "text": {"verbosity": "medium"},
    }


def kept_by_codex(item: dict[str, Any]) -> dict[str, Any]:
    """An answer's item as Codex sends it back: no ids of items, no reasoning in the open, no fields of parts that it
    does not know."""
    if item["type"] == "reasoning":
        return {"type": "reasoning", "summary": [], "encrypted_content": item["encrypted_content"]}
    if item["type"] == "message":
        text = "".join(part["text"] for part in item["content"])
        return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {key: value for key, value in item.items() if key not in ("id", "status")}


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with serving() as running:
        yield running


def test_turn_after_turn_the_model_sees_its_own_ids(live: Live) -> None:
    items: list[Any] = [
        said("developer", "<permissions instructions>\nSandbox: read-only\n</permissions instructions>"),
        said("user", "<environment_context>\n<cwd>/work</cwd>\n</environment_context>"),
        said("user", "Tidy up."),
    ]
    expected: list[int] = []
    for answer in ANSWERS:
        live.router.reset(answer=answer, model=LONG)
        events = streamed(live, **body(items))
        sent = live.router.requests[-1].prompt_ids
        assert sent[: len(expected)] == expected, "what was cached before is a prefix of this prompt"
        expected = [*sent, *live.recipe.plain_ids(answer)]
        final = events[-1]["response"]
        assert (events[-1]["type"], final["status"]) == ("response.completed", "completed")
        items += [kept_by_codex(item) for item in final["output"]]
        items += [_output(item) for item in final["output"] if item["type"].endswith("call")]
    assert [item["type"] for item in items[3:]] == [
        *("reasoning", "function_call", "function_call_output"),
        *("reasoning", "message", "custom_tool_call", "custom_tool_call_output"),
        *("reasoning", "message"),
    ]
    assert items[4]["arguments"] == '{"command": ["ls", "-l"],  "timeout_ms": 1.0e3}'
    assert items[8]["input"] == '*** Begin\n"x"\n*** End'


def _output(item: dict[str, Any]) -> dict[str, Any]:
    """What a tool says; Codex writes a function's output as text that holds JSON."""
    text = json.dumps({"output": "total 0\n", "metadata": {"exit_code": 0, "duration_seconds": 0.1}})
    return {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": text}


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "local_shell"},
        {"type": "web_search", "external_web_access": False},
        {"type": "image_generation", "output_format": "png"},
        {"type": "tool_search", "execution": "client"},
    ],
)
def test_tools_that_run_elsewhere_are_refused_by_name(live: Live, tool: dict[str, Any]) -> None:
    live.router.reset()
    request = {"model": "smollm2", "stream": True, **body([said("user", "Hi")])}
    answer = live.http.post("/v1/responses", json={**request, "tools": [*FUNCTIONS, tool]})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == "tools.3"
    assert f"'{tool['type']}'" in error["message"]
