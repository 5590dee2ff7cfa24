"""The store of responses: its bounds, its tenants, and conversations that live or age as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.api.tool_recipe import tool_recipe
from tests.recipe.families import property_test

from forebay.api.errors import FaultError
from forebay.api.responses_answer import ResponseAnswer
from forebay.api.responses_store import Record, ResponseStore
from forebay.api.responses_types import ResponsesRequest
from forebay.core.errors import InvalidRequestError
from forebay.core.request import Priority


@dataclass
class Clock:
    """Seconds that pass when they are told to."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def record(previous: str | None = None, size: int = 10, status: str = "completed") -> Record:
    """A response whose own input is so many bytes."""
    body = ResponsesRequest(model="m", input="x")
    answer = ResponseAnswer(body, "m", Priority.NORMAL_INTERACTIVE, tool_recipe())
    answer.status = status
    return Record(answer, b'["' + b"x" * size + b'"]', [f"msg_{answer.id}"], previous)


@dataclass
class Kept:
    """A store with a clock and what was put into it."""

    most: int = 100
    max_bytes: int = 10**9
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.store = ResponseStore(self.most, self.max_bytes, 60.0, self.clock)

    def add(self, tenant: str = "t", previous: Record | None = None, size: int = 10) -> Record:
        made = record(None if previous is None else previous.answer.id, size)
        self.store.add(tenant, made)
        return made

    def has(self, made: Record, tenant: str = "t") -> bool:
        return self.store.item(tenant, made.input_ids[0]) is not None or _has(self.store, made, tenant)


def _has(store: ResponseStore, made: Record, tenant: str) -> bool:
    try:
        store.chain(tenant, made.answer.id)
    except InvalidRequestError:
        return False
    return True


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["add", "big", "get", "delete", "pass"]), st.sampled_from("ab"), st.integers(0, 30)),
    max_size=40,
)


@property_test
@given(ACTIONS)
def test_the_bounds_hold_whatever_comes(actions: list[tuple[str, str, int]]) -> None:
    kept = Kept(most=5, max_bytes=9000)
    made: list[tuple[str, Record]] = []
    for action, tenant, number in actions:
        if action in ("add", "big"):
            made.append((tenant, kept.add(tenant, size=3000 if action == "big" else 10)))
        elif action == "pass":
            kept.clock.now += number
        elif made:
            _use(kept.store, action, tenant, made[number % len(made)])
        assert len(kept.store) <= 5
        assert kept.store.size <= 9000
    kept.clock.now += 61
    with pytest.raises(FaultError):
        kept.store.get("a", "resp_x")
    assert (len(kept.store), kept.store.size) == (0, 0)


def _use(store: ResponseStore, action: str, tenant: str, owned: tuple[str, Record]) -> None:
    owner, made = owned
    use = store.get if action == "get" else store.delete
    try:
        found = use(tenant, made.answer.id)
    except FaultError:
        return
    assert (found, tenant) == (made, owner)


def test_the_tenant_that_holds_most_gives_up_its_oldest() -> None:
    kept, given_up = Kept(most=3), []
    kept.store.on_given_up = lambda: given_up.append(1)
    small = kept.add("small")
    first, second = kept.add("large", size=500), kept.add("large", size=500)
    third = kept.add("large", size=500)
    assert kept.has(small, "small")
    assert [kept.has(made, "large") for made in (first, second, third)] == [False, True, True]
    assert given_up == [1]


def test_a_conversation_is_used_as_a_whole() -> None:
    kept = Kept(most=3)
    first = kept.add()
    second = kept.add(previous=first)
    kept.clock.now = 50
    assert kept.store.chain("t", second.answer.id) == [first, second]
    kept.clock.now = 100
    assert kept.store.chain("t", second.answer.id) == [first, second], "used 50 seconds ago"
    kept.store.delete("t", first.answer.id)
    with pytest.raises(InvalidRequestError, match="not found") as broken:
        kept.store.chain("t", second.answer.id)
    assert first.answer.id in broken.value.message


def test_time_runs_from_the_last_use() -> None:
    kept = Kept()
    used, unused = kept.add(), kept.add()
    kept.clock.now = 59
    kept.store.get("t", used.answer.id)
    kept.clock.now = 61
    assert kept.store.get("t", used.answer.id) is used
    with pytest.raises(FaultError):
        kept.store.get("t", unused.answer.id)


@pytest.mark.parametrize("status", ["in_progress", "queued", "failed", "cancelled"])
def test_nothing_goes_on_from_what_is_not_complete(status: str) -> None:
    kept = Kept()
    made = record(status=status)
    kept.store.add("t", made)
    with pytest.raises(InvalidRequestError, match=f"is {status}"):
        kept.store.chain("t", made.answer.id)


def test_one_that_is_larger_than_all_room_is_not_kept() -> None:
    kept = Kept(max_bytes=5000)
    small = kept.add()
    large = kept.add("other", size=6000)
    assert (kept.has(small), kept.has(large, "other")) == (True, False)


def test_an_item_is_there_as_long_as_a_response_that_has_it() -> None:
    kept = Kept()
    first, second, other = kept.add(), kept.add(), kept.add("other")
    second.input_ids = [*first.input_ids, "own"]
    second.inputs = b'[{"id": "a", "in": "second"}, {"id": "own"}]'
    first.inputs = b'[{"id": "a", "in": "first"}]'
    kept.store.measure("t", second)
    shared = first.input_ids[0]
    assert kept.store.item("t", shared) == {"id": "a", "in": "second"}
    assert kept.store.item("t", "own") == {"id": "own"}
    assert kept.store.item("t", other.input_ids[0]) is None
    kept.store.delete("t", second.answer.id)
    assert kept.store.item("t", shared) == {"id": "a", "in": "first"}
    assert kept.store.item("t", "own") is None
    kept.store.delete("t", first.answer.id)
    assert kept.store.item("t", shared) is None


def test_what_grows_is_counted_again() -> None:
    kept = Kept()
    made = kept.add()
    before = kept.store.size
    made.inputs += b" " * 100
    kept.store.measure("t", made)
    assert kept.store.size == before + 100
    kept.store.measure("other", made)
    assert kept.store.size == before + 100
