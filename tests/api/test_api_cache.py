"""The cache over HTTP: retention asked for, usage by tier, GET /v1/cache, and the metrics of the tiers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.api.fakes import MODEL
from tests.api.live import Live

from forebay.api import ApiConfig
from forebay.api.metrics import ApiMetrics
from forebay.core.messages import TierStats, WorkerStats

CLASSES = {"agent": 259200.0, "chat": 604800.0, "none": 0.0, "short": 3600.0}
WITH_CLASSES = msgspec.structs.replace(MODEL, retention_classes=CLASSES)
CHAT: dict[str, Any] = {"model": "smollm2", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
Start = Callable[..., Live]


@pytest.fixture
def live(start: Start) -> Live:
    return start(model=WITH_CLASSES)


PROTOCOLS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": "smollm2", "prompt": "Hello", "max_tokens": 2},
    "/v1/responses": {"model": "smollm2", "input": "Hello", "max_output_tokens": 16},
    "/v1/messages": CHAT,
}


@pytest.mark.parametrize(("path", "body"), PROTOCOLS.items())
def test_a_request_names_its_class(live: Live, path: str, body: dict[str, Any]) -> None:
    for field, class_name in ((None, None), ({}, None), ({"retention": "agent"}, "agent")):
        assert live.http.post(path, json=body | {"cache": field}).status_code == 200
        assert live.router.requests[-1].retention == class_name
    refused = live.http.post(path, json=body | {"cache": {"retention": "forever"}})
    assert refused.status_code == 400
    if path != "/v1/messages":
        assert refused.json()["error"]["param"] == "cache.retention"
    assert "agent, chat, none, short" in refused.json()["error"]["message"]


def test_a_key_s_class_holds_where_the_request_names_none(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text('[[key]]\nkey = "k"\nretention = "agent"\n')
    live = start(ApiConfig(api_key_file=file), model=WITH_CLASSES)
    key = {"x-api-key": "k"}
    for path, body in PROTOCOLS.items():
        for field, class_name in ((None, "agent"), ({"retention": "short"}, "short")):
            assert live.http.post(path, json=body | {"cache": field}, headers=key).status_code == 200
            assert live.router.requests[-1].retention == class_name


@pytest.mark.parametrize(
    ("top", "block", "class_name"),
    [
        (None, None, None),
        ({"type": "ephemeral"}, None, "short"),
        (None, {"type": "ephemeral", "ttl": "1h"}, "short"),
    ],
)
def test_anthropic_ttl_takes_the_nearest_class(live: Live, top: Any, block: Any, class_name: str | None) -> None:
    part = {"type": "text", "text": "Hello", "cache_control": block}
    body = CHAT | {"messages": [{"role": "user", "content": [part]}], "cache_control": top}
    assert live.http.post("/v1/messages", json=body).status_code == 200
    assert live.router.requests[-1].retention == class_name


def test_operators_see_the_tiers(live: Live) -> None:
    held = {"default": (7, 8), "other": (9, 9)}
    tiers = TierStats(host_pages=3, host_pages_total=9, counters={"saved": 3.0}, tenants=held)
    assert live.router.on_stats is not None
    live.router.on_stats(WorkerStats(pages_total=8, pages_used=2, preemptions_by={"growth/draft": 1}, tiers=tiers))
    found = live.http.get("/v1/cache").json()
    assert found["device"] == {"pages": 8, "used": 2, "cached": 0}
    assert (found["tiers"]["host_pages"], found["tiers"]["counters"]) == (3, {"saved": 3.0})
    assert found["tenant"] == {"host_bytes": 7, "disk_bytes": 8}
    assert "other" not in json.dumps(found), "nobody learns of another tenant's pages"
    assert found["preemptions"] == {"growth/draft": 1}
    live.router.on_stats(WorkerStats())
    assert live.http.get("/v1/cache").json()["tiers"] is None


def test_usage_tells_tiers_where_pages_came_from_below(start: Start) -> None:
    live = start(cached_tokens=10, cached_host=4, cached_disk=5)
    split = {"device": 1, "host": 4, "disk": 5}
    usage = live.http.post("/v1/chat/completions", json=CHAT).json()["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 10, "cached_tokens_by_tier": split}
    assert live.http.post("/v1/messages", json=CHAT).json()["usage"]["cached_tokens_by_tier"] == split
    usage = live.http.post("/v1/responses", json=PROTOCOLS["/v1/responses"]).json()["usage"]
    assert usage["input_tokens_details"]["cached_tokens_by_tier"] == split
    usage = live.http.post("/v1/completions", json=PROTOCOLS["/v1/completions"]).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens_by_tier"] == split
    live = start(cached_tokens=10)
    usage = live.http.post("/v1/chat/completions", json=CHAT).json()["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 10}


def test_every_metric_of_pages_is_documented() -> None:
    documented = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    names = {family.name for family in ApiMetrics("m").registry.collect()}
    ours = {name for name in names if any(word in name for word in ("_kv_", "preempt", "restore", "recompute"))}
    assert len(ours) > 15
    assert not {name for name in ours if f"`{name}`" not in documented and f"`{name}_total`" not in documented}


def test_tier_metrics_count_on_after_a_new_worker() -> None:
    metrics = ApiMetrics("m")

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, {"model_name": "m", "engine": "0", **labels})

    counters = {"saved": 5.0, "saved_bytes": 50.0, "saved_s": 0.5, "evicted_host_room": 2.0, "corrupt_disk": 1.0}
    counters |= {"refused_disk_quota": 4.0, "misses": 3.0, "checked_host": 8.0}
    for counts in (counters, counters | {"saved": 7.0}, {"saved": 1.0}):
        tiers = TierStats(host_pages=4, loads=3, loads_short=1, urgent_s=[0.001], load_s=[0.1, 0.2], counters=counts)
        tiers.host_pages_pinned = 2
        again = {"no_room": 6}
        metrics.on_stats(
            WorkerStats(prompt_tokens_cached=9, preemptions_by={"growth/draft": 2}, recomputed_by=again, tiers=tiers)
        )
    assert value("forebay_recomputed_tokens_total", reason="no_room") == 6
    assert value("forebay_kv_pinned_pages") == 2
    assert value("forebay_kv_missed_pages_total", tier="all") == 3
    assert value("forebay_kv_checked_pages_total", tier="host") == 8
    assert value("forebay_kv_moved_pages_total", move="saved") == 8
    assert value("forebay_kv_moved_bytes_total", move="saved") == 50
    assert value("forebay_kv_tier_evictions_total", reason="host_room") == 2
    assert value("forebay_kv_corrupt_pages_total", tier="disk") == 1
    assert value("forebay_kv_refused_pages_total", reason="disk_quota") == 4
    assert value("forebay_kv_loads_total", outcome="short") == 1
    assert value("forebay_preemptions_total", reason="growth", priority="draft") == 2
    assert value("forebay_kv_tier_pages", tier="host") == 4
    assert value("forebay_preempt_seconds_count") == 3
    assert value("forebay_restore_seconds_count") == 6
    assert value("vllm:prompt_tokens_cached_by_source_total", source="device") == 9
