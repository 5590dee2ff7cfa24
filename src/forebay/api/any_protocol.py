"""A request's body in any of the three chat protocols → what it asks, by the same types and checks as its own route.

For those who look at a prompt before they send it: fields that the prompt does not need (`model`, `max_tokens`) may be
missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, get_args

from pydantic import ValidationError

from forebay.api import anthropic_prompt, anthropic_types, openai_chat_prompt, responses_asking, responses_types
from forebay.api.asking import Ask
from forebay.api.config import ApiConfig
from forebay.api.openai_chat import check_chat_fields
from forebay.api.openai_chat_types import ChatRequest
from forebay.api.openai_types import reject_unsupported
from forebay.api.ports import RecipePort
from forebay.api.responses_history import inputs_of
from forebay.api.responses_store import ResponseStore
from forebay.api.validation import describe
from forebay.core.errors import InvalidRequestError

ProtocolName = Literal["chat", "responses", "messages"]
NAMES: Final[tuple[ProtocolName, ...]] = get_args(ProtocolName)
_OF_MESSAGES: Final = frozenset({"system", "stop_sequences", "thinking", "mcp_servers", "output_config"})
"""Fields that only a Messages request has."""
_BLOCKS: Final = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking"})
"""Kinds of content that only its messages have."""


def protocol_of(body: Mapping[str, Any]) -> ProtocolName:
    """Whose request it is, by what only one protocol has; chat completions where nothing tells."""
    if "input" in body:
        return "responses"
    tools = body.get("tools")
    named = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    if not _OF_MESSAGES.isdisjoint(body) or any("input_schema" in tool for tool in named):
        return "messages"
    return "messages" if any(block.get("type") in _BLOCKS for block in _blocks(body.get("messages"))) else "chat"


def _blocks(messages: object) -> Sequence[Mapping[str, Any]]:
    contents = (
        [message.get("content") for message in messages if isinstance(message, dict)]
        if isinstance(messages, list)
        else []
    )
    lists = [content for content in contents if isinstance(content, list)]
    return [block for content in lists for block in content if isinstance(block, dict)]


def ask_of(body: Mapping[str, Any], protocol: ProtocolName, recipe: RecipePort, config: ApiConfig) -> Ask:
    """What the body asks. Raises InvalidRequestError as the protocol's own route would."""
    try:
        if protocol == "chat":
            return _chat(ChatRequest.model_validate({"model": "", **body}))
        if protocol == "messages":
            return _messages(
                anthropic_types.MessagesRequest.model_validate({"model": "", "max_tokens": 1, **body}), recipe
            )
        return _responses(responses_types.ResponsesRequest.model_validate({"model": "", **body}), config)
    except ValidationError as error:
        raise InvalidRequestError(*describe(error.errors())) from error


def _chat(body: ChatRequest) -> Ask:
    check_chat_fields(body)
    return openai_chat_prompt.ask_of(body)


def _messages(body: anthropic_types.MessagesRequest, recipe: RecipePort) -> Ask:
    reject_unsupported(body, anthropic_types.UNSUPPORTED)
    return anthropic_prompt.ask_of(body, recipe)


def _responses(body: responses_types.ResponsesRequest, config: ApiConfig) -> Ask:
    responses_asking.check_fields(body)
    if body.previous_response_id is not None:
        text = "Stored responses can't be followed here; send their items in 'input' instead."
        raise InvalidRequestError(text, "previous_response_id")
    inputs = inputs_of(body, ResponseStore(1, 1, 1.0), "")
    return responses_asking.ask_of(body, inputs, config)
