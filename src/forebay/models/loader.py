"""Loads a model's weights into the kernels' own layout, one fused matrix at a time. Not the file formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from math import prod
from typing import Literal

import torch
from torch import Tensor

from forebay.core.activations import Activations
from forebay.core.gguf import read_gguf
from forebay.kernels import GROUP, PLAIN_KINDS, STORED_BITS, Kernels, LayerWeights, Weight, quantise
from forebay.models.config import ModelConfig
from forebay.models.fingerprint import fingerprint
from forebay.models.memory import LOADERS, check_memory
from forebay.models.rope import cos_sin_table
from forebay.models.source import ModelSource, describe_gguf, describe_hf
from forebay.models.tensors import Part, part_shapes
from forebay.models.transformer import Model, ModelWeights
from forebay.models.weights import WeightReader
from forebay.models.weights_gguf import GgufWeights
from forebay.models.weights_hf import HfWeights

Quantize = Literal["auto", "none", "int4", "int8"]
_BITS = {"int4": 4, "int8": 8}
_BYTES = {4: 0.75, 8: 1.0625}
"""Of a quantised weight in memory, at most: with fp32 scales and offsets at 4 bits, fp16 scales at 8."""
_APART_BYTES = 1.5
"""Of a quantised weight as values, scales and offsets, at most."""
_FP32_BYTES = 4
_FUSED = ((Part.Q, Part.K, Part.V), (Part.O,), (Part.GATE, Part.UP), (Part.DOWN,))
"""The matrices of a layer."""


def load_model(  # noqa: PLR0917  (all but three have defaults)
    source: ModelSource,
    kernels: Kernels,
    dtype: torch.dtype,
    on_progress: Callable[[float], None] | None = None,
    config: ModelConfig | None = None,
    quantize: Quantize = "auto",
) -> Model:
    """Load `source` with matrices held as `dtype` (bf16 or fp32), or quantised:

    - "auto": matrices that the file holds as Q4_0, Q4_1, Q4_K or Q8_0 stay as they are where the kernels can compute on
      them, or round what they are multiplied with. Matrices that are fused into one need the same number of bits.
    - "int4", "int8": all others are quantised too, in groups of 32 inputs, from `dtype`; with "int4" the embedding and
      the head to 8 bits. Matrices whose inputs are no multiple of 32 stay plain.
    - "none": all matrices are held as `dtype`.

    `on_progress` is called with the share done, rising to 1.0. `config` stands in for what `describe(source)` says, to
    serve a shorter context than the model's. Matrices that are held as the file holds them are packed from the mapped
    file; of others memory holds two at a time beyond the final size. Raises UnsupportedModelError or ConfigError before
    memory is taken.
    """
    reader: WeightReader
    if source.kind == "gguf":
        file = read_gguf(source.path)
        config = config or describe_gguf(file)
        reader = GgufWeights(file, config)
    else:
        config = config or describe_hf(source.path)
        reader = HfWeights(source.path)
    builder = _Builder(reader, kernels, dtype, config=config, quantize=quantize, on_progress=on_progress or _ignore)
    builder.check_memory()
    weights = builder.build()
    identity = fingerprint(config, builder.held, reader.identity())
    return Model(config, weights, kernels, identity, builder.activations)


def _ignore(_share: float) -> None:
    """Nobody asked for progress."""


class _Builder:
    """Reads, fuses and packs, and counts what is done."""

    def __init__(
        self,
        reader: WeightReader,
        kernels: Kernels,
        dtype: torch.dtype,
        *,
        config: ModelConfig,
        quantize: Quantize,
        on_progress: Callable[[float], None],
    ) -> None:
        self._reader = reader
        self._kernels = kernels
        self._dtype = dtype
        self._config = config
        self._shapes = part_shapes(config)
        self._quantize = quantize
        worth_keeping = kernels.keeps_quantised or kernels.activations == "int8"
        self._keeps_stored = quantize in _BITS or (quantize == "auto" and worth_keeping)
        self._on_progress = on_progress
        self._quantised = False
        self._plain = False

    @property
    def activations(self) -> Activations:
        """How far inputs are rounded that are multiplied with the weights that were built."""
        return self._rounded[0] if self._rounded else "fp32"

    @property
    def _rounded(self) -> tuple[Activations, ...]:
        """What inputs are rounded to, beside the weights for which they are; the coarsest first."""
        found: list[Activations] = []
        if self._quantised and self._kernels.activations == "int8":
            found.append("int8")
        if self._plain and self._dtype is torch.bfloat16 and self._kernels.rounds_bf16:
            found.append("bf16")
        return tuple(found)

    @property
    def held(self) -> str:
        """How the weights that were built are held and multiplied, for the model's fingerprint."""
        held = (str(self._dtype), *([self._quantize] if self._quantised else []))
        return ":".join((*held, *self._rounded))

    def check_memory(self) -> None:
        """Raises ConfigError when the model does not fit into what is free."""
        matrices = [(Part.EMBED,)] if self._config.tied_embeddings else [(Part.EMBED,), (Part.HEAD,)]
        keys = [(None, *parts) for parts in matrices]
        keys += [(layer, *parts) for layer in range(self._config.layers) for parts in _FUSED]
        total = sum(self._size(*key) * self._held_bytes(*key) for key in keys)
        packing = max(int(self._size(*key) * self._packing_bytes(*key)) for key in keys)
        check_memory(self._config, total / self._config.matrix_parameters, packing=packing)

    def _size(self, layer: int | None, *parts: Part) -> int:
        """Weights of the parts."""
        return sum(prod(self._shapes[part, layer]) for part in parts)

    def _held_bytes(self, layer: int | None, *parts: Part) -> float:
        """Of a weight, packed."""
        bits = self._bits(layer, *parts) if self._kernels.keeps_quantised else None
        return self._dtype.itemsize if bits is None else _BYTES[bits]

    def _packing_bytes(self, layer: int | None, *parts: Part) -> float:
        """Of a weight, beside the packed one until that is done."""
        as_stored, kept = self._as_stored(layer, *parts), self._kernels.keeps_quantised
        decoded = 0 if as_stored else self._dtype.itemsize
        if self._bits(layer, *parts) is None or (as_stored and kept):
            return decoded
        return decoded + _APART_BYTES + (0 if kept else _FP32_BYTES)

    def build(self) -> ModelWeights:
        """Two threads read and pack, each with operations of its own thread only: those are short, gain little from
        several threads, and take many times longer where other processes hold the cores, since each waits for all.
        """
        with ThreadPoolExecutor(LOADERS, "loading", torch.set_num_threads, (1,)) as pool:
            embed = pool.submit(self._matrix, None, Part.EMBED)
            head = embed if self._config.tied_embeddings else pool.submit(self._matrix, None, Part.HEAD)
            layers = [pool.submit(self._layer, number) for number in range(self._config.layers)]
            try:
                self._follow([embed, head, *layers])
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        final_norm = self._fused((Part.FINAL_NORM,), None, torch.float32)
        held = tuple(layer.result() for layer in layers)
        return ModelWeights(embed.result(), held, final_norm, head.result(), cos_sin_table(self._config))

    def _follow(self, parts: Sequence[Future[Weight] | Future[LayerWeights]]) -> None:
        """Wait for the parts in order and report how far they are."""
        for done, part in enumerate(parts, start=1):
            part.result()
            self._on_progress(done / len(parts))

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
        bits = self._bits(layer, *parts)
        self._quantised |= bits is not None
        self._plain |= bits is None
        if self._as_stored(layer, *parts):
            with ExitStack() as reading:
                stored = [reading.enter_context(self._reader.stored(part, layer)) for part in parts]
                return self._kernels.pack_stored(stored, self._dtype)
        plain = self._fused(parts, layer, self._dtype)
        if bits is None:
            return self._kernels.pack(plain, self._dtype)
        return self._kernels.pack_quantised(quantise(plain, bits), self._dtype)

    def _as_stored(self, layer: int | None, *parts: Part) -> bool:
        """Whether the parts, fused, are packed from what the file holds; the others are decoded or quantised before."""
        if self._bits(layer, *parts) is None:
            return all(self._reader.stored_kind(part, layer).name in PLAIN_KINDS for part in parts)
        return self._stored_bits(layer, *parts) is not None

    def _bits(self, layer: int | None, *parts: Part) -> int | None:
        """The bits at which the parts, fused, will be held; None: plain."""
        stored = self._stored_bits(layer, *parts)
        if stored is not None or self._shapes[parts[0], layer][1] % GROUP:
            return stored
        if self._quantize == "int4" and parts[0] in {Part.EMBED, Part.HEAD}:
            return 8
        return _BITS.get(self._quantize)

    def _stored_bits(self, layer: int | None, *parts: Part) -> int | None:
        """The bits at which the file holds all of the parts, where they may be kept so."""
        if not self._keeps_stored:
            return None
        bits = {STORED_BITS.get(self._reader.stored_kind(part, layer).name) for part in parts}
        return bits.pop() if len(bits) == 1 else None

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
        return fused
