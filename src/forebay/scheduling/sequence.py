"""One answer in the making: its ids, how far its KV is computed, what it holds and how long it has gone without
service."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from forebay.core.request import FinishReason, GenerateRequest, Priority, SamplingParams
from forebay.kv import SequencePages


class Loss(StrEnum):
    """Why a preempted sequence has to compute again what it had."""

    DAMAGE = "damage"
    """It was kept, but not all of it came back whole."""
    DRAFT = "draft"
    """SPECULATIVE_DRAFT is dropped."""
    LOGPROBS = "logprobs"
    """It wants the logprobs of its prompt, which takes computing all of it."""
    NO_TIER = "no_tier"
    """There is nothing below the device."""
    NO_ROOM = "no_room"
    """There was no room below: the tiers had become too small and nobody could go on, or one of several choices had to
    wait for its row."""


@dataclass(eq=False, slots=True)
class Sequence:
    """One choice of one request; compared by identity. The scheduler alone changes it."""

    request: GenerateRequest
    arrival: float
    """Seconds on the caller's clock; kept through preemption."""
    order: int
    """Counts requests as they came: breaks ties between equal arrivals."""
    pages: SequencePages
    """Empty while it waits and once it is finished."""
    index: int = 0
    """Which of the request's `n` choices."""
    output_ids: list[int] = field(default_factory=list)
    all_ids: list[int] = field(default_factory=list)
    """Prompt and output."""
    computed: int = 0
    """Leading tokens whose KV is written, or was found in the prefix cache."""
    cached_tokens: int = 0
    """Prompt tokens that the prefix cache had when the sequence was first scheduled."""
    first_scheduled: float | None = None
    """When it was first part of a plan."""
    finish_reason: FinishReason | None = None
    choices: int = 1
    """How many tokens the step that ends the prefill draws: the request's `n` until that step, then 1."""
    slots: int = 0
    """Running rows that it takes up or, before it forks, has reserved; 0 while it waits."""
    length_class: int = 0
    """Its class by uncached tokens, while it waits."""
    uncached: int = 0
    """Tokens to compute as of when it began to wait."""
    loading: int | None = None
    """The load from a lower tier that it waits for; it holds its pages meanwhile, but takes no step."""
    parked: list[bytes] = field(default_factory=list)
    """Ids of the pages that lower tiers keep for it while it is preempted."""
    parked_tokens: int = 0
    """`computed` when it was preempted; 0 when nothing is kept for it."""
    loaded_host: int = 0
    """Tokens that its last load brought from the host pool."""
    loaded_disk: int = 0
    """Tokens that its last load brought from disk."""
    cached_host: int = 0
    """Of `cached_tokens`: those from the host pool."""
    cached_disk: int = 0
    """Of `cached_tokens`: those from disk."""
    reached: int = 0
    """The most tokens that `computed` ever was: what is below it is computed again after a preemption."""
    loss: Loss = Loss.DAMAGE
    """Why that is, as of its last preemption."""
    unserved_s: float = 0.0
    """Seconds without service that it had to its credit at `unserved_since` or `gaining_since`."""
    unserved_since: float | None = None
    """Since when it waits or is passed over; None while it is served."""
    most_credit_s: float = inf
    """No more of them count once it is served."""
    gaining_since: float | None = None
    """Since when it is served and gets further than it ever was; None otherwise."""

    request_id: str = field(init=False)
    """The request's id; its choices share it."""
    prompt_ids: list[int] = field(init=False)
    """The request's prompt, not a copy."""
    sampling: SamplingParams = field(init=False)
    priority: Priority = field(init=False)
    """As asked for, without aging."""
    tenant: str = field(init=False)
    """Whose prefix cache it uses."""

    def __post_init__(self) -> None:
        request = self.request
        self.request_id, self.prompt_ids, self.sampling = request.id, request.prompt_ids, request.sampling
        self.priority, self.tenant = request.priority, request.tenant
        if not self.all_ids:
            self.all_ids = [*request.prompt_ids]

    @property
    def length(self) -> int:
        """Tokens of prompt and output."""
        return len(self.all_ids)

    @property
    def remaining(self) -> int:
        """Tokens whose KV is not computed yet; 1 while it decodes."""
        return len(self.all_ids) - self.computed

    @property
    def decoding(self) -> bool:
        """Whether the next step needs only its newest token."""
        return self.computed == len(self.all_ids) - 1 and bool(self.output_ids)

    @property
    def place(self) -> tuple[float, int, int]:
        """Its place among sequences of equal standing: arrival, then order, then choice."""
        return (self.arrival, self.order, self.index)

    def token_at(self, position: int) -> int:
        """The id at a position of prompt and output."""
        return self.all_ids[position]

    def append(self, token: int) -> None:
        """One token more of output."""
        self.output_ids.append(token)
        self.all_ids.append(token)

    def level(self, now: float, aging_s: float) -> int:
        """Effective priority: one level better for each `aging_s` seconds without service, never better than CRITICAL
        (0)."""
        return max(0, self.priority - int(self.unserved(now) / aging_s))

    def unserved(self, now: float) -> float:
        """Seconds without service to its credit: they grow while it waits, and are used up at the same rate while it
        gets on. So a wait protects it for as long, up to `most_credit_s`, and no longer; and computing again what it
        had, which is no fault of its own, costs nothing."""
        if self.unserved_since is not None:
            return self.unserved_s + now - self.unserved_since
        return max(0.0, self.unserved_s - (0.0 if self.gaining_since is None else now - self.gaining_since))

    def idle(self, now: float) -> float:
        """Seconds since it was served last; 0 while it is."""
        return 0.0 if self.unserved_since is None else now - self.unserved_since

    def starve(self, now: float) -> None:
        """It is not served from now on."""
        if self.unserved_since is None:
            self.unserved_s, self.unserved_since, self.gaining_since = self.unserved(now), now, None

    def serve(self, now: float) -> None:
        """It is served now."""
        if self.unserved_since is not None:
            self.unserved_s, self.unserved_since = min(self.unserved(now), self.most_credit_s), None
        if self.first_scheduled is None:
            self.first_scheduled = now

    def advance(self, end: int, now: float) -> None:
        """The KV of its first `end` tokens is computed."""
        self.computed = end
        if end > self.reached:
            self.reached = end
            if self.gaining_since is None and self.unserved_since is None:
                self.gaining_since = now
