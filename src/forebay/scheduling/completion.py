"""What follows from a step's tokens: KV that counts as computed, answers that grow, fork or end. It plans nothing."""

from __future__ import annotations

from forebay.core.request import FinishReason
from forebay.kv import PAGE_TOKENS
from forebay.scheduling.config import SchedulerConfig
from forebay.scheduling.plan import Row, SequenceUpdate
from forebay.scheduling.preemption import step_aside
from forebay.scheduling.sequence import Sequence
from forebay.scheduling.state import State


def advance(state: State, row: Row, tokens: list[int], now: float) -> list[SequenceUpdate]:
    """Take in one row of a step that succeeded: one update for each token drawn."""
    sequence = row.sequence
    end = row.start + row.tokens
    sequence.advance(end, now)
    if end // PAGE_TOKENS > sequence.pages.registered:
        stored = state.book.commit(sequence.pages, sequence.all_ids, end)
        if state.tiers is not None:
            state.tiers.completed(sequence, stored)
    if state.book.policy is not None:
        state.book.slide(sequence.pages, end)
    if not row.decode:
        state.counters.prompt_computed += max(0, min(end, len(sequence.prompt_ids)) - row.start)
    if not tokens:
        return []
    state.counters.generated += len(tokens)
    if len(tokens) == 1:
        return [_append(state, sequence, tokens[0])]
    return _fork(state, sequence, tokens, now)


def finish_reason(sequence: Sequence, config: SchedulerConfig) -> FinishReason | None:
    """Whether the newest token ends the answer: a stop token after `min_tokens` others, `max_tokens`, or the
    context's end."""
    sampling, outputs = sequence.sampling, sequence.output_ids
    if outputs[-1] in sampling.stop_token_ids and len(outputs) > sampling.min_tokens:
        return FinishReason.STOP
    if len(outputs) >= sampling.max_tokens or sequence.length >= config.max_model_len:
        return FinishReason.LENGTH
    return None


def _append(state: State, sequence: Sequence, token: int) -> SequenceUpdate:
    sequence.append(token)
    reason = finish_reason(sequence, state.config)
    if reason is not None:
        state.finish(sequence, reason)
    return SequenceUpdate(sequence, [token], reason)


def _fork(state: State, parent: Sequence, tokens: list[int], now: float) -> list[SequenceUpdate]:
    """One sequence for each of the request's choices, all on the prompt's pages. Those beyond `max_running` wait."""
    twins = [_twin(state, parent, index, now) for index in range(1, len(tokens))]
    state.slots += 1 - parent.slots
    parent.slots = parent.choices = 1
    for twin in twins:
        state.run(twin, 1)
    updates = [_append(state, sequence, token) for sequence, token in zip((parent, *twins), tokens, strict=True)]
    for twin in reversed(twins):
        if state.slots > state.config.max_running and twin in state.running:
            step_aside(state, twin, now)
    return updates


def _twin(state: State, parent: Sequence, index: int, now: float) -> Sequence:
    twin = Sequence(
        request=parent.request,
        arrival=parent.arrival,
        order=parent.order,
        pages=state.book.fork(parent.pages, parent.computed),
        index=index,
        computed=parent.computed,
        cached_tokens=parent.cached_tokens,
        first_scheduled=parent.first_scheduled,
        reached=parent.reached,
        unserved_s=parent.unserved(now),
        most_credit_s=parent.most_credit_s,
    )
    state.requests[parent.request_id].append(twin)
    return twin
