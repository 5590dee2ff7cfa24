"""What the tests of Messages ask with: a scripted server, the official client, and short ways to a message."""

from __future__ import annotations

from typing import Any, Final

import anthropic
from anthropic.types import Message, TextBlock, ThinkingBlock, ToolUseBlock

ASK: Final[list[Any]] = [{"role": "user", "content": "How is the weather?"}]
WEATHER: Final[Any] = {
    "name": "weather",
    "description": "Of a place.",
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}
TIME: Final[Any] = {"name": "time", "input_schema": {"type": "object"}}
INPUT: Final = '{"place": "Ulm", "height": 1.10, "n": 12345678901234567890123}'
CALL: Final = f'<tool_call>\n{{"name": "weather", "arguments": {INPUT}}}\n</tool_call>'
NOW: Final = '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
TWO: Final = f"<think>\nI look.\n</think>\n\nOne moment.\n{CALL}\n{NOW}"
ADAPTIVE: Final[Any] = {"type": "adaptive"}


def create(client: anthropic.Anthropic, **fields: Any) -> Message:
    asked: dict[str, Any] = {"model": "smollm2", "max_tokens": 500, "messages": ASK} | fields
    made: Message = client.messages.create(**asked)
    return made


def either(client: anthropic.Anthropic, *, stream: bool, **fields: Any) -> Message:
    """The same answer, streamed or not."""
    if not stream:
        return create(client, **fields)
    asked: dict[str, Any] = {"model": "smollm2", "max_tokens": 500, "messages": ASK} | fields
    with client.messages.stream(**asked) as streamed:
        return streamed.get_final_message()


def shape(message: Message) -> list[Any]:
    """What the blocks say."""
    said: list[Any] = []
    for block in message.content:
        match block:
            case ThinkingBlock():
                assert block.signature
                said.append(("thinking", block.thinking))
            case TextBlock():
                said.append(block.text)
            case ToolUseBlock():
                said.append((block.name, block.input))
    return said
