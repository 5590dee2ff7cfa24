"""Our own side: a process of ours for the engine's rows, and `forebay serve`, both by this interpreter."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir
from typing import Any

from forebay import __version__
from forebay.bench.compare.processes import Command
from forebay.bench.compare.program import Program
from forebay.bench.compare.rows import OURS, Row
from forebay.bench.compare.side import Setup
from forebay.bench.compare.turns import Turn
from forebay.core.cpus import read_cpus
from forebay.engine.threads import plan_threads, thread_settings
from forebay.models import ModelConfig, describe, resolve

_PROGRAM = "forebay.bench.compare.programs.ours_engine"
_PAGE_TOKENS = 16
_KV_BYTES = 2


class Ours:
    """Forebay as this interpreter would run it."""

    def __init__(self, setup: Setup, name: str = OURS) -> None:
        """`setup.activations` is fp32 or int8."""
        self.name = name
        self._setup = setup
        self._program = Program(setup.timeout_s)
        self._caches = Path(gettempdir()) / f"forebay-compare-{token_hex(8)}"  # made by the servers

    def describe(self) -> dict[str, Any]:
        """See `Side`."""
        return {
            "version": __version__,
            "torch": version("torch"),
            "python": platform.python_version(),
            "weights": f"{resolve(self._setup.model).path.name} ({' '.join(self._weights())})",
            "engine": str(self._command(())),
            "server": str(self.server(0)),
        }

    def engine(self, rows: Sequence[Row], turn: Turn) -> None:
        """See `Side`; the machine's limits and the model's sizes are in the turn's extras, also without any row."""
        self._program.measure(lambda: self._command(rows), rows, turn)

    def server(self, port: int) -> Command:
        """See `Side`. The KV cache holds what the load needs, as that of the peers. The one on disk is new: an earlier
        run had the same prompts.
        """
        return self._server(port)

    def small_server(self, port: int) -> Command:
        """See `Side`."""
        return self._server(port, "--low-memory")

    def close(self) -> None:
        """See `Side`."""
        self._program.close()
        shutil.rmtree(self._caches, ignore_errors=True)

    def _server(self, port: int, *more: str) -> Command:
        config = describe(resolve(self._setup.model))
        memory = self._setup.load.cached_tokens * token_bytes(config)
        arguments = ("serve", self._setup.model, "--port", str(port), "--kv-memory", str(memory))
        folder = str(self._caches / str(port))
        same = ("--cache-dir", folder, "--threads", str(self._setup.threads), *self._weights())
        return Command((sys.executable, "-m", "forebay", *arguments, *same, *more))

    def _weights(self) -> tuple[str, ...]:
        """Options that say how weights are held and multiplied."""
        return ("--quantize", self._setup.quantize, "--activations", self._setup.activations)

    def _command(self, rows: Sequence[Row]) -> Command:
        # As the server sets them for its worker, before torch is imported.
        settings = thread_settings(plan_threads(read_cpus(), self._setup.threads), os.environ)
        return Command((sys.executable, "-m", _PROGRAM, json.dumps(self._options(rows))), settings)

    def _options(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Options under which each measurement runs as one kind of step: no prefix cache, room for the most rows."""
        config = describe(resolve(self._setup.model))
        tokens = max((row.sequences * (row.context + row.tokens + 1024) for row in rows), default=1024)
        return {
            "model": self._setup.model,
            "threads": self._setup.threads,
            "quantize": self._setup.quantize,
            "activations": self._setup.activations,
            "prefix_cache": False,
            "target_itl_s": 60.0,
            "kv_memory": tokens * token_bytes(config),
            "max_running": max((row.sequences for row in rows), default=1),
        }


def token_bytes(config: ModelConfig) -> int:
    """Bytes of K and V of one token in bf16."""
    return 2 * config.layers * config.kv_heads * config.head_dim * _KV_BYTES
