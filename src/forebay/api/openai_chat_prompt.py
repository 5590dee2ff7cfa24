"""A chat request's messages and wishes → an `Ask`. What a role may have is checked here; order is the recipe's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from forebay.api.asking import Ask, Path
from forebay.api.openai_chat_types import ChatMessage, ChatRequest, PromptFields
from forebay.api.openai_tools import choice_of, format_of, specs_of, strict_of
from forebay.api.openai_types import reject_unsupported
from forebay.api.parts import texts_of
from forebay.core.errors import InvalidRequestError
from forebay.recipe import Conversation, Effort, Message, ToolCall


def messages_of(messages: Sequence[ChatMessage]) -> list[Message]:
    """The messages without OpenAI's shape. Raises InvalidRequestError for fields that a role doesn't have."""
    return [_message(message, f"messages.{index}") for index, message in enumerate(messages)]


def _message(message: ChatMessage, place: str) -> Message:
    reject_unsupported(message, prefix=f"{place}.")
    _check_fields(message, place)
    return Message(
        # `developer` is today's word for `system`.
        role="system" if message.role == "developer" else message.role,
        text=texts_of(message.content or ""),
        reasoning=_reasoning(message, place),
        calls=[ToolCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()],
        call_id=message.tool_call_id or "",
        name=message.name or "",
    )


def _check_fields(message: ChatMessage, place: str) -> None:
    assistant = message.role == "assistant"
    only_assistants = {
        "tool_calls": message.tool_calls,
        "reasoning_content": message.reasoning_content,
        "reasoning": message.reasoning,
    }
    for name, value in only_assistants.items():
        if value and not assistant:
            raise InvalidRequestError(f"Only an assistant message can have '{name}'.", f"{place}.{name}")
    if (message.role == "tool") != bool(message.tool_call_id):
        text = "A tool message needs the id of the call that it answers, and no other message has one."
        raise InvalidRequestError(text, f"{place}.tool_call_id")
    if message.content is None and not (assistant and any(only_assistants.values())):
        raise InvalidRequestError(f"Missing required parameter: '{place}.content'.", f"{place}.content")


def _reasoning(message: ChatMessage, place: str) -> str:
    one, other = message.reasoning_content, message.reasoning
    if one and other and one != other:
        text = "'reasoning' and 'reasoning_content' are names of one thing, but they differ."
        raise InvalidRequestError(text, f"{place}.reasoning")
    return one or other or ""


def conversation_of(messages: Sequence[ChatMessage], fields: PromptFields, effort: str | None = None) -> Conversation:
    """The whole conversation; `effort` is the request's `reasoning_effort`. Raises InvalidRequestError."""
    effort, thinking = _wish(fields, effort)
    return Conversation(
        messages=messages_of(messages),
        tools=specs_of(fields.tools),
        thinking=False if effort == "none" else thinking,
        effort=None if effort == "none" else cast("Effort | None", effort),
    )


def _wish(fields: PromptFields, effort: str | None) -> tuple[str | None, bool | None]:
    """How much to reason, and whether at all."""
    told = fields.chat_template_kwargs
    if told is None:
        return effort, None
    switches = {switch for switch in (told.enable_thinking, told.thinking) if switch is not None}
    efforts = {wish for wish in (effort, told.reasoning_effort) if wish is not None}
    reasons = switches | {wish != "none" for wish in efforts}
    if len(reasons) > 1 or len(efforts) > 1:
        text = "The fields that say whether and how much to reason contradict each other."
        raise InvalidRequestError(text, "chat_template_kwargs")
    return next(iter(efforts), None), next(iter(switches), None)


def continues(fields: PromptFields) -> bool:
    """Whether the answer goes on with the last message. Raises InvalidRequestError."""
    continued = bool(fields.continue_final_message)
    if fields.add_generation_prompt is False and not continued:
        text = "'add_generation_prompt' may be false only when 'continue_final_message' is true."
        raise InvalidRequestError(text, "add_generation_prompt")
    return continued


def locate(path: Path) -> Path:
    """Where chat completions have what the recipe names."""
    return ("chat_template_kwargs", "enable_thinking") if path == ("thinking",) else path


def ask_of(body: ChatRequest) -> Ask:
    """All that a request asks of its prompt and its answer. Raises InvalidRequestError."""
    wanted, param = format_of(body.response_format, body.structured_outputs)
    return Ask(
        conversation=conversation_of(body.messages, body, body.reasoning_effort),
        choice=choice_of(body.tool_choice),
        parallel=body.parallel_tool_calls is not False,
        strict=strict_of(body.tools),
        format=wanted,
        continue_final=continues(body),
        strict_markers=bool(body.strict_markers),
        format_param=param,
        locate=locate,
    )
