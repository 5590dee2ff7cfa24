"""vLLM's CPU build as a peer: its own interpreter runs `programs/vllm_engine.py` and `vllm serve`. Reads a bf16 folder.

Its own choice of compute threads leaves a core to its scheduler; unless VLLM_CPU_OMP_THREADS_BIND is set, we give it
all cores that we take ourselves.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from forebay.bench.compare import programs
from forebay.bench.compare.ours import parse_program, work
from forebay.bench.compare.processes import Command, PeerError, run
from forebay.bench.compare.rows import Row
from forebay.bench.compare.side import Setup, failed_turn
from forebay.bench.compare.turns import Turn

_VERSION_S = 60.0
_KV_GIB = 2
_BIND = "VLLM_CPU_OMP_THREADS_BIND"
_VERSION = "import importlib.metadata as m; print(m.version('vllm'), m.version('torch'))"


class Vllm:
    """vLLM as one interpreter has it installed."""

    name = "vllm"

    def __init__(self, python: Path, setup: Setup) -> None:
        """Raises PeerError when the interpreter or the weights are missing."""
        if setup.hf_folder is None:
            raise PeerError("there is no Hugging Face folder for it; name one with --hf-folder")
        if not python.is_file():
            raise PeerError(f"there is no interpreter {python}")
        self._python = str(python)
        self._setup = setup
        self._folder = setup.hf_folder
        cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[: setup.threads])
        self._environment: Mapping[str, str] = {
            "VLLM_CPU_KVCACHE_SPACE": str(_KV_GIB),
            "HF_HUB_OFFLINE": "1",
            _BIND: os.environ.get(_BIND, cores),
        }

    def describe(self) -> dict[str, Any]:
        """See `Side`."""
        vllm, torch = run(Command((self._python, "-c", _VERSION)), _VERSION_S).split()
        return {
            "version": vllm,
            "torch": torch,
            "weights": f"{Path(self._folder).name}, bf16",
            "engine": str(self._engine_command(())),
            "server": str(self.server(0)),
        }

    def engine(self, rows: Sequence[Row]) -> Turn:
        """See `Side`."""
        try:
            return parse_program(run(self._engine_command(rows), self._setup.timeout_s), rows)
        except PeerError as error:
            return failed_turn(rows, error)

    def server(self, port: int) -> Command:
        """See `Side`."""
        length = str(self._setup.max_model_len)
        program = (self._python, "-m", "vllm.entrypoints.cli.main", "serve", self._folder)
        options = ("--dtype", "bfloat16", "--max-model-len", length, "--host", "127.0.0.1", "--port", str(port))
        return Command((*program, *options), self._environment)

    def _engine_command(self, rows: Sequence[Row]) -> Command:
        engine = {
            "model": self._folder,
            "dtype": "bfloat16",
            "max_model_len": self._setup.max_model_len,
            "enable_prefix_caching": False,
            "disable_log_stats": True,
        }
        program = Path(programs.__path__[0]) / "vllm_engine.py"
        plan = json.dumps({"engine": engine, "rows": work(rows)})
        return Command((self._python, str(program), plan), self._environment)
