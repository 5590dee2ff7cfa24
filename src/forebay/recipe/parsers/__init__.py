"""Answers as they stream: token ids to reasoning, text and tool calls. It knows no protocol and no model."""

from forebay.recipe.parsers.answer import AnswerParser
from forebay.recipe.parsers.events import (
    AnswerEnd,
    Event,
    Problem,
    ProblemKind,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    merge,
)
from forebay.recipe.parsers.output import Tool
from forebay.recipe.parsers.reasoning import ReasoningMarkers
from forebay.recipe.parsers.spec import ParserSpec, ToolFormat, new_call_id

__all__ = [
    "AnswerEnd",
    "AnswerParser",
    "Event",
    "ParserSpec",
    "Problem",
    "ProblemKind",
    "ReasoningDelta",
    "ReasoningMarkers",
    "TextDelta",
    "Tool",
    "ToolCallArguments",
    "ToolCallEnd",
    "ToolCallStart",
    "ToolFormat",
    "merge",
    "new_call_id",
]
