"""What the comparison needs of each side, ours included. Not how any of them does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from forebay.bench.compare.processes import Command
from forebay.bench.compare.rows import Load, Row
from forebay.bench.compare.turns import Turn


@dataclass(frozen=True, slots=True)
class Setup:
    """What is the same for all sides."""

    model: str
    """Our name of the model, as for forebay serve."""
    threads: int
    load: Load
    gguf: str | None
    """The GGUF file that llama.cpp reads."""
    hf_folder: str | None
    """The Hugging Face folder that vLLM reads."""
    max_model_len: int
    """Tokens that a sequence in process may have."""
    timeout_s: float
    """Longest time for one process to do its work, or for one server to start."""
    quantize: str = "auto"
    """How our side holds weights, as for forebay serve."""
    activations: str = "int8"
    """How our side multiplies with quantised weights, as for forebay serve; or `both`, by two sides."""
    vllm_dtype: str = "auto"
    """What vLLM computes in: bfloat16, float32, or auto, the faster on this processor."""


class Side(Protocol):
    """One engine. After each method its processes have ended, or are stopped until the next turn."""

    name: str

    def describe(self) -> dict[str, Any]:
        """Version, weights, and the commands that are run. Raises PeerError when the side can't run at all."""

    def engine(self, rows: Sequence[Row], turn: Turn) -> None:
        """Measure rows of the kinds prefill and decode, each put into `turn` as it is done; so are its failures."""

    def server(self, port: int) -> Command:
        """The command that serves the model on a port of 127.0.0.1."""

    def small_server(self, port: int) -> Command | None:
        """The same in the mode that takes the least memory; None where the side has no such mode."""

    def close(self) -> None:
        """End the processes that wait for a next turn."""
