"""From the command line's options to those of a worker. It starts nothing."""

from __future__ import annotations

from forebay.cli.options import EngineOptions, SchedulingOptions
from forebay.cluster import WorkerOptions
from forebay.models import ModelSource


def worker_options(
    source: ModelSource, name: str, engine: EngineOptions, scheduling: SchedulingOptions
) -> WorkerOptions:
    """`name` is what clients call the model. The worker gets the resolved path, so it downloads nothing again."""
    return WorkerOptions(
        model=str(source.path),
        served_name=name,
        dtype=engine.dtype,
        kv_dtype=engine.kv_dtype,
        kv_memory=engine.kv_memory,
        max_model_len=engine.max_model_len,
        threads=engine.threads,
        kernels=engine.kernels,
        target_itl_s=scheduling.target_itl / 1000,
        max_running=scheduling.max_running,
        max_waiting=scheduling.max_waiting,
        prefix_cache=scheduling.prefix_cache,
    )
