"""What a model's own template can render, found by trying when the model is loaded (`verify.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from forebay.core.errors import InvalidRequestError
from forebay.recipe.conversation import Conversation
from forebay.recipe.jinja.kept import AnswerPlace
from forebay.recipe.order import OPEN, RoleOrder
from forebay.recipe.templates.refusals import refuse_tools


@dataclass(frozen=True, slots=True)
class Abilities:
    """What was found."""

    order: RoleOrder = OPEN
    tools: bool = True
    """Tools, calls and results all appear in the prompt, and who wrote them can be followed."""
    tool_fault: str | None = None
    """Why not, where the template does have a place for tools."""
    text_beside_calls: bool = True
    """The text of a message that calls tools appears too."""
    several_calls: bool = True
    """So do all calls of one message."""
    answer: AnswerPlace | None = None
    """Between which strings an answer stands; None when that was not found."""

    def check(self, conversation: Conversation) -> None:
        """Raise InvalidRequestError for what the template would leave out."""
        if not self.tools:
            refuse_tools(conversation, self.tool_fault)
        for index, message in enumerate(conversation.messages):
            if message.kept is not None and self.answer is not None:
                continue
            if len(message.calls) > 1 and not self.several_calls:
                raise InvalidRequestError(
                    "This model's chat template leaves out all calls of a message but one.",
                    f"messages.{index}.tool_calls",
                )
            if message.calls and message.content.strip() and not self.text_beside_calls:
                raise InvalidRequestError(
                    "This model's chat template leaves out the text of a message that calls tools.",
                    f"messages.{index}.content",
                )
