"""How well the engine uses its machine, live: operations and bytes of the steps, and their share of the limits."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

from forebay.api.metric_deltas import CounterDeltas
from forebay.core.messages import WorkerStats


class WorkMetrics:
    """Metrics of the work that steps do. The two shares are those of the last statistics message with a step."""

    def __init__(self, registry: CollectorRegistry, labels: Mapping[str, str]) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(name, text, tuple(labels), registry=registry).labels(**labels)

        def counter(name: str, text: str) -> Counter:
            return Counter(name, text, tuple(labels), registry=registry).labels(**labels)

        self._mfu = gauge("forebay_mfu", "Operations a second while stepping over the machine's matrix product rate.")
        self._read = gauge("forebay_read_share", "Bytes read a second while stepping over the machine's memory rate.")
        self._flops_limit = gauge("forebay_machine_flops", "Operations a second of the fastest matrix product.")
        self._read_limit = gauge("forebay_machine_read_bytes", "Bytes a second that the machine reads from memory.")
        self._deltas = CounterDeltas(
            {
                "flops": [counter("forebay_flops", "Floating-point operations that the steps had to do.")],
                "bytes_read": [counter("forebay_bytes_read", "Bytes of weights and KV that the steps had to read.")],
                "busy_s": [counter("forebay_busy_seconds", "Seconds that the steps took.")],
            }
        )
        self._last = WorkerStats()

    def on_stats(self, stats: WorkerStats) -> None:
        """Take one statistics message."""
        self._deltas.add(stats)
        self._flops_limit.set(stats.gemm_gflops * 1e9)
        self._read_limit.set(stats.read_gbps * 1e9)
        seconds = stats.busy_s - self._last.busy_s
        if seconds > 0 and stats.gemm_gflops > 0 and stats.read_gbps > 0:
            self._mfu.set((stats.flops - self._last.flops) / seconds / stats.gemm_gflops / 1e9)
            self._read.set((stats.bytes_read - self._last.bytes_read) / seconds / stats.read_gbps / 1e9)
        self._last = stats
