"""POST /tokenize and /detokenize (as in vLLM): the very ids that a prompt would have, and back.

Text is encoded plain: a control token's spelling gives ordinary tokens. Only a template's structure is put in by id.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from forebay.api.asking import Ask
from forebay.api.auth import Identity
from forebay.api.logprobs import token_name
from forebay.api.openai_chat_prompt import continues, conversation_of, locate
from forebay.api.openai_chat_types import ChatMessage, PromptFields
from forebay.api.preparing import INLINE_CHARS
from forebay.api.replies import ERRORS, json_response
from forebay.api.sampling import checked_ids
from forebay.api.service import Service, identity_of
from forebay.api.wire import Items, TokenId, Wire
from forebay.core.errors import InvalidRequestError


class TokenizeRequest(PromptFields):
    """POST /tokenize: exactly one of `prompt` and `messages`."""

    model: Annotated[str | None, Field(max_length=512)] = None
    prompt: str | None = None
    messages: Annotated[Items[ChatMessage] | None, Field(min_length=1)] = None
    add_special_tokens: Annotated[bool, Field(description="With `prompt`: put the model's beginning token first.")] = (
        True
    )
    return_token_strs: Annotated[bool | None, Field(description="Also give each token's text.")] = None


class DetokenizeRequest(Wire):
    """POST /detokenize."""

    model: Annotated[str | None, Field(max_length=512)] = None
    tokens: Items[TokenId]


async def _ids(body: TokenizeRequest, service: Service, identity: Identity) -> list[int]:
    if (body.prompt is None) == (body.messages is None):
        raise InvalidRequestError("Send exactly one of 'prompt' and 'messages'.", "prompt")
    if body.prompt is not None:
        return await service.encode_text(body.prompt, special=body.add_special_tokens)
    messages = body.messages or []
    service.check_messages(len(messages))
    ask = Ask(conversation_of(messages, body), continue_final=continues(body), locate=locate)
    return (await service.prepare(ask, identity)).ids


def tokenize_routes(service: Service) -> APIRouter:
    """The routes for ids and text."""
    routes = APIRouter(tags=["Tokens"])

    @routes.post("/tokenize", responses=ERRORS, response_model=None)
    async def tokenize(body: TokenizeRequest, request: Request) -> Response:
        """Token ids of a text or conversation, how many they are, and the context's size."""
        service.check_model(body.model)
        ids = await _ids(body, service, identity_of(request))
        answer: dict[str, Any] = {
            "count": len(ids),
            "max_model_len": service.router.model.max_model_len,
            "tokens": ids,
        }
        if body.return_token_strs:
            answer["token_strs"] = [token_name(service.recipe, i) for i in ids]
        return json_response(answer)

    @routes.post("/detokenize", responses=ERRORS, response_model=None)
    async def detokenize(body: DetokenizeRequest) -> Response:
        """The text of token ids; control tokens give none."""
        service.check_model(body.model)
        checked_ids(body.tokens, service.recipe.vocab_size, "tokens")
        if len(body.tokens) <= INLINE_CHARS:
            return json_response({"prompt": service.recipe.decode(body.tokens)})
        return json_response({"prompt": await asyncio.to_thread(service.recipe.decode, body.tokens)})

    return routes
