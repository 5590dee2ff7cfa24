"""What a request asks of an answer, free of any protocol, and what that becomes before it runs.

`preparing` makes the one of the other. Nothing here is about sampling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from forebay.api.answer_store import HistoryKey
from forebay.api.keeping import AnswerRecord, KeptAnswers
from forebay.core.grammar import GrammarSpec
from forebay.recipe import Conversation
from forebay.recipe.parsers import Tool


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether the model may or has to call tools. With `none` the tools are not even shown to it."""

    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str | None = None
    """Of `named`: the only tool that may be called."""
    allowed: frozenset[str] | None = None
    """The tools that may be called, of all that are shown; None allows all."""


Path = tuple[str | int, ...]
"""Keys and indexes that lead to a place in a request."""


def path_of(param: str) -> Path:
    """A dotted path as keys and indexes."""
    return tuple(int(step) if step.isdecimal() else step for step in param.split("."))


def param_of(path: Path) -> str:
    """Keys and indexes as a dotted path."""
    return ".".join(map(str, path))


@dataclass(frozen=True, slots=True)
class Ask:
    """A conversation and what its answer shall be. Names fields in the request's own terms, for errors."""

    conversation: Conversation
    choice: ToolChoice = ToolChoice()
    parallel: bool = True
    """Whether an answer may have more than one call."""
    strict: frozenset[str] = frozenset()
    """Names of the tools whose arguments have to follow their schemas."""
    format: GrammarSpec | None = None
    """What the answer's text has to look like."""
    continue_final: bool = False
    """Go on with the last message, an assistant's, instead of answering it."""
    strict_markers: bool = False
    """Refuse the conversation when a text in it holds a marker."""
    reasoning_budget: int | None = None
    """Most tokens of reasoning; then it is ended for the model."""
    format_param: str = "response_format"
    choice_param: str = "tool_choice"
    locate: Callable[[Path], Path] = lambda path: path
    """Leads a path in the terms of Chat Completions (`"messages", 3, "content"` counts the conversation's messages) to
    the same place in the request."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that can run."""

    ids: list[int]
    """The prompt."""
    grammar: GrammarSpec | None
    tools: list[Tool] | None
    """The tools whose calls are looked for in the answer; None looks for none."""
    continued: bool
    """Whether the answer goes on behind text of the assistant."""
    conversation: Conversation
    """As it was encoded."""
    answers: KeptAnswers
    history: HistoryKey
    """Under which `answers` keeps an answer."""

    def record(self) -> AnswerRecord | None:
        """A new record of one choice; None where the choice is not a whole message."""
        return None if self.continued else AnswerRecord(self.answers, self.history)
