"""A tool's parameters as the TypeScript that OpenAI's harmony library writes.

All of it comes from the client's schema, so all of it counts as the client's text. What is not of the kind that a
schema has in a place (a number for a description) is left out, as the library does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from forebay.recipe.conversation import ToolSpec

_SIMPLE: Final = {"number": "number", "integer": "number", "boolean": "boolean"}


def signature(tool: ToolSpec) -> str:
    """The lines of one tool in its namespace."""
    comment = "".join(f"// {line}\n" for line in tool.description.splitlines())
    parameters = "" if tool.parameters is None else f"_: {typescript(tool.parameters, '')}"
    return f"{comment}type {tool.name} = ({parameters}) => any;\n\n"


def typescript(schema: Any, indent: str) -> str:
    """The type of one schema."""
    if not isinstance(schema, dict):
        return "any"
    variants = schema.get("oneOf")
    if isinstance(variants, list):
        return "".join(f"\n{indent} | {_variant(each, indent)}{_comments(each)}" for each in variants)
    kind = schema.get("type")
    if isinstance(kind, list):
        names = ["number" if each == "integer" else each for each in kind if isinstance(each, str)]
        return " | ".join(names) or "any"
    return _of_kind(schema, kind, indent) if isinstance(kind, str) else "any"


def _of_kind(schema: dict[str, Any], kind: str, indent: str) -> str:
    if kind == "object":
        comment = f"{indent}// {schema['description']}\n" if _text(schema, "description") is not None else ""
        members = "".join(_member(schema, key, value, indent) for key, value in _properties(schema).items())
        return f"{comment}{{\n{members}{indent}}}"
    if kind == "string":
        return " | ".join(f'"{each}"' for each in _choices(schema) if isinstance(each, str)) or "string"
    if kind == "array":
        return f"{typescript(schema['items'], indent)}[]" if "items" in schema else "Array<any>"
    return _SIMPLE.get(kind, "any")


def _member(schema: dict[str, Any], key: str, value: Any, indent: str) -> str:
    """One property, with its comments."""
    required = schema.get("required")
    mark = "" if isinstance(required, list) and key in required else "?"
    value = value if isinstance(value, dict) else {}
    variants = value.get("oneOf")
    lines = "".join(f"{indent}{line}\n" for line in _above(value))
    if isinstance(variants, list):
        return f"{lines}{_choice(value, variants, f'{key}{mark}', indent)}"
    default = "" if "oneOf" in value or "default" not in value else f" // {_default(value)}"
    return f"{lines}{indent}{key}{mark}: {_nullable(value, indent + '    ')},{default}\n"


def _above(value: dict[str, Any]) -> Iterator[str]:
    """The comments above a property."""
    title, description = _text(value, "title"), _text(value, "description")
    if title is not None:
        yield from (f"// {title}", "//")
    if description is not None and "oneOf" not in value:
        yield f"// {description}"
    examples = value.get("examples")
    if isinstance(examples, list) and examples:
        yield "// Examples:"
        yield from (f'// - "{each}"' for each in examples if isinstance(each, str))


def _choice(value: dict[str, Any], variants: list[Any], name: str, indent: str) -> str:
    """A property that may be of several types. A description that the first of them repeats is said there only."""
    said = _text(value, "description")
    first = variants[0] if variants and isinstance(variants[0], dict) else {}
    above = said is not None and said != _text(first, "description")
    lines = f"{indent}// {said}\n" if above else ""
    if "default" in value:
        lines += f"{indent}// {_default(value)}\n"
    lines += f"{indent}{name}:\n"
    for at, each in enumerate(variants):
        hidden = said if not (at == 0 and above) else _text(first, "description")
        lines += f"{indent} | {_variant(each, indent)}{_comments(each, hidden, quotes_enum=False)}\n"
    return f"{lines}{indent},\n"


def _variant(schema: Any, indent: str) -> str:
    return _nullable(schema, indent + "   ")


def _nullable(schema: Any, indent: str) -> str:
    found = typescript(schema, indent)
    null = isinstance(schema, dict) and schema.get("nullable") is True and "null" not in found
    return f"{found} | null" if null else found


def _comments(schema: Any, hidden: str | None = None, *, quotes_enum: bool = True) -> str:
    """The comment behind a variant: its description unless it is `hidden`, and its default."""
    if not isinstance(schema, dict):
        return ""
    description = _text(schema, "description")
    comments = [description] if description is not None and description != hidden else []
    if "default" in schema:
        comments.append(_default(schema, quotes_enum=quotes_enum))
    return f" // {' '.join(comments)}" if comments else ""


def _default(schema: dict[str, Any], *, quotes_enum: bool = False) -> str:
    """A default; a string's quotes are left out where it is one of an enum's."""
    value = schema["default"]
    if isinstance(value, str):
        bare = bool(_choices(schema))
        return f"default: {json.dumps(value, ensure_ascii=False) if bare and quotes_enum else _quoted(value, bare)}"
    return f"default: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"


def _quoted(value: str, bare: bool) -> str:
    return value if bare else f'"{value}"'


def _choices(schema: dict[str, Any]) -> list[Any]:
    choices = schema.get("enum")
    return choices if isinstance(choices, list) else []


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _text(schema: dict[str, Any], key: str) -> str | None:
    found = schema.get(key)
    return found if isinstance(found, str) else None
