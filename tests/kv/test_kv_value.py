"""What a stored page is worth, and the order in which pages go, against a model that looks at all of them."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from forebay.kv.value import ValueOrder, Worth


def test_worth_grows_with_reuse_and_recency_and_falls_with_size() -> None:
    worth = Worth(half_life_s=60.0)
    base = worth.score(0.0, 0, 4096)
    assert worth.score(1.0, 0, 4096) > base
    assert worth.score(0.0, 1, 4096) == pytest.approx(base + 60.0)
    assert worth.score(0.0, 9, 4096) == worth.score(0.0, 1, 4096), "used at all is what counts"
    assert worth.score(0.0, 0, 8192) == pytest.approx(base - 60.0)


class OrderMachine(RuleBasedStateMachine):
    """Pages of three chains by two tenants come, are used, held and go."""

    def __init__(self) -> None:
        super().__init__()
        self.order = ValueOrder()
        self.here: dict[bytes, tuple[bytes, str, float]] = {}
        self.holds: dict[bytes, int] = {}

    @rule(chain=st.integers(0, 2), depth=st.integers(0, 3), score=st.integers(0, 5))
    def add(self, chain: int, depth: int, score: int) -> None:
        page = bytes([chain, depth])
        parent = bytes([chain, depth - 1]) if depth else b"root"
        if page in self.here:
            with pytest.raises(ValueError, match="already"):
                self.order.add(page, parent, "t", 0.0)
            return
        self.here[page] = (parent, "ab"[chain % 2], float(score))
        self.holds[page] = 0
        self.order.add(page, *self.here[page])

    @precondition(lambda self: self.here)
    @rule(data=st.data(), score=st.integers(0, 5))
    def rescore(self, data: st.DataObject, score: int) -> None:
        page = data.draw(st.sampled_from(sorted(self.here)))
        parent, tenant, _ = self.here[page]
        self.here[page] = (parent, tenant, float(score))
        self.order.rescore(page, float(score))

    @precondition(lambda self: self.here)
    @rule(data=st.data(), more=st.booleans())
    def hold(self, data: st.DataObject, more: bool) -> None:
        page = data.draw(st.sampled_from(sorted(self.here)))
        if more:
            self.order.hold(page)
            self.holds[page] += 1
        elif self.holds[page]:
            self.order.release(page)
            self.holds[page] -= 1
        else:
            with pytest.raises(ValueError, match="not held"):
                self.order.release(page)

    @precondition(lambda self: self.here)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        page = data.draw(st.sampled_from(sorted(self.here)))
        del self.here[page]
        self.order.remove(page)

    def candidates(self, tenant: str | None) -> list[tuple[float, bytes]]:
        parents = {parent for parent, _, _ in self.here.values()}
        return [
            (score, page)
            for page, (_, owner, score) in self.here.items()
            if not self.holds[page] and page not in parents and tenant in {None, owner}
        ]

    @invariant()
    def least_is_the_least_of_those_that_may_go(self) -> None:
        for tenant in (None, "a", "b"):
            expected = min(self.candidates(tenant), default=(0.0, None))[1]
            assert self.order.least(tenant) == expected
        assert len(self.order) == len(self.here)
        assert self.order.held == sum(self.holds[page] > 0 for page in self.here)


TestOrderMachine = OrderMachine.TestCase
TestOrderMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
