"""The Jinja environment of chat templates: sandboxed, bounded, and with template text marked as such when it is
compiled.

It offers what the Hugging Face library offers to templates (loop controls, `generation` blocks, `raise_exception`,
`strftime_now`, its own `tojson`), and of Jinja's filters those that chat templates use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Any, Final

from jinja2 import TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, LoopControlExtension
from jinja2.filters import do_indent
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from forebay.recipe.jinja.formatting import braces, percent
from forebay.recipe.jinja.json_text import marked_json, plain_json
from forebay.recipe.jinja.marked import TEMPLATE, Marked, concat, concat_with, marks_of

MAX_LOOPS: Final = 100_000
"""How many rounds all `range` loops of one rendering may take together."""
MAX_NUMBER: Final = 1 << 20
"""The largest number that a template may pass to a function."""
_MAX_INDENT: Final = 64

_KEPT_FILTERS: Final = (
    *("abs", "count", "d", "default", "dictsort", "first", "float", "groupby", "int", "items"),
    *("last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse", "round"),
    *("select", "selectattr", "sort", "string", "sum", "trim", "unique", "upper", "wordcount"),
)


class RaisedByTemplateError(TemplateError):
    """The template refused the conversation by `raise_exception`."""


class Budget:
    """What one rendering may still spend."""

    def __init__(self) -> None:
        self._loops = MAX_LOOPS

    def range(self, *bounds: int) -> range:
        """Jinja's `range`, charged to the budget. Raises OverflowError when it is spent."""
        rounds = range(*bounds)
        self._loops -= len(rounds)
        if self._loops < 0:
            raise OverflowError(f"the template's loops take more than {MAX_LOOPS} rounds")
        return rounds


class _Marking(CodeGenerator):
    """Compiles a template so that the strings it spells are marked as the template's, and `~` keeps marks."""

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        return f"environment.words({''.join(map(str, group))!r})"

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:  # noqa: N802 (jinja's naming)
        if isinstance(node.value, str):
            self.write(f"environment.words({node.value!r})")
        else:
            super().visit_Const(node, frame)

    def visit_TemplateData(self, node: nodes.TemplateData, frame: Frame) -> None:  # noqa: N802
        self.write(f"environment.words({node.data!r})")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.joined((")
        for item in node.nodes:
            self.visit(item, frame)
            self.write(", ")
        self.write("))")


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}`, which marks the assistant's part for training: here only its body."""

    tags: Final[set[str]] = {"generation"}  # type: ignore[misc]

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The template language with ordinary strings: the reference that renderings are compared with at load."""

    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, LoopControlExtension])
        self.filters = {name: self.filters[name] for name in (*_KEPT_FILTERS, "capitalize", "join", "safe", "title")}
        self.filters |= {"format": _format, "indent": _plain_indent, "tojson": plain_json}
        self.globals = {name: self.globals[name] for name in ("namespace", "dict", "joiner", "cycler")}
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda pattern: now().strftime(pattern)

    def call(self, context: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """A call within a template; huge numbers are refused, since `'x'.center(10**9)` would take all memory."""
        if any(isinstance(value, int) and value > MAX_NUMBER for value in (*args, *kwargs.values())):
            raise OverflowError(f"the template calls with a number above {MAX_NUMBER}")
        return super().call(context, function, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic, refused where it could take all memory or time; `%` on a string keeps marks."""
        if operator == "%" and isinstance(left, str):
            return percent(left, right)
        if operator == "**" or (operator == "*" and not _small_product(left, right)):
            raise OverflowError(f"the template's {operator} is too large")
        if operator == "+" and isinstance(left, list | tuple) and len(left) + len(right) > MAX_LOOPS:
            raise OverflowError(f"the template makes a list of more than {MAX_LOOPS} items")
        return super().call_binop(context, operator, left, right)


class ChatEnvironment(BoundedEnvironment):
    """Renders to marked strings. The same template on the same input gives the same characters as the reference."""

    code_generator_class = _Marking
    concat = staticmethod(concat)

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(now)
        self.filters |= _MARKING_FILTERS
        self.globals["strftime_now"] = lambda pattern: _strftime(now(), pattern)

    @staticmethod
    def words(text: str) -> Marked:
        """A string that the template spells itself."""
        return Marked.of(text, TEMPLATE)

    @staticmethod
    def joined(values: Iterable[Any]) -> Marked:
        """Jinja's `~`."""
        return concat(map(str, values))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format` that keeps marks."""
        if getattr(value, "__name__", "") not in ("format", "format_map"):
            return None
        pattern = getattr(value, "__self__", None)
        return partial(braces, pattern) if isinstance(pattern, str) else None


def _small_product(left: Any, right: Any) -> bool:
    size = 1
    for factor in (left, right):
        size *= len(factor) if isinstance(factor, str | list | tuple) else max(abs(factor), 1)
    return size <= 1 << 40 if isinstance(left, int | float) and isinstance(right, int | float) else size <= MAX_LOOPS


def _raise_exception(message: str) -> None:
    raise RaisedByTemplateError(str.__str__(message))


def _strftime(now: datetime, pattern: str) -> str:
    text = now.strftime(pattern)
    return Marked.of(text, TEMPLATE) if set(marks_of(pattern)) <= {TEMPLATE} else text


def _join(value: Iterable[Any], d: str = "", attribute: str | None = None) -> Marked:
    if attribute is not None:
        value = [item.get(attribute, "") if isinstance(item, dict) else getattr(item, attribute) for item in value]
    return concat_with(d, [item if isinstance(item, str) else str(item) for item in value])


def _indent(s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> Marked:
    space = width if isinstance(width, str) else Marked.of(" " * min(width, _MAX_INDENT), TEMPLATE)
    lines = Marked(s).splitlines() or [Marked("")]
    shown: list[str] = [
        concat((space, line)) if (first or at > 0) and (blank or line) else line for at, line in enumerate(lines)
    ]
    return concat_with(Marked.of("\n", TEMPLATE), shown)


def _plain_indent(s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    return do_indent(s, width if isinstance(width, str) else min(width, _MAX_INDENT), first, blank)


def _format(pattern: str, *args: Any, **kwargs: Any) -> str:
    return percent(pattern, kwargs or args)


_MARKING_FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "tojson": marked_json,
    "join": _join,
    "indent": _indent,
    "capitalize": lambda s: Marked(s).capitalize(),
    "title": lambda s: Marked(s).title(),
    "safe": lambda s: s,
}
