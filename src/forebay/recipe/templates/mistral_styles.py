"""The versions of Mistral's format as data: what `mistral.py` has to know of each.

Names follow Mistral's tokenizer versions. Of one version there may be several styles: that of Mistral's own library
(`mistral-common`), and those of Jinja templates that were published with models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final


class SystemAt(Enum):
    """Where the system message goes."""

    FIRST_QUESTION = auto()
    """Before the text of the first question."""
    LAST_QUESTION = auto()
    OWN = auto()
    """Between control tokens of its own."""


class LaterSystem(Enum):
    """Where system messages may stand behind the first message."""

    NOWHERE = auto()
    ANYWHERE = auto()
    IN_PLACE_OF_ANSWER = auto()
    """Where an answer is due, by the way a published template counts turns."""


class ToolsAt(Enum):
    """Before which question the tools are listed."""

    NOWHERE = auto()
    FIRST_QUESTION = auto()
    LAST_QUESTION = auto()


class CallForm(Enum):
    """How calls are written."""

    ARRAY = auto()
    """One JSON array."""
    NAMED_WITH_ID = auto()
    """Each behind a token: name, id, arguments."""
    NAMED = auto()
    """Each behind a token: name, arguments."""


class ResultForm(Enum):
    """How a result is written."""

    OBJECT = auto()
    """A JSON object with the result as a value and the call's id."""
    RAW_OBJECT = auto()
    """The same, but with the result's text as it is, even where that is no JSON."""
    MARKED = auto()
    """The call's id, a token, the text."""
    BARE = auto()
    """The text."""


class Trim(Enum):
    """What is taken off an answer."""

    NOTHING = auto()
    SPACES_AT_END = auto()
    BOTH = auto()
    """White space at both ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """One version's differences."""

    name: str
    space: str = ""
    """Words behind each token that opens a part: a space where the tokenizer is of SentencePiece's kind and
    puts none by itself."""
    system: SystemAt = SystemAt.OWN
    tools: ToolsAt = ToolsAt.LAST_QUESTION
    calls: CallForm = CallForm.ARRAY
    results: ResultForm = ResultForm.MARKED
    answers: Trim = Trim.NOTHING
    fills_tools: bool = False
    """A tool's description and parameters are written even where the client gave none."""
    takes_turns: bool = True
    """Questions and answers have to alternate."""
    question_behind_results: bool = False
    """A question may follow results without an answer between them."""
    later_system: LaterSystem = LaterSystem.NOWHERE
    text_beside_calls: bool = True
    """A message may have text and calls."""
    reasoning: bool = False
    """Answers may begin with reasoning, where the vocabulary has tokens for it. Jinja templates take it only as a part
    of the content, which no protocol sends."""

    @property
    def marks(self) -> list[str]:
        """The tokens without which it can't be written."""
        marks = ["<s>", "</s>", "[INST]", "[/INST]"]
        if self.system is SystemAt.OWN:
            marks += ["[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"]
        if self.tools is not ToolsAt.NOWHERE:
            marks += ["[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"]
            marks += ["[TOOL_CONTENT]"] if self.results is ResultForm.MARKED else []
            marks += ["[ARGS]"] if self.calls is not CallForm.ARRAY else []
            marks += ["[CALL_ID]"] if self.calls is CallForm.NAMED_WITH_ID else []
        return marks


def _v3(space: str) -> tuple[Style, ...]:
    """v3 as mistral-common writes it, as Jinja templates with tools do, and as those without."""
    own = Style(
        name="mistral-v3",
        space=space,
        system=SystemAt.LAST_QUESTION,
        results=ResultForm.OBJECT,
        answers=Trim.SPACES_AT_END,
        fills_tools=True,
        question_behind_results=True,
        text_beside_calls=False,
    )
    trims = (Trim.NOTHING, Trim.BOTH)
    places = (SystemAt.LAST_QUESTION, SystemAt.FIRST_QUESTION)
    return (
        own,
        *(
            Style(
                name="mistral-v3",
                space=space,
                system=place,
                tools=tools,
                results=ResultForm.RAW_OBJECT,
                answers=trim,
                text_beside_calls=False,
            )
            for tools in (ToolsAt.LAST_QUESTION, ToolsAt.NOWHERE)
            for place in places
            for trim in trims
        ),
    )


def _v7(space: str) -> tuple[Style, ...]:
    """v7 as mistral-common writes it, and as the Jinja templates without tools do."""
    anywhere = LaterSystem.ANYWHERE
    own = Style(
        name="mistral-v7",
        space=space,
        answers=Trim.SPACES_AT_END,
        fills_tools=True,
        question_behind_results=True,
        later_system=anywhere,
    )
    plain = Style(name=own.name, space=space, tools=ToolsAt.NOWHERE, takes_turns=False, later_system=anywhere)
    return own, plain


def _v11() -> tuple[Style, ...]:
    """v11 as mistral-common writes it, and as Mistral Small 3.2's Jinja template does."""
    own, _ = _v7("")
    common = replace(own, name="mistral-v11", calls=CallForm.NAMED_WITH_ID)
    jinja = Style(
        name=common.name,
        calls=common.calls,
        later_system=LaterSystem.IN_PLACE_OF_ANSWER,
        text_beside_calls=False,
    )
    return common, jinja


def _v13() -> tuple[Style, ...]:
    """v13 as mistral-common writes it, and as Jinja templates do, with and without turns."""
    jinja = Style(name="mistral-v13", tools=ToolsAt.FIRST_QUESTION, calls=CallForm.NAMED, results=ResultForm.BARE)
    common = replace(
        jinja,
        answers=Trim.SPACES_AT_END,
        fills_tools=True,
        question_behind_results=True,
        later_system=LaterSystem.ANYWHERE,
        reasoning=True,
    )
    return common, jinja, replace(jinja, takes_turns=False, later_system=LaterSystem.ANYWHERE)


STYLES: Final = (*_v3(""), *_v3(" "), *_v7(""), *_v7(" "), *_v11(), *_v13())
"""Tried in this order."""
