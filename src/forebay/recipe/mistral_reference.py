"""What Mistral's library, `mistral-common` (the extra `mistral`), makes of a conversation: the reference of the typed
template for models that come without a Jinja one.

Import it only where the extra is known to be there. It never encodes what is served, because the library says nothing
of who wrote which token, and reads arguments and results as JSON and writes them anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mistral_common.exceptions import MistralCommonException
from mistral_common.protocol.instruct.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.tool_calls import Function, FunctionCall, Tool, ToolCall
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

from forebay.core.errors import UnsupportedModelError
from forebay.recipe.call_ids import nine_characters
from forebay.recipe.conversation import Conversation, Message


class MistralLibrary:
    """One tokenizer file, read by the library. `ids` is a `vocabulary.Reference`."""

    def __init__(self, path: Path) -> None:
        """Raises UnsupportedModelError when the library can't read the file."""
        try:
            self._library: MistralTokenizer[Any, Any, Any, Any, Any] = MistralTokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise UnsupportedModelError(f"The model's {path.name} can't be read: {error}") from error
        tokenizer = self._library.instruct_tokenizer.tokenizer
        self.bos_id = tokenizer.bos_id
        self.eos_id = tokenizer.eos_id
        self.size = tokenizer.n_words
        self.control = [tokenizer.id_to_piece(token) for token in range(tokenizer.num_special_tokens)]
        """The spellings of the first ids."""

    def ids(self, conversation: Conversation, continue_final: bool) -> Sequence[int] | None:
        """The ids, or None for a conversation that the library refuses."""
        try:
            request = _request(conversation, continue_final=continue_final)
            return list(self._library.encode_chat_completion(request).tokens)
        except (MistralCommonException, ValueError, AssertionError, NotImplementedError):
            return None


def _request(conversation: Conversation, *, continue_final: bool) -> ChatCompletionRequest[Any]:
    last = len(conversation.messages) - 1
    messages = [
        _message(message, is_open=continue_final and at == last) for at, message in enumerate(conversation.messages)
    ]
    tools = [
        Tool(function=Function(name=tool.name, description=tool.description, parameters=tool.parameters or {}))
        for tool in conversation.tools
    ]
    return ChatCompletionRequest[Any](messages=messages, tools=tools or None)


def _message(message: Message, *, is_open: bool) -> SystemMessage | UserMessage | AssistantMessage | ToolMessage:
    text = message.content
    if message.role == "system":
        return SystemMessage(content=text)
    if message.role == "user":
        return UserMessage(content=text)
    if message.role == "tool":
        return ToolMessage(content=text, tool_call_id=nine_characters(message.call_id), name=message.name or None)
    calls = [
        ToolCall(id=nine_characters(call.id), function=FunctionCall(name=call.name, arguments=call.arguments))
        for call in message.calls
    ]
    return AssistantMessage(content=text or None, tool_calls=calls or None, prefix=is_open)
