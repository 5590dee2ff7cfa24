"""vLLM's CPU build as a peer: its own interpreter runs `programs/vllm_engine.py` and `vllm serve`.

It reads a Hugging Face folder, and computes in bf16 where the processor can; where it can't, torch's bf16 products are
many times slower than its fp32 ones, so fp32 is what vLLM does best in. Its own choice of compute threads leaves a core
to its scheduler; unless VLLM_CPU_OMP_THREADS_BIND is set, we give it all cores that we take ourselves.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from forebay.bench.compare import programs
from forebay.bench.compare.processes import Command, PeerError, run
from forebay.bench.compare.program import Program
from forebay.bench.compare.rows import Row
from forebay.bench.compare.side import Setup
from forebay.bench.compare.turns import Turn
from forebay.kernels.cpu import cpu_info

_FACTS_S = 60.0
_KV_GIB = 2
_DAY_S = 86400
_BIND = "VLLM_CPU_OMP_THREADS_BIND"
_CONNECTOR = "DecodeBenchConnector"
_FACTS = """
import importlib.metadata as metadata, importlib.util as util, pathlib
folder = pathlib.Path(util.find_spec("vllm").origin).parent / "distributed/kv_transfer/kv_connector/v1"
fills = (folder / "decode_bench_connector.py").is_file()
print(metadata.version("vllm"), metadata.version("torch"), "fills" if fills else "computes")
"""
_BF16_FLAGS = {"avx512f", "avx512_bf16", "amx_bf16", "bf16"}
"""With one of these torch computes bf16 products about as fast as fp32 ones, or faster."""


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
        self._dtype = best_dtype(cpu_info().flags) if setup.vllm_dtype == "auto" else setup.vllm_dtype
        self._fills = False
        self._program = Program(setup.timeout_s)
        cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[: setup.threads])
        self._environment: Mapping[str, str] = {
            "VLLM_CPU_KVCACHE_SPACE": str(_KV_GIB),
            "HF_HUB_OFFLINE": "1",
            # Its clock goes on while its processes are stopped, also for a step that was then under way.
            "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": str(_DAY_S),
            _BIND: os.environ.get(_BIND, cores),
        }

    def describe(self) -> dict[str, Any]:
        """See `Side`."""
        vllm, torch, cache = run(Command((self._python, "-c", _FACTS)), _FACTS_S).split()
        self._fills = cache == "fills"
        return {
            "version": vllm,
            "torch": torch,
            "weights": f"{Path(self._folder).name}, {self._dtype}",
            "prompts_of_decode_rows": f"filled in by {_CONNECTOR}" if self._fills else "computed",
            "engine": str(self._engine_command()),
            "server": str(self.server(0)),
        }

    def engine(self, rows: Sequence[Row], turn: Turn) -> None:
        """See `Side`."""
        self._program.measure(self._engine_command, rows, turn)

    def close(self) -> None:
        """See `Side`."""
        self._program.close()

    def server(self, port: int) -> Command:
        """See `Side`."""
        length = str(self._setup.max_model_len)
        program = (self._python, "-m", "vllm.entrypoints.cli.main", "serve", self._folder)
        options = ("--dtype", self._dtype, "--max-model-len", length, "--host", "127.0.0.1", "--port", str(port))
        return Command((*program, *options), self._environment)

    def small_server(self, port: int) -> Command | None:
        """See `Side`: it has no such mode."""

    def _engine_command(self) -> Command:
        engine: dict[str, Any] = {
            "model": self._folder,
            "dtype": self._dtype,
            "max_model_len": self._setup.max_model_len,
            "enable_prefix_caching": False,
            "disable_log_stats": True,
        }
        if self._fills:
            # Filled once at the start, every page is memory that is really there, as after a prompt.
            extra = {"startup_fill": True}
            engine["kv_transfer_config"] = {
                "kv_connector": _CONNECTOR,
                "kv_role": "kv_both",
                "kv_connector_extra_config": extra,
            }
        program = Path(programs.__path__[0]) / "vllm_engine.py"
        plan = json.dumps({"engine": engine, "fill": self._fills})
        return Command((self._python, str(program), plan), self._environment)


def best_dtype(flags: Sequence[str]) -> str:
    """The type of numbers that vLLM computes fastest in on a processor with these flags."""
    return "bfloat16" if _BF16_FLAGS.intersection(flags) else "float32"
