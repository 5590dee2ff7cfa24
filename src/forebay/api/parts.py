"""The parts that a message's content may be made of, in both protocols: text only."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from forebay.api.wire import Wire, quoted


def _only_text(value: object) -> object:
    """A sentence for the kinds of content that exist but are not taken yet."""
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind != "text":
        message = "content of type '{kind}' isn't supported by this server yet; send parts of type 'text'"
        raise PydanticCustomError("unsupported_content", message, {"kind": quoted(kind)})
    return value


class CacheControl(Wire):
    """A hint where a cached prefix ends. Honoured by the automatic prefix cache, which keeps every page anyway."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class _TextPart(Wire):
    """A piece of text."""

    type: Literal["text"]
    text: str
    cache_control: CacheControl | None = None
    citations: Annotated[list[Any] | None, Field(max_length=0)] = None


TextPart = Annotated[_TextPart, BeforeValidator(_only_text)]


def texts_of(content: str | list[_TextPart]) -> str | list[str]:
    """The text of a message's content, part by part where it came in parts."""
    return content if isinstance(content, str) else [part.text for part in content]
