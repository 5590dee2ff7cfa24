"""How much prefill fits into a step: the time that decode rows leave, turned into chunk sizes. It ranks nobody."""

from __future__ import annotations

from forebay.kv import PAGE_TOKENS
from forebay.scheduling.config import SchedulerConfig
from forebay.scheduling.draft import Draft


class ChunkBudget:
    """The limits of one step, fixed once its decode rows are known.

    With decode rows the step may take `target_itl_s`, or longer when else prefill would get less than `prefill_share`
    of it; without, `max_step_s`. Chunks have `min_chunk` to `max_chunk` tokens and end on page borders, except at a
    prompt's end. Where less than `min_chunk` fits, the first chunk of the step takes what fits: at least one page
    beside decode rows, and at least `min_chunk` without them. So every step that could prefill does, and nobody waits
    for ever.
    """

    def __init__(self, config: SchedulerConfig, draft: Draft) -> None:
        self._config = config
        self._draft = draft
        if draft.decode_rows:
            self.limit_s = max(config.target_itl_s, draft.predict() / (1.0 - config.prefill_share))
            self._floor = PAGE_TOKENS
        else:
            self.limit_s = config.max_step_s
            self._floor = config.min_chunk

    @property
    def spent(self) -> bool:
        """Whether no chunk fits any more."""
        draft = self._draft
        if not draft.prefill_tokens:
            return False
        return draft.prefill_tokens >= self._config.max_step_tokens or draft.predict(1) > self.limit_s

    def chunk(self, start: int, remaining: int, most: int) -> int:
        """Tokens of the next chunk, from `start` on, of a sequence with `remaining` to compute; 0 when none fits.

        `most` bounds it from above, as do `max_chunk` and what is left of `max_step_tokens`.
        """
        most = min(most, self._config.max_chunk, self._config.max_step_tokens - self._draft.prefill_tokens)
        if remaining <= most and self._draft.predict(remaining, start) <= self.limit_s:
            return remaining
        least = self._config.min_chunk if self._draft.prefill_tokens else self._floor
        if self._draft.predict(min(least, remaining), start) > self.limit_s or least > most:
            return 0 if self._draft.prefill_tokens else min(least, remaining)
        return self._fitting(start, min(most, remaining))

    def _fitting(self, start: int, most: int) -> int:
        """The most whole pages of tokens, up to `most` tokens, whose predicted time is within the limit."""
        low, high = 0, most // PAGE_TOKENS
        while low < high:
            middle = (low + high + 1) // 2
            if self._draft.predict(middle * PAGE_TOKENS, start) <= self.limit_s:
                low = middle
            else:
                high = middle - 1
        return low * PAGE_TOKENS
