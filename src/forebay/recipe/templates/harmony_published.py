"""A tool's parameters as the TypeScript that gpt-oss's published Jinja template writes, with its odd line breaks.

All of it comes from the client's schema, so all of it counts as the client's text. It differs from the harmony
library's in nested objects, choices and defaults. Where the template fails (a description that is no text), this leaves
it out.
"""

from __future__ import annotations

from typing import Any, Final

from forebay.recipe.conversation import ToolSpec
from forebay.recipe.templates.json_text import written

_ITEMS: Final = {"string": "string[]", "number": "number[]", "integer": "number[]", "boolean": "boolean[]"}
_SIMPLE: Final = {"number": "number", "integer": "number", "boolean": "boolean"}
_LONGEST_ITEM: Final = 50
_BREAK: Final = "\n" + 16 * " "
"""Between a nested property's name and its type."""


def signature(tool: ToolSpec) -> str:
    """The lines of one tool in its namespace."""
    parameters = tool.parameters or {}
    properties = _properties(parameters)
    lines = "".join(_member(key, _schema(value), _required(parameters)) for key, value in properties.items())
    shape = f"(_: {{\n{lines}}})" if properties else "()"
    return f"// {tool.description}\ntype {tool.name} = {shape} => any;\n\n"


def _member(key: str, schema: dict[str, Any], required: list[Any]) -> str:
    description = schema.get("description")
    comment = f"// {description}\n" if isinstance(description, str) and description else ""
    return f"{comment}{key}{_mark(key, required)}: {typescript(schema)}{_default(schema)},\n"


def _default(schema: dict[str, Any]) -> str:
    if "default" not in schema:
        return ""
    value = schema["default"]
    said = value if isinstance(value, str) and (schema.get("enum") or schema.get("oneOf")) else written(value)
    return f"// default: {said}" if schema.get("oneOf") and not schema.get("enum") else f", // default: {said}"


def typescript(schema: dict[str, Any]) -> str:
    """The type of one schema."""
    kind = schema.get("type")
    null = " | null" if schema.get("nullable") else ""
    if kind == "array":
        return _array(schema) + null
    if isinstance(kind, list) and kind:
        return " | ".join(str(each) for each in kind)
    if schema.get("oneOf"):
        return _choice(schema["oneOf"])
    if kind == "string":
        choices = schema.get("enum")
        return f'"{_choices(choices)}"' if isinstance(choices, list) and choices else f"string{null}"
    if kind == "object":
        return _object(schema)
    return _SIMPLE.get(kind, "any") if isinstance(kind, str) else "any"


def _array(schema: dict[str, Any]) -> str:
    items = _schema(schema.get("items"))
    if not items:
        return "any[]"
    kind = items.get("type")
    if isinstance(kind, str) and kind in _ITEMS:
        return _ITEMS[kind]
    inner = typescript(items)
    return "any[]" if inner == "object | object" or len(inner) > _LONGEST_ITEM else f"{inner}[]"


def _choice(variants: Any) -> str:
    schemas = [_schema(each) for each in variants] if isinstance(variants, list) else []
    return " | \n".join(_variant(each) for each in schemas)


def _variant(schema: dict[str, Any]) -> str:
    description = schema.get("description")
    comment = f"// {description}" if isinstance(description, str) and description else ""
    default = f"{20 * ' '}// default: {written(schema['default'])}" if "default" in schema else ""
    return f"{typescript(schema)}{comment}{default}"


def _object(schema: dict[str, Any]) -> str:
    properties, required = _properties(schema), _required(schema)
    if not properties:
        return "object"
    inner = (f"{key}{_mark(key, required)}: {_BREAK}{typescript(_schema(each))}" for key, each in properties.items())
    return f"{{\n{', '.join(inner)}}}"


def _choices(choices: list[Any]) -> str:
    return '" | "'.join(str(each) for each in choices)


def _mark(key: str, required: list[Any]) -> str:
    return "" if key in required else "?"


def _schema(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    return _schema(schema.get("properties"))


def _required(schema: dict[str, Any]) -> list[Any]:
    found = schema.get("required")
    return found if isinstance(found, list) else []
