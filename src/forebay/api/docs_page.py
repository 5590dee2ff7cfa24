"""GET /docs: one page of HTML made from the OpenAPI description. No script, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
summary{cursor:pointer;padding:.35rem 0}code{font:14px ui-monospace,monospace}
table{border-collapse:collapse;margin:.5rem 0}
td,th{border-bottom:1px solid #d0d7de;padding:.2rem .7rem;text-align:left;vertical-align:top}.m{display:inline-block;
min-width:3.5rem;font-weight:700}
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}td,th{border-color:#30363d}}
"""


def _schema(spec: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any]:
    """The schema of an operation's JSON body; empty where it has none."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    return _resolved(spec, content.get("schema", {}))


def _resolved(spec: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = spec.get("components", {}).get("schemas", {}).get(name, schema)
    return found


def _name(reference: str) -> str:
    """What a described object is called, without the module that tells namesakes apart."""
    return reference.rpartition("/")[2].rpartition("__")[2].lstrip("_")


def _references(schema: Any) -> Iterator[str]:
    """The objects that a schema speaks of, in order."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield str(schema["$ref"])
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


def _objects(spec: dict[str, Any], schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The objects within a schema, and those within them, by reference."""
    found: dict[str, dict[str, Any]] = {}
    waiting = list(_references(schema))
    while waiting:
        reference = waiting.pop(0)
        if reference not in found:
            found[reference] = _resolved(spec, {"$ref": reference})
            waiting += _references(found[reference])
    return found


def _type(schema: dict[str, Any]) -> str:
    """A short name of a field's type."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(_type(s) for s in schema[several] if s.get("type") != "null")
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    required = set(schema.get("required", []))
    for name, field in schema.get("properties", {}).items():
        need = "required" if name in required else ""
        cells = (f"<code>{escape(name)}</code>", escape(_type(field)), need, escape(field.get("description", "")))
        yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _table(schema: dict[str, Any]) -> str:
    """An object's fields; nothing for one that has none."""
    rows = "".join(_fields(schema))
    head = "<tr><th>Field</th><th>Type</th><th></th><th></th></tr>"
    return f"<table>{head}{rows}</table>" if rows else ""


def _operation(spec: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> str:
    schema = _schema(spec, operation)
    body = _table(schema)
    for reference, inner in _objects(spec, schema).items():
        body += f"<h4>{escape(_name(reference))}</h4>{escape(inner.get('description', ''))}{_table(inner)}"
    text = escape(operation.get("description", ""))
    title = f'<span class="m">{method.upper()}</span> <code>{escape(path)}</code>'
    return f"<details><summary>{title} &mdash; {text}</summary>{body}</details>"


def docs_html(spec: dict[str, Any]) -> str:
    """The page for an OpenAPI description."""
    info = spec["info"]
    operations = [
        _operation(spec, method, path, operation)
        for path, methods in spec["paths"].items()
        for method, operation in methods.items()
    ]
    title = escape(f"{info['title']} {info['version']}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body><h1>{title}</h1>'
        f"<p>{escape(info.get('description', ''))} The machine-readable description is "
        f'<a href="/openapi.json">/openapi.json</a>.</p>{"".join(operations)}</body></html>'
    )
