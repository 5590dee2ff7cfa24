"""DeepSeek's own encoder for V4 and V4.1, `deepseek-recipe`, and the proof that a typed template does what it does.

The package is the only published form of these models' format. It is not what encodes requests: it turns some typed
markers into control tokens, and loses numbers (see `deepseek_v4.py`). At load both lay out the same conversations, and
every control token and every character between two of them has to be the same. That takes some milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

from forebay.core.errors import UnsupportedModelError
from forebay.core.grammar import GrammarSpec
from forebay.recipe.conversation import Conversation, Effort, Message, ToolCall, ToolSpec
from forebay.recipe.pieces import Control, Kept, Piece
from forebay.recipe.templates.deepseek_v4 import DeepSeekV4, DeepSeekV41

VERSION: Final = "0.2.0"
Layout = tuple[int | str, ...]
"""Control ids, and the plain text between them, none of it empty."""


def prove(template: DeepSeekV4, control: Mapping[str, int]) -> None:
    """Raise UnsupportedModelError when the package is missing, of another version, or lays out something else.

    `control`: the vocabulary's control tokens by spelling.
    """
    official = Official(template)
    for conversation, continue_final in probes(later_systems=isinstance(template, DeepSeekV41)):
        expected = official.layout(conversation, control, continue_final=continue_final)
        if layout(template.pieces(conversation, continue_final=continue_final)) != expected:
            raise UnsupportedModelError(
                f"Forebay's template {template.name} and deepseek-recipe {VERSION} disagree about a conversation."
            )


def layout(pieces: Iterator[Piece]) -> Layout:
    """What the pieces say. Raises ValueError for kept ids, which say nothing in characters."""
    found: list[int | str] = []
    for piece in pieces:
        if isinstance(piece, Kept):
            raise ValueError("Kept ids have no layout.")
        if isinstance(piece, Control):
            found.append(piece.id)
        elif piece.text and found and isinstance(found[-1], str):
            found[-1] += piece.text
        elif piece.text:
            found.append(piece.text)
    return tuple(found)


class Official:
    """The package's encoder for one template's model."""

    def __init__(self, template: DeepSeekV4) -> None:
        """Raises UnsupportedModelError when the package is missing or of another version."""
        self._package = _package()
        is_v41 = isinstance(template, DeepSeekV41)
        self.encoding = self._package.DeepseekV41Encoding() if is_v41 else self._package.DeepseekV4Encoding()

    def layout(self, conversation: Conversation, control: Mapping[str, int], *, continue_final: bool = False) -> Layout:
        """What the package makes of a conversation."""
        rendered = self.encoding.render_conversation(self.conversation(conversation, continue_final=continue_final))
        found: list[int | str] = []
        at = 0
        for start, end in rendered.special_ranges:
            found += [rendered.prompt[at:start], control[rendered.prompt[start:end]]]
            at = end
        return tuple(part for part in [*found, rendered.prompt[at:]] if part != "")

    def conversation(self, asked: Conversation, *, continue_final: bool = False) -> Any:
        """The same conversation in the package's types. Reasoning is empty rather than absent in thinking mode, as its
        own conversion of requests has it."""
        thinking = asked.thinking is not False
        last = len(asked.messages) - 1
        messages = [
            self._message(message, thinking, prefix=continue_final and at == last)
            for at, message in enumerate(asked.messages)
        ]
        tools = [self._package.ToolDefinition(each.name, each.description, each.parameters) for each in asked.tools]
        return self._package.Conversation(
            messages, thinking_mode=thinking, tools=tools, reasoning_effort=_effort(asked.effort), **_format(asked)
        )

    def _message(self, message: Message, thinking: bool, *, prefix: bool) -> Any:
        if message.role == "system":
            return self._package.SystemMessage(message.content)
        if message.role == "user":
            return self._package.UserMessage(message.content)
        if message.role == "tool":
            return self._package.ToolMessage(message.content, message.call_id or None)
        calls = [self._package.ToolCall(call.id, call.name, call.arguments) for call in message.calls]
        reasoning = message.reasoning if thinking or message.reasoning else None
        return self._package.AssistantMessage(message.content, reasoning, calls or None, prefix)


def _package() -> Any:
    try:
        import deepseek_recipe  # noqa: PLC0415 (an extra; only these models need it)
    except ImportError as error:
        raise UnsupportedModelError(
            "DeepSeek V4 and V4.1 have no chat template of their own; their format is proved against the package "
            "deepseek-recipe, which is not installed. Install it with: pip install 'forebay[deepseek]'"
        ) from error
    if deepseek_recipe.__version__ != VERSION:
        raise UnsupportedModelError(
            f"DeepSeek V4 and V4.1 need the package deepseek-recipe in version {VERSION}, not "
            f"{deepseek_recipe.__version__}. Install it with: pip install 'forebay[deepseek]'"
        )
    return deepseek_recipe


def _effort(effort: Effort | None) -> str | None:
    """The package's own names; its conversion of requests reads `minimal` as `low` and `medium` as `high`."""
    return {None: None, "minimal": "low", "medium": "high"}.get(effort, effort)


def _format(asked: Conversation) -> dict[str, Any]:
    spec = asked.answer_format
    if spec is None or spec.kind not in ("json_object", "json_schema"):
        return {}
    if spec.kind == "json_object":
        return {"response_format": "json_object"}
    return {"response_schema": json.loads(spec.text)}


_TOOLS: Final = [
    ToolSpec(
        "get_weather", "Says what the weather is.", {"type": "object", "properties": {"city": {"type": "string"}}}
    ),
    ToolSpec("now"),
]
_CALLS: Final = [
    ToolCall("call_1", "get_weather", '{"city": "Z\\u00fcrich\\n", "days": 3, "units": ["C", {"k": null}], "x": ""}'),
    ToolCall("call_2", "now", "{}"),
]
_RESULTS: Final = [Message("tool", "Rain", call_id="call_1"), Message("tool", '{"t": 12}', call_id="call_2")]
_U: Final = [Message("user", "What is 17 + 25?"), Message("user", "  Two\n\nlines \n")]
_A: Final = [Message("assistant", "It is 42.", reasoning="17 + 25 \u2026"), Message("assistant", "\nThen:\n")]
_ASKS: Final = Message("assistant", "Let me see.", reasoning="The weather.", calls=_CALLS)
_S: Final = Message("system", "Be brief.")
_SHAPES: Final = (
    [_U[0]],
    [_S, _U[1]],
    [_U[0], _U[1]],
    [_U[0], _A[0], _U[1], _A[1], _U[0]],
    [_S, _U[0], _ASKS, *_RESULTS],
    [_U[0], _ASKS, *reversed(_RESULTS), _U[1]],
    [_U[0], _ASKS, *_RESULTS, _A[0], _U[1]],
    [_U[0], Message("assistant", "", calls=_CALLS[1:]), Message("tool", "", call_id="call_2")],
    [_U[0], _A[0]],
    [_S, _U[1], _A[1]],
    [_U[0], Message("assistant", "", reasoning="Half a")],
)
"""Those that end in an answer are continued."""
_LATER_SYSTEMS: Final = ([_S, _S, _U[0]], [_U[0], _A[0], _S, _U[1]], [_U[0], _S, _A[0], _U[1]])
_EFFORTS: Final[tuple[Effort | None, ...]] = (None, "minimal", "low", "medium", "high", "xhigh", "max")
_FORMATS: Final = (None, GrammarSpec("json_object"), GrammarSpec("json_schema", '{"type": "object", "x": [1, 0.5]}'))


def probes(*, later_systems: bool) -> Iterator[tuple[Conversation, bool]]:
    """Conversations of every shape that the format treats differently, with whether the last message is continued.

    `later_systems`: also those with system messages that are not the first message.
    """
    shapes: Sequence[list[Message]] = [*_SHAPES, *(_LATER_SYSTEMS if later_systems else ())]
    for messages, tools, thinking, spec in product(shapes, ([], _TOOLS), (None, False), _FORMATS):
        yield (
            Conversation(messages, tools=tools, thinking=thinking, answer_format=spec),
            messages[-1].role == "assistant",
        )
    for effort, thinking in product(_EFFORTS, (None, True, False)):
        yield Conversation([_S, _U[0]], thinking=thinking, effort=effort), False
