"""Loads a model's weights into the kernels' own layout, one fused matrix at a time. Not the file formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from forebay.core.gguf import read_gguf
from forebay.kernels import Kernels, LayerWeights, Weight
from forebay.models.config import ModelConfig
from forebay.models.fingerprint import fingerprint
from forebay.models.memory import check_memory
from forebay.models.rope import cos_sin_table
from forebay.models.source import ModelSource, describe_gguf, describe_hf
from forebay.models.tensors import Part, part_shapes
from forebay.models.transformer import Model, ModelWeights
from forebay.models.weights import WeightReader
from forebay.models.weights_gguf import GgufWeights
from forebay.models.weights_hf import HfWeights


def load_model(
    source: ModelSource,
    kernels: Kernels,
    dtype: torch.dtype,
    on_progress: Callable[[float], None] | None = None,
    config: ModelConfig | None = None,
) -> Model:
    """Load `source` with matrices held as `dtype` (bf16 or fp32).

    `on_progress` is called with the share done, rising to 1.0. `config` stands in for what `describe(source)` says, to
    serve a shorter context than the model's. Beyond the final size, memory holds one fused matrix at a time. Raises
    UnsupportedModelError or ConfigError before memory is taken.
    """
    reader: WeightReader
    if source.kind == "gguf":
        file = read_gguf(source.path)
        config = config or describe_gguf(file)
        reader = GgufWeights(file, config)
    else:
        config = config or describe_hf(source.path)
        reader = HfWeights(source.path)
    check_memory(config, dtype.itemsize)
    with _one_thread():
        weights = _Builder(reader, kernels, dtype, config, on_progress or _ignore).build()
    return Model(config, weights, kernels, fingerprint(config, str(dtype), reader.identity()))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep torch to the calling thread.

    The operations of loading are short: they gain little from several threads, and become many times slower where other
    processes hold the cores, since each then waits for a thread that is not running.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _ignore(_share: float) -> None:
    """Nobody asked for progress."""


class _Builder:
    """Reads, fuses and packs, and counts what is done."""

    def __init__(
        self,
        reader: WeightReader,
        kernels: Kernels,
        dtype: torch.dtype,
        config: ModelConfig,
        on_progress: Callable[[float], None],
    ) -> None:
        self._reader = reader
        self._kernels = kernels
        self._dtype = dtype
        self._config = config
        self._shapes = part_shapes(config)
        self._on_progress = on_progress
        self._done = 0

    def build(self) -> ModelWeights:
        embed = self._matrix(None, Part.EMBED)
        layers = tuple(self._layer(number) for number in range(self._config.layers))
        head = embed if self._config.tied_embeddings else self._matrix(None, Part.HEAD)
        final_norm = self._fused((Part.FINAL_NORM,), None, torch.float32)
        return ModelWeights(embed, layers, final_norm, head, cos_sin_table(self._config))

    def _layer(self, number: int) -> LayerWeights:
        return LayerWeights(
            attn_norm=self._fused((Part.ATTN_NORM,), number, torch.float32),
            qkv=self._matrix(number, Part.Q, Part.K, Part.V),
            qkv_bias=self._vector(number, Part.Q_BIAS, Part.K_BIAS, Part.V_BIAS),
            q_norm=self._vector(number, Part.Q_NORM),
            k_norm=self._vector(number, Part.K_NORM),
            output=self._matrix(number, Part.O),
            output_bias=self._vector(number, Part.O_BIAS),
            mlp_norm=self._fused((Part.MLP_NORM,), number, torch.float32),
            gate_up=self._matrix(number, Part.GATE, Part.UP),
            gate_up_bias=self._vector(number, Part.GATE_BIAS, Part.UP_BIAS),
            down=self._matrix(number, Part.DOWN),
            down_bias=self._vector(number, Part.DOWN_BIAS),
        )

    def _matrix(self, layer: int | None, *parts: Part) -> Weight:
        return self._kernels.pack(self._fused(parts, layer, self._dtype), self._dtype)

    def _vector(self, layer: int, *parts: Part) -> Tensor | None:
        """None when the model has no such parts."""
        return self._fused(parts, layer, torch.float32) if (parts[0], layer) in self._shapes else None

    def _fused(self, parts: tuple[Part, ...], layer: int | None, dtype: torch.dtype) -> Tensor:
        """The parts below each other in one tensor."""
        shapes = [self._shapes[part, layer] for part in parts]
        fused = torch.empty((sum(shape[0] for shape in shapes), *shapes[0][1:]), dtype=dtype)
        row = 0
        for part, shape in zip(parts, shapes, strict=True):
            self._reader.read_into(part, layer, fused[row : row + shape[0]])
            row += shape[0]
        self._done += fused.numel()
        self._on_progress(self._done / self._config.parameters)
        return fused
