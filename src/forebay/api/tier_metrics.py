"""Prometheus metrics of the tiers below the device and of preemption, from the worker's statistics."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from forebay.core.messages import TierStats, WorkerStats

_SECONDS = (0.0005, 0.001, 0.002, 0.004, 0.006, 0.008, 0.012, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_MOVES = ("saved", "loaded_host", "loaded_disk", "spilled")
_EVICTIONS = "evicted_"
_REFUSED = "refused_"
_CORRUPT = "corrupt_"
_CHECKED = "checked_"


class TierMetrics:
    """Counters take in what a worker's own grew by; one that begins anew counts from zero."""

    def __init__(self, registry: CollectorRegistry, labels: dict[str, str]) -> None:
        self._labels = labels
        self._last: dict[tuple[str, str], float] = {}
        names = list(labels)

        def counter(name: str, text: str, *more: str) -> Counter:
            return Counter(name, text, [*names, *more], registry=registry)

        self._pages = Gauge("forebay_kv_tier_pages", "KV pages in a tier.", [*names, "tier"], registry=registry)
        self._pinned = Gauge(
            "forebay_kv_pinned_pages",
            "KV pages in the host pool kept for preempted sequences.",
            names,
            registry=registry,
        )
        self._bytes = Gauge("forebay_kv_disk_bytes", "Bytes of disk that KV pages take.", names, registry=registry)
        self._moving = Gauge("forebay_kv_pages_moving", "Device pages being moved.", [*names, "way"], registry=registry)
        self._counters = {
            "preemptions": counter("forebay_preemptions", "Sequences put back.", "reason", "priority"),
            "recomputed": counter("forebay_recomputed_tokens", "Tokens computed again after a preemption.", "reason"),
            "tokens": counter("vllm:prompt_tokens_cached_by_source", "Cached prompt tokens.", "source"),
            "pages": counter("forebay_kv_moved_pages", "KV pages moved between tiers.", "move"),
            "bytes": counter("forebay_kv_moved_bytes", "Bytes of these pages, copied or not.", "move"),
            "seconds": counter("forebay_kv_move_seconds", "Time spent moving them.", "move"),
            "evictions": counter("forebay_kv_tier_evictions", "Pages given up below the device.", "reason"),
            "refused": counter("forebay_kv_refused_pages", "Pages not kept below the device.", "reason"),
            "missed": counter("forebay_kv_missed_pages", "Pages of new prompts that were in no tier.", "tier"),
            "checked": counter("forebay_kv_checked_pages", "Pages checked at rest (--verify-kv).", "tier"),
            "corrupt": counter("forebay_kv_corrupt_pages", "Pages dropped for a wrong checksum.", "tier"),
            "loads": counter("forebay_kv_loads", "Loads of prefixes by outcome.", "outcome"),
            "urgent": counter("forebay_kv_preemption_pages", "Pages of preempted sequences by fate.", "fate"),
        }
        self._preempt = Histogram(
            "forebay_preempt_seconds", "Saving what preemption needs.", names, buckets=_SECONDS, registry=registry
        )
        self._restore = Histogram(
            "forebay_restore_seconds", "A load from below, from asking.", names, buckets=_SECONDS, registry=registry
        )

    def on_stats(self, stats: WorkerStats) -> None:
        """Take one statistics message."""
        self._add("preemptions", stats.preemptions_by.items())
        self._add("recomputed", stats.recomputed_by.items())
        tiers = stats.tiers
        if tiers is None:
            return
        self._pages.labels(**self._labels, tier="host").set(tiers.host_pages)
        self._pages.labels(**self._labels, tier="disk").set(tiers.disk_pages)
        self._pinned.labels(**self._labels).set(tiers.host_pages_pinned)
        self._bytes.labels(**self._labels).set(tiers.disk_bytes)
        self._moving.labels(**self._labels, way="down").set(tiers.pages_writing)
        self._moving.labels(**self._labels, way="up").set(tiers.pages_loading)
        device = stats.prompt_tokens_cached - tiers.prompt_tokens_host - tiers.prompt_tokens_disk
        sources = {"device": device, "host": tiers.prompt_tokens_host, "disk": tiers.prompt_tokens_disk}
        self._add("tokens", sources.items())
        self._add_counters(tiers)
        for seconds in tiers.urgent_s:
            self._preempt.labels(**self._labels).observe(seconds)
        for seconds in tiers.load_s:
            self._restore.labels(**self._labels).observe(seconds)

    def _add_counters(self, tiers: TierStats) -> None:
        for move in _MOVES:
            for kind, suffix in (("pages", ""), ("bytes", "_bytes"), ("seconds", "_s")):
                self._add(kind, [(move, tiers.counters.get(move + suffix, 0.0))])
        self._add("evictions", _starting(tiers, _EVICTIONS))
        self._add("refused", _starting(tiers, _REFUSED))
        self._add("corrupt", _starting(tiers, _CORRUPT))
        self._add("checked", _starting(tiers, _CHECKED))
        self._add("missed", [("all", tiers.counters.get("misses", 0.0))])
        self._add("loads", [("whole", tiers.loads - tiers.loads_short), ("short", tiers.loads_short)])
        self._add("urgent", [("saved", tiers.urgent_saves), ("dropped", tiers.dropped)])

    def _add(self, kind: str, values: Iterable[tuple[str, float]]) -> None:
        for label, value in values:
            last = self._last.get((kind, label), 0.0)
            self._last[kind, label] = value
            labelled = self._counters[kind].labels(*self._labels.values(), *label.split("/"))
            labelled.inc(value - last if value >= last else value)


def _starting(tiers: TierStats, prefix: str) -> list[tuple[str, float]]:
    return [(name.removeprefix(prefix), value) for name, value in tiers.counters.items() if name.startswith(prefix)]
