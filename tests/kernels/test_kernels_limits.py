"""That the machine's limits are measured at all; how large they are is the machine's affair."""

from __future__ import annotations

from forebay.kernels.limits import best_seconds, measure_limits
from forebay.kernels.native import NativeKernels
from forebay.kernels.torch_backend import TorchKernels


def test_limits_of_both_backends(native: NativeKernels, portable: TorchKernels) -> None:
    for kernels in (native, portable):
        limits = measure_limits(kernels, budget_s=0.01)
        assert limits.read_gbps > 0
        assert limits.gemm_gflops > 0


def test_the_work_is_warmed_up_and_timed_twice_at_least() -> None:
    runs: list[int] = []
    assert best_seconds(lambda: runs.append(1), budget_s=0.0) >= 0
    assert len(runs) == 3
