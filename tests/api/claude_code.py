"""Requests shaped as Claude Code sends them, made by hand: instructions in blocks behind a billing line that differs
from request to request, twenty tools, thinking, a moving cache mark. It keeps the conversation as the program does."""

from __future__ import annotations

import copy
import json
from typing import Any, Final

BETAS: Final = "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,effort-2025-11-24"
HEADERS: Final = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": BETAS,
    "anthropic-dangerous-direct-browser-access": "true",
    "x-app": "cli",
    "user-agent": "claude-cli/2.1.154 (external, cli)",
}
_NAMES: Final = (
    *("Agent", "Bash", "BashOutput", "Edit", "ExitPlanMode", "Glob", "Grep", "KillShell", "NotebookEdit", "Read"),
    *("Skill", "SlashCommand", "TodoWrite", "WebFetch", "WebSearch", "Write", "AskUserQuestion", "TaskOutput"),
    *("mcp__files__list_directory", "mcp__files__read-file"),
)


def _tool(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"{name} does its work.\n\nUsage:\n- Say what is meant in <parameter>s of its own.",
        "input_schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "file_path": {"type": "string", "description": "The absolute path"},
                "limit": {"type": "number", "exclusiveMinimum": 0},
                "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
            },
            "required": ["file_path"],
            "additionalProperties": False,
        },
    }


class ClaudeCode:
    """One conversation."""

    def __init__(self, **fields: Any) -> None:
        """`fields` are put over those of every request."""
        self._fields = fields
        self._sent = 0
        self.messages: list[dict[str, Any]] = []

    def ask(self, text: str) -> dict[str, Any]:
        """The request for a new question."""
        reminder = "<system-reminder>\nAs you answer, you can use the following context.\n</system-reminder>"
        blocks = [{"type": "text", "text": part} for part in (reminder, text)]
        self.messages.append({"role": "user", "content": blocks})
        return self.body()

    def answered(self, content: list[dict[str, Any]]) -> None:
        """The blocks of the answer, as they came."""
        self.messages.append({"role": "assistant", "content": content})

    def results(self, text: str, *, system: str | None = None) -> dict[str, Any]:
        """The request with a result for each call of the last answer; with a system message behind them."""
        calls = [block for block in self.messages[-1]["content"] if block["type"] == "tool_use"]
        blocks = [
            {"type": "tool_result", "tool_use_id": call["id"], "content": f"{call['name']}: {text}"} for call in calls
        ]
        self.messages.append({"role": "user", "content": blocks})
        if system is not None:
            self.messages.append({"role": "system", "content": system})
        return self.body()

    def body(self) -> dict[str, Any]:
        """The request as it stands; the billing line and the cache mark are new each time."""
        self._sent += 1
        messages = copy.deepcopy(self.messages)
        last = [message for message in messages if message["role"] == "user"][-1]
        last["content"][-1]["cache_control"] = {"type": "ephemeral"}
        billing = (
            f"x-anthropic-billing-header: cc_version=2.1.154.{self._sent}a; cc_entrypoint=cli; cch={self._sent:05};"
        )
        long = {"type": "ephemeral", "ttl": "1h", "scope": "global"}
        system = [
            {"type": "text", "text": billing},
            {
                "type": "text",
                "text": "You are Claude Code, Anthropic's official CLI for Claude.",
                "cache_control": long,
            },
            {"type": "text", "text": "Be concise.\n# Tone\nNo preamble.", "cache_control": {"type": "ephemeral"}},
        ]
        return {
            "model": "smollm2",
            "messages": messages,
            "system": system,
            "tools": [_tool(name) for name in _NAMES],
            "metadata": {"user_id": '{"device_id":"d","account_uuid":"","session_id":"s"}'},
            "max_tokens": 32_000,
            "thinking": {"type": "adaptive"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "output_config": {"effort": "high"},
            "stream": True,
            **self._fields,
        }


def counting(body: dict[str, Any]) -> dict[str, Any]:
    """The request to count what another one's prompt takes."""
    taken = ("model", "messages", "system", "tools", "thinking", "output_config", "context_management")
    return {name: body[name] for name in taken}


def put_together(sent: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks of a streamed answer, as the program keeps them for its next request."""
    blocks: list[dict[str, Any]] = []
    inputs: dict[int, str] = {}
    for one in sent:
        if one["type"] == "content_block_start":
            blocks.append(dict(one["content_block"]))
        elif one["type"] == "content_block_delta":
            delta = dict(one["delta"])
            kind = delta.pop("type")
            if kind == "input_json_delta":
                inputs[one["index"]] = inputs.get(one["index"], "") + delta["partial_json"]
                continue
            [(name, text)] = delta.items()
            blocks[one["index"]][name] = blocks[one["index"]].get(name, "") + text
    for index, text in inputs.items():
        blocks[index]["input"] = json.loads(text)
    return blocks
