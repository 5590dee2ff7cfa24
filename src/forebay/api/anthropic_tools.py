"""The tools and the tool choice of a Messages request, as pydantic models, and what they ask of the answer.

Tools that run on Anthropic's servers, or whose schema is built into Anthropic's models, are refused with a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from forebay.api.anthropic_blocks import CacheMark
from forebay.api.asking import ToolChoice
from forebay.api.wire import Items, Wire, quoted, tag_of
from forebay.core.errors import InvalidRequestError
from forebay.recipe import ToolSpec

ToolName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]


class ClientTool(Wire):
    """A tool of the client's own."""

    name: ToolName
    description: str | None = None
    input_schema: dict[str, Any]
    type: Literal["custom"] | None = None
    strict: bool | None = None
    """Whether calls have to follow the schema."""
    cache_control: CacheMark | None = None
    eager_input_streaming: Annotated[
        bool | None, Field(description="Accepted; inputs are always streamed as they are written.")
    ] = None
    defer_loading: Literal[False] | None = None
    allowed_callers: Items[Literal["direct"]] | None = None
    input_examples: Annotated[list[Any] | None, Field(max_length=0)] = None


def _only_custom(value: object) -> object:
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind != "custom":
        text = "tools of type '{kind}' aren't supported by this server; define a custom tool with an input_schema"
        raise PydanticCustomError("unsupported_tool", text, {"kind": quoted(kind)})
    return value


AnyTool = Annotated[ClientTool, BeforeValidator(_only_custom)]


class AutoChoice(Wire):
    """The model decides."""

    type: Literal["auto"]
    disable_parallel_tool_use: bool | None = None


class AnyChoice(Wire):
    """Some tool has to be called."""

    type: Literal["any"]
    disable_parallel_tool_use: bool | None = None


class NamedChoice(Wire):
    """This tool has to be called."""

    type: Literal["tool"]
    name: ToolName
    disable_parallel_tool_use: bool | None = None


class NoChoice(Wire):
    """No tool may be called."""

    type: Literal["none"]


AnyToolChoice = Annotated[
    Annotated[AutoChoice, Tag("~auto")]
    | Annotated[AnyChoice, Tag("~any")]
    | Annotated[NamedChoice, Tag("~tool")]
    | Annotated[NoChoice, Tag("~none")],
    Discriminator(
        tag_of, custom_error_type="no_choice", custom_error_message="its 'type' must be auto, any, tool or none"
    ),
]


def specs_of(tools: Sequence[ClientTool] | None) -> list[ToolSpec]:
    """The tools as the recipe takes them. Raises InvalidRequestError for a name that is there twice."""
    specs: list[ToolSpec] = []
    names: set[str] = set()
    for index, tool in enumerate(tools or ()):
        if tool.name in names:
            raise InvalidRequestError(f"There is more than one tool named '{tool.name}'.", f"tools.{index}.name")
        names.add(tool.name)
        specs.append(ToolSpec(tool.name, tool.description or "", tool.input_schema))
    return specs


def choice_of(choice: AutoChoice | AnyChoice | NamedChoice | NoChoice | None) -> tuple[ToolChoice, bool]:
    """The choice, and whether an answer may have more than one call."""
    if choice is None:
        return ToolChoice(), True
    if isinstance(choice, NoChoice):
        return ToolChoice("none"), True
    parallel = not choice.disable_parallel_tool_use
    if isinstance(choice, NamedChoice):
        return ToolChoice("named", choice.name), parallel
    return ToolChoice("required" if isinstance(choice, AnyChoice) else "auto"), parallel
