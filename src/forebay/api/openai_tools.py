"""What a request of OpenAI's protocol asks of the answer: tools, tool choice, response format; as pydantic models.

vLLM's `structured_outputs` is here too. Kinds that exist but can't be served are refused with a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from forebay.api.asking import ToolChoice
from forebay.api.grammars import choice_grammar, schema_grammar
from forebay.api.wire import Items, Wire, quoted
from forebay.core.errors import InvalidRequestError
from forebay.core.grammar import GrammarSpec
from forebay.recipe import ToolSpec

MAX_TOOLS = 1024
Name = Annotated[str, Field(min_length=1, max_length=256)]


class FunctionDefinition(Wire):
    """A function that the model may call."""

    name: Name
    description: str | None = None
    parameters: Annotated[dict[str, Any] | None, Field(description="JSON schema of the arguments.")] = None
    strict: Annotated[bool | None, Field(description="Hold the arguments of calls to the schema.")] = None


def _only_functions(value: object) -> object:
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind != "function":
        text = "tools of type '{kind}' aren't supported by this server; define a function"
        raise PydanticCustomError("unsupported_tool", text, {"kind": quoted(kind)})
    return value


class _ChatTool(Wire):
    """One tool."""

    type: Literal["function"]
    function: FunctionDefinition


ChatTool = Annotated[_ChatTool, BeforeValidator(_only_functions)]
Tools = Annotated[Items[ChatTool], Field(max_length=MAX_TOOLS)]


class FunctionName(Wire):
    """A function of `tools`."""

    name: Name


class _NamedTool(Wire):
    """A tool by its name."""

    type: Literal["function"]
    function: FunctionName


NamedTool = Annotated[_NamedTool, BeforeValidator(_only_functions)]


class AllowedTools(Wire):
    """Some of the tools that are offered."""

    mode: Literal["auto", "required"]
    tools: Annotated[Items[NamedTool], Field(min_length=1, max_length=MAX_TOOLS)]


class AllowedToolsChoice(Wire):
    """Only these tools may be called; the model is shown all, so that its cached prompt stays the same."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


def _choice_tag(value: object) -> str:
    # The tags' mark keeps them apart from fields in the places that errors name.
    if isinstance(value, str | _NamedTool | AllowedToolsChoice):
        return "~word" if isinstance(value, str) else f"~{value.type}"
    kind = value.get("type") if isinstance(value, dict) else None
    return "~allowed_tools" if kind == "allowed_tools" else "~function"


AnyToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("~word")]
    | Annotated[NamedTool, Tag("~function")]
    | Annotated[AllowedToolsChoice, Tag("~allowed_tools")],
    Discriminator(_choice_tag),
]


class JsonSchemaFormat(Wire):
    """A schema of the answer."""

    name: Annotated[str, Field(max_length=256)]
    description: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: Annotated[bool | None, Field(description="Accepted; answers always follow the schema.")] = None


class ResponseFormat(Wire):
    """What the answer's text is."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class StructuredOutputs(Wire):
    """vLLM's extension: exactly one of its fields."""

    json_: Annotated[dict[str, Any] | str | None, Field(alias="json", description="A JSON schema, or its text.")] = None
    json_object: Literal[True] | None = None
    regex: Annotated[str | None, Field(description="The whole answer matches it.")] = None
    choice: Annotated[Items[str] | None, Field(min_length=1, max_length=1024)] = None
    grammar: Annotated[str | None, Field(description="In Lark, as llguidance reads it.")] = None


def specs_of(tools: Sequence[_ChatTool] | None) -> list[ToolSpec]:
    """The tools as the recipe takes them. Raises InvalidRequestError for a name that is there twice."""
    specs: dict[str, ToolSpec] = {}
    for index, tool in enumerate(tools or ()):
        function = tool.function
        if function.name in specs:
            raise InvalidRequestError(
                f"There is more than one tool named '{function.name}'.", f"tools.{index}.function.name"
            )
        specs[function.name] = ToolSpec(function.name, function.description or "", function.parameters)
    return list(specs.values())


def strict_of(tools: Sequence[_ChatTool] | None) -> frozenset[str]:
    """The names of the tools whose calls have to follow their schemas."""
    return frozenset(tool.function.name for tool in tools or () if tool.function.strict)


def choice_of(choice: str | _NamedTool | AllowedToolsChoice | None) -> ToolChoice:
    """The choice as `asking` takes it."""
    if isinstance(choice, _NamedTool):
        return ToolChoice("named", choice.function.name)
    if isinstance(choice, AllowedToolsChoice):
        allowed = choice.allowed_tools
        return ToolChoice(allowed.mode, allowed=frozenset(tool.function.name for tool in allowed.tools))
    words = {"none": ToolChoice("none"), "required": ToolChoice("required")}
    return words.get(choice or "auto", ToolChoice())


def format_of(response: ResponseFormat | None, structured: StructuredOutputs | None) -> tuple[GrammarSpec | None, str]:
    """The grammar of the answer's text, and the field that asks for it. Raises InvalidRequestError."""
    by_response = None if response is None else _of_response(response)
    if structured is None:
        return by_response, "response_format"
    if by_response is not None:
        text = "'response_format' and 'structured_outputs' can't both say what the answer is."
        raise InvalidRequestError(text, "structured_outputs")
    return _of_structured(structured), "structured_outputs"


def _of_response(response: ResponseFormat) -> GrammarSpec | None:
    wanted = response.json_schema
    if (wanted is None) == (response.type == "json_schema"):
        text = "'json_schema' is needed where, and only where, the type is 'json_schema'."
        raise InvalidRequestError(text, "response_format.json_schema")
    if response.type == "text":
        return None
    if wanted is None or wanted.schema_ is None:
        return GrammarSpec("json_object")
    return schema_grammar(wanted.schema_, "response_format.json_schema.schema")


def _of_structured(wanted: StructuredOutputs) -> GrammarSpec:
    given = [name for name in type(wanted).model_fields if getattr(wanted, name) is not None]
    if len(given) != 1:
        text = "'structured_outputs' needs exactly one of json, json_object, regex, choice and grammar."
        raise InvalidRequestError(text, "structured_outputs")
    if wanted.json_ is not None:
        return schema_grammar(wanted.json_, "structured_outputs.json")
    if wanted.regex is not None:
        return GrammarSpec("regex", wanted.regex)
    if wanted.choice is not None:
        return choice_grammar(wanted.choice)
    return GrammarSpec("json_object") if wanted.grammar is None else GrammarSpec("lark", wanted.grammar)
