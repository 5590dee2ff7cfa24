"""A step plan in the making: rows come in, and go out again when their sequence is preempted. It chooses nothing."""

from __future__ import annotations

from forebay.scheduling.plan import Row, StepPlan
from forebay.scheduling.sequence import Sequence
from forebay.scheduling.step_time import StepTimeModel


def attention_work(start: int, tokens: int, window: int | None = None) -> int:
    """Sum over tokens [start, start + tokens) of the tokens that each sees, itself included: all before it, or `window`
    at most."""
    rising = tokens if window is None else max(0, min(tokens, window - start))
    return rising * start + rising * (rising + 1) // 2 + (tokens - rising) * (window or 0)


class Draft:
    """The rows so far and the three sums from which their time is predicted."""

    def __init__(self, step_time: StepTimeModel, now: float, window: int | None = None) -> None:
        """`window` is how many tokens each sees at most; None: all before it."""
        self.now = now
        self._window = window
        self.rows: dict[Sequence, Row] = {}
        self.preempted: list[Sequence] = []
        self.prefill_tokens = 0
        self.decode_rows = 0
        self.attention = 0
        self._step_time = step_time
        self._copies: dict[Sequence, list[tuple[int, int]]] = {}

    def add_decode(self, sequence: Sequence, copies: list[tuple[int, int]]) -> None:
        """A row for the sequence's newest token."""
        sequence.serve(self.now)
        self.rows[sequence] = Row(sequence, sequence.computed, 1, 1, decode=True)
        self.decode_rows += 1
        self.attention += sequence.length if self._window is None else min(sequence.length, self._window)
        if copies:
            self._copies[sequence] = copies

    def add_chunk(self, sequence: Sequence, tokens: int) -> None:
        """A row for the sequence's next `tokens` tokens; it draws tokens when they are the last ones."""
        samples = sequence.choices if tokens == sequence.remaining else 0
        sequence.serve(self.now)
        self.rows[sequence] = Row(sequence, sequence.computed, tokens, samples, decode=False)
        self.prefill_tokens += tokens
        self.attention += attention_work(sequence.computed, tokens, self._window)

    def preempt(self, sequence: Sequence) -> dict[int, int]:
        """Note the preemption and take the sequence's row out, if it has one. Returns the copies that are not made
        now: for each of its pages that one was to fill, where the content still lies."""
        self.preempted.append(sequence)
        row = self.rows.pop(sequence, None)
        copies = {destination: source for source, destination in self._copies.pop(sequence, ())}
        if row is not None:
            self.decode_rows -= row.decode
            self.prefill_tokens -= 0 if row.decode else row.tokens
            self.attention -= attention_work(row.start, row.tokens, self._window)
        return copies

    def predict(self, tokens: int = 0, start: int = 0) -> float:
        """Predicted seconds of the rows so far and a chunk of `tokens` tokens that begins at `start`."""
        attention = self.attention + attention_work(start, tokens, self._window)
        return self._step_time.predict(self.prefill_tokens + tokens, self.decode_rows, attention)

    def plan(self) -> StepPlan:
        """The finished plan."""
        return StepPlan(
            rows=list(self.rows.values()),
            copies=[pair for pairs in self._copies.values() for pair in pairs],
            predicted_s=self.predict(),
            prefill_tokens=self.prefill_tokens,
            decode_rows=self.decode_rows,
            attention=self.attention,
            preempted=self.preempted,
        )
