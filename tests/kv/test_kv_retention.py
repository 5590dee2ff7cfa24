"""Retention classes and quotas, by a clock that the test turns."""

from __future__ import annotations

import pytest

from forebay.kv.quota import Quotas, Usage
from forebay.kv.retention import DAY_S, RetentionPolicy, parse_class


def test_default_classes_last_seven_and_three_days() -> None:
    policy = RetentionPolicy()
    assert not policy.expired("chat", last_use=0.0, now=7 * DAY_S)
    assert policy.expired("chat", last_use=0.0, now=7 * DAY_S + 1)
    assert policy.expired("agent", last_use=0.0, now=3 * DAY_S + 1)
    assert not policy.stored("none")


def test_configuration_adds_classes_and_changes_defaults() -> None:
    policy = RetentionPolicy({"archive": 30 * DAY_S, "chat": DAY_S})
    assert policy.longer("chat", "archive") == "archive"
    assert policy.longer("agent", "chat") == "agent"
    assert policy.seconds("chat") == DAY_S


def test_a_class_that_is_no_longer_configured_counts_as_the_shortest_stored_one() -> None:
    assert RetentionPolicy().seconds("gone") == 3 * DAY_S


@pytest.mark.parametrize(("seconds", "name"), [(300, "agent"), (3600, "agent"), (4 * DAY_S, "agent"), (9e9, "chat")])
def test_nearest_class(seconds: float, name: str) -> None:
    assert RetentionPolicy().nearest(seconds) == name


def test_classes_are_written_as_name_and_duration() -> None:
    assert parse_class("build=12h") == ("build", 43200.0)
    for wrong in ("build", "build=12", "=3d", "build=-1d", "Build=1d"):
        with pytest.raises(ValueError, match="no retention class"):
            parse_class(wrong)


def test_negative_retention_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        RetentionPolicy({"odd": -1.0})


def test_quotas_count_per_tenant() -> None:
    usage = Usage(Quotas(default=100, by_tenant={"big": 1000, "free": None}))
    usage.change("small", 80)
    assert usage.excess("small", 30) == 10
    assert usage.excess("other", 30) <= 0
    usage.change("big", 900)
    assert usage.excess("big", 100) == 0
    assert usage.excess("free", 10**12) <= 0
    usage.change("small", -80)
    assert usage.held("small") == 0
