"""The requests of Anthropic's protocol that we take, as pydantic models. Answers are plain dicts.

Unknown fields are refused, as Anthropic does; known ones that can't be honoured yet are in `UNSUPPORTED`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from forebay.api.openai_types import PriorityField
from forebay.api.parts import CacheControl, TextPart
from forebay.api.wire import Items, Wire


class Metadata(Wire):
    """Whom the request is for; changes nothing in the answer."""

    user_id: Annotated[str | None, Field(max_length=1024)] = None


class AnthropicMessage(Wire):
    """One message; content is text or text blocks. `system` may stand among the others."""

    role: Literal["user", "assistant", "system"]
    content: str | Items[TextPart]


class PromptFields(Wire):
    """What makes up the prompt: all of `count_tokens`, and a part of `messages`."""

    model: Annotated[str, Field(max_length=512)]
    messages: Annotated[Items[AnthropicMessage], Field(min_length=1)]
    system: str | Items[TextPart] | None = None
    cache_control: CacheControl | None = None
    context_management: Any = None
    mcp_servers: Any = None
    output_config: Any = None
    output_format: Any = None
    speed: Any = None
    thinking: Any = None
    tool_choice: Any = None
    tools: Any = None
    user_profile_id: Any = None
    workspace_id: Any = None


class CountTokensRequest(PromptFields):
    """POST /v1/messages/count_tokens."""


class MessagesRequest(PromptFields):
    """POST /v1/messages."""

    max_tokens: Annotated[int, Field(ge=1, le=2**31)]
    temperature: Annotated[float | None, Field(ge=0, le=1)] = None
    top_k: Annotated[int | None, Field(ge=0, le=2**31 - 1)] = None
    top_p: Annotated[float | None, Field(ge=0, le=1)] = None
    stop_sequences: Items[str] | None = None
    stream: bool | None = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    priority: PriorityField = None
    container: Any = None
    diagnostics: Any = None
    inference_geo: Any = None


UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "container": (),
    "context_management": ({},),
    "diagnostics": (),
    "inference_geo": (),
    "mcp_servers": ([],),
    "output_config": ({},),
    "output_format": (),
    "speed": ("standard",),
    "thinking": ({"type": "disabled"},),
    "tool_choice": ({"type": "none"},),
    "tools": ([],),
    "user_profile_id": (),
    "workspace_id": (),
}
"""Field → values that ask for nothing (null always does)."""
