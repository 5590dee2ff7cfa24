"""Builds an engine from options: resolves and loads the model, measures memory, makes pages. Runs once in a worker."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

import psutil
import torch

from forebay.core.cpus import free_to_move, read_cpus
from forebay.core.messages import ModelInfo
from forebay.engine.constraints import Constraints, load_grammars
from forebay.engine.engine import Engine
from forebay.engine.memory import kv_pages
from forebay.engine.moves import PageMoves
from forebay.engine.options import Dtype, WorkerOptions
from forebay.engine.paging import context_of, open_book
from forebay.engine.runner import ModelRunner
from forebay.engine.threads import in_force, plan_threads
from forebay.engine.tiers import host_memory, open_pages, open_tiers
from forebay.engine.work import ModelCost, Work
from forebay.kernels import Kernels, load_kernels
from forebay.kernels.known_limits import known_limits
from forebay.kv.retention import RetentionPolicy
from forebay.models import Model, ModelSource, load_model, resolve
from forebay.scheduling import Scheduler, SchedulerConfig, StepTimeModel

log = logging.getLogger(__name__)

Report = Callable[[str, float], None]

_MAX_CHUNK = 2048
"""Most prompt tokens of one sequence in one step."""
_DTYPES: dict[Dtype, torch.dtype] = {"bf16": torch.bfloat16, "fp32": torch.float32}


@free_to_move()
def build_engine(options: WorkerOptions, report: Report) -> Engine:
    """Everything from a model's name to an engine that can step.

    `report` is called with a stage and its share done (0 to 1).

    Raises:
        ModelNotFoundError, UnsupportedModelError, ConfigError: before memory is taken, wherever that can be known.
    """
    threads = in_force(plan_threads(read_cpus(), options.threads), os.environ)
    torch.set_num_threads(threads.threads)
    report("reading the model's description", 0.0)
    source = resolve(options.model)
    report("preparing the kernels", 0.0)
    kernels = load_kernels(options.kernels, options.activations)
    model = load_model(
        source,
        kernels,
        _DTYPES[options.dtype],
        lambda done: report("loading weights", done),
        quantize=options.quantize,
    )
    # What is rounded depends on the weights too, and the machine's limits are those of the products that are made.
    computing = load_kernels(options.kernels, model.activations)
    return _assemble(options, source, computing, model, str(threads))


def _assemble(options: WorkerOptions, source: ModelSource, kernels: Kernels, model: Model, threads: str) -> Engine:
    layout = model.layout(_DTYPES[options.kv_dtype or options.dtype])
    available = psutil.virtual_memory().available
    context = model.config.max_model_len
    pages = kv_pages(
        layout.page_bytes, options.kv_memory, available, context, options.max_running, low=options.low_memory
    )
    chunk = min(_MAX_CHUNK, options.max_step_tokens)
    book = open_book(model.config, pages, chunk, options.prefix_cache)
    limit = context_of(model.config, book, options.max_model_len)
    fingerprint = model.kv_identity(layout)
    config = SchedulerConfig(
        max_running=options.max_running,
        max_waiting=options.max_waiting,
        target_itl_s=options.target_itl_s,
        max_model_len=limit,
        max_step_tokens=options.max_step_tokens,
        max_chunk=chunk,
        retention=options.retention,
    )
    info = ModelInfo(
        name=options.served_name or source.name,
        architecture=model.config.architecture,
        vocab_size=model.config.vocab_size,
        max_model_len=limit,
        fingerprint=model.fingerprint,
        parameters=model.config.parameters,
        weight_bytes=model.weight_bytes,
        kv_bytes=pages * layout.page_bytes,
        retention_classes=RetentionPolicy(options.retention_classes).classes,
        kernels=kernels.name,
        activations=model.activations,
        threads=threads,
    )
    host = host_memory(options, layout.page_bytes, available - pages * layout.page_bytes)
    device = open_pages(layout, pages, host, kernels.copy_pages)
    runner = ModelRunner(model, kernels, layout, device)
    tiers = open_tiers(options, layout.page_bytes, host, kernels.copy_bytes, device.common)
    moves = None if tiers is None else PageMoves(tiers, device)
    scheduler = Scheduler(config, book, fingerprint, StepTimeModel(), moves)
    constraints = Constraints(lambda: load_grammars(source, info.vocab_size))
    cost = ModelCost.of(model.config, model.read_bytes, layout.dtype.itemsize)
    work = Work(cost, known_limits(kernels))
    return Engine(scheduler, book, runner, info, time.monotonic, constraints=constraints, work=work, moves=moves)
