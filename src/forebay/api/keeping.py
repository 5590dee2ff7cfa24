"""Puts a tenant's kept answers into its conversations, and keeps the answers that it gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from forebay.api.answer_metrics import AnswerMetrics
from forebay.api.answer_store import AnswerStore, HistoryKey
from forebay.api.reading import calls_of
from forebay.recipe import Conversation, KeptAnswer, Message
from forebay.recipe.parsers import Event, Problem, ProblemKind, ReasoningDelta, TextDelta


@dataclass(frozen=True, slots=True)
class KeptAnswers:
    """The kept answers of one tenant."""

    store: AnswerStore
    tenant: str
    metrics: AnswerMetrics

    def recognise(self, conversation: Conversation) -> tuple[Conversation, HistoryKey]:
        """The conversation, its assistant messages with the ids that the model produced for them where they are known;
        and the key under which an answer to it is kept."""
        history = HistoryKey(self.tenant)
        messages = [self._recognised(message, history.add(message)) for message in conversation.messages]
        answers = [message for message in messages if message.role == "assistant"]
        hits = sum(message.kept is not None for message in answers)
        self.metrics.looked_up(hits=hits, misses=len(answers) - hits)
        return msgspec.structs.replace(conversation, messages=messages), history

    def _recognised(self, message: Message, key: bytes) -> Message:
        if message.role != "assistant":
            return message
        found = self.store.find(self.tenant, key, message.reasoning)
        if found is None:
            return msgspec.structs.replace(message, kept=None)
        # Templates that show reasoning shall do so although the client left it out: the ids that follow it need it.
        return msgspec.structs.replace(message, kept=found[0], reasoning=found[1])

    def keep(self, history: HistoryKey, answer: Message, kept: KeptAnswer) -> None:
        """Remember the ids of an answer to the conversation of this history."""
        self.store.keep(self.tenant, history.copy().add(answer), answer.reasoning, kept)
        self.metrics.keeping(self.store.entries, self.store.size)


class AnswerRecord:
    """What one choice says while it is made, and its ids."""

    def __init__(self, answers: KeptAnswers, history: HistoryKey) -> None:
        self._answers = answers
        self._history = history
        self._events: list[Event] = []
        self._ids: list[int] = []

    def add(self, events: Sequence[Event], ids: Sequence[int]) -> None:
        """More of it."""
        self._events += events
        self._ids += ids

    def finish(self, body: int | None, *, cut: bool) -> None:
        """Keep it, unless its ids and what was shown of them are not the same thing.

        Args:
            body: how many of the ids are reasoning; None where no border between tokens parts it from the rest.
            cut: a stop string ended the choice, so the last ids say more than was shown.
        """
        strays = any(isinstance(e, Problem) and e.kind is ProblemKind.UNEXPECTED_CONTROL for e in self._events)
        if body is None or cut or strays or not self._ids:
            return
        message = Message(
            role="assistant",
            text="".join(event.text for event in self._events if isinstance(event, TextDelta)),
            reasoning="".join(event.text for event in self._events if isinstance(event, ReasoningDelta)),
            calls=calls_of(self._events),
        )
        self._answers.keep(self._history, message, KeptAnswer(self._ids, body))
