"""The native backend: checks tensors and hands their addresses to the compiled library. No arithmetic in Python.

Results are bitwise independent of what else is in a call; the C++ sources say how. The threads are those of torch's
OpenMP pool.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from forebay.core.activations import Activations
from forebay.core.copying import CopyBytes
from forebay.kernels.checks import PreparedBatch, check_kv, check_tensor, prepare_batch
from forebay.kernels.crossover import USUAL_CROSSOVER, MatrixKind, known_crossovers
from forebay.kernels.draw import Pick, native_picks
from forebay.kernels.interface import (
    EndWeights,
    KvLayout,
    LayerSettings,
    LayerWeights,
    Stack,
    StepBatch,
    Weight,
)
from forebay.kernels.layer_table import NativeStack
from forebay.kernels.library import ROUNDED_INPUTS, load_library
from forebay.kernels.panels import PLAIN_FORMATS, NativeWeight, PanelPacker
from forebay.kernels.quantised import QuantisedMatrix
from forebay.kernels.stored import StoredRows

_NO_WINDOW = 1 << 40
_TIMED_OUTPUTS = 4096
"""More outputs tell no more about what is faster, and a head has ten times as many."""


class NativeKernels:
    """The compiled backend; see `Kernels` for what each operation means. Wrong shapes or types raise ValueError."""

    keeps_quantised = True

    def __init__(
        self, library: Path, name: str = "native", threads: int | None = None, activations: Activations = "fp32"
    ) -> None:
        """Load `library`, as `build.built_library` gives it; without `threads`, as many as torch uses now."""
        self.name = name
        self.activations = activations
        self._library = load_library(library)
        self.rounds_bf16 = activations != "fp32" and bool(self._library.forebay_multiplies_bf16())
        self._threads = threads or torch.get_num_threads()
        self._packer = PanelPacker(self._library)
        self.copy_bytes: CopyBytes = self._library.forebay_copy_past_caches
        self._batch: PreparedBatch | None = None
        self._few: dict[MatrixKind, int] = {}

    def pack(self, weight: Tensor, dtype: torch.dtype) -> Weight:
        return self._packer.pack(weight, dtype)

    def pack_quantised(self, matrix: QuantisedMatrix, dtype: torch.dtype) -> Weight:
        return self._packer.pack_quantised(matrix)

    def pack_stored(self, parts: Sequence[StoredRows], dtype: torch.dtype) -> Weight:
        return self._packer.pack_stored(parts, dtype)

    def settle(self, weights: Sequence[Weight]) -> None:
        """What number of rows is few, for each kind of quantised matrix: as kept for this machine, or measured now.
        With 8-bit inputs there is one way for all numbers of rows.
        """
        if self.activations == "int8":
            return
        kinds = {_kind(own): own for own in map(_own, weights) if own.format not in PLAIN_FORMATS.values()}
        timers = {kind: partial(self._seconds, weight) for kind, weight in kinds.items()}
        self._few |= known_crossovers(timers, self.name, self._threads)

    def _seconds(self, weight: NativeWeight, rows: int, few: int) -> float:
        """Time of one product of `rows` rows with (a part of) a matrix."""
        outputs, inputs = min(weight.shape[0], _TIMED_OUTPUTS), weight.shape[1]
        x, out = torch.ones(rows, inputs), torch.empty(rows, outputs)
        pointers = (x.data_ptr(), weight.address, None, None, out.data_ptr())
        start = time.perf_counter()
        self._library.forebay_linear(*pointers, rows, outputs, inputs, weight.format, few, self._threads)
        return time.perf_counter() - start

    def linear(self, x: Tensor, weight: Weight, bias: Tensor | None = None, residual: Tensor | None = None) -> Tensor:
        weight = _own(weight)
        outputs, inputs = weight.shape
        tokens = x.shape[0]
        check_tensor("x", x, torch.float32, (tokens, inputs))
        if bias is not None:
            check_tensor("bias", bias, torch.float32, (outputs,))
        if residual is not None:
            check_tensor("residual", residual, torch.float32, (tokens, outputs))
        out = torch.empty((tokens, outputs))
        self._library.forebay_linear(
            x.data_ptr(),
            weight.address,
            None if bias is None else bias.data_ptr(),
            None if residual is None else residual.data_ptr(),
            out.data_ptr(),
            tokens,
            outputs,
            inputs,
            weight.format,
            self._few_rows(weight),
            self._threads,
        )
        return out

    def embed(self, ids: Tensor, weight: Weight) -> Tensor:
        weight = _own(weight)
        outputs, inputs = weight.shape
        check_tensor("ids", ids, torch.int32, (ids.shape[0],))
        out = torch.empty((ids.shape[0], inputs))
        wrong = self._library.forebay_embed(
            ids.data_ptr(), weight.address, out.data_ptr(), ids.shape[0], outputs, inputs, weight.format
        )
        if wrong >= 0:
            raise ValueError(f"token id {int(ids[wrong])} at {wrong} is outside the vocabulary of {outputs}")
        return out

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        tokens, size = x.shape
        check_tensor("x", x, torch.float32, (tokens, size))
        check_tensor("weight", weight, torch.float32, (size,))
        out = torch.empty((tokens, size))
        self._library.forebay_rms_norm(
            x.data_ptr(), weight.data_ptr(), out.data_ptr(), tokens, size, eps, self._threads
        )
        return out

    def rope_and_store(  # noqa: PLR0917  (one call a layer on the hot path)
        self,
        qkv: Tensor,
        cos_sin: Tensor,
        batch: StepBatch,
        pages: Tensor,
        layer: int,
        layout: KvLayout,
        q_norm: Tensor | None = None,
        k_norm: Tensor | None = None,
        eps: float = 0.0,
    ) -> None:
        step = self._prepare(batch)
        dim = layout.head_dim
        check_tensor("qkv", qkv, torch.float32, (step.tokens, qkv.shape[-1]))
        query_heads = check_kv((step.tokens, qkv.shape[1]), step, pages, layer, layout)
        check_tensor("cos_sin", cos_sin, torch.float32, (cos_sin.shape[0], dim))
        if step.positions_end > cos_sin.shape[0]:
            raise ValueError(f"position {step.positions_end - 1} has no angles: there are {cos_sin.shape[0]}")
        for norm in (q_norm, k_norm):
            if norm is not None:
                check_tensor("head norm", norm, torch.float32, (dim,))
        keys, values = _addresses(pages, layer, layout)
        self._library.forebay_rope_and_store(
            qkv.data_ptr(),
            cos_sin.data_ptr(),
            step.positions,
            step.slots,
            None if q_norm is None else q_norm.data_ptr(),
            None if k_norm is None else k_norm.data_ptr(),
            keys,
            values,
            pages.stride(0),
            step.tokens,
            query_heads,
            layout.kv_heads,
            dim,
            eps,
            layout.dtype.itemsize,
            self._threads,
        )

    def attention(  # noqa: PLR0917
        self,
        qkv: Tensor,
        batch: StepBatch,
        pages: Tensor,
        layer: int,
        layout: KvLayout,
        scale: float,
        window: int | None,
    ) -> Tensor:
        step = self._prepare(batch)
        check_tensor("qkv", qkv, torch.float32, (step.tokens, qkv.shape[-1]))
        query_heads = check_kv((step.tokens, qkv.shape[1]), step, pages, layer, layout)
        if window is not None and window < 1:
            raise ValueError(f"a window of {window} tokens sees nothing")
        out = torch.empty((step.tokens, query_heads * layout.head_dim))
        keys, values = _addresses(pages, layer, layout)
        self._library.forebay_attention(
            qkv.data_ptr(),
            out.data_ptr(),
            keys,
            values,
            pages.stride(0),
            step.row_starts,
            step.context,
            step.page_table,
            step.table_stride,
            step.rows,
            query_heads,
            layout.kv_heads,
            layout.head_dim,
            _NO_WINDOW if window is None else window,
            scale,
            layout.dtype.itemsize,
            self.rounds_bf16,
            self._threads,
        )
        return out

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        tokens, both = gate_up.shape
        check_tensor("gate_up", gate_up, torch.float32, (tokens, both // 2 * 2))
        out = torch.empty((tokens, both // 2))
        self._library.forebay_silu_mul(gate_up.data_ptr(), out.data_ptr(), tokens, both // 2, self._threads)
        return out

    def draw(self, logits: Tensor, picks: Sequence[Pick]) -> list[int]:
        rows, size = logits.shape
        check_tensor("logits", logits, torch.float32, (rows, size))
        out = (ctypes.c_int64 * len(picks))()
        self._library.forebay_draw(logits.data_ptr(), size, native_picks(picks, rows), len(picks), out, self._threads)
        return list(out)

    def copy_pages(self, pages: Tensor, pairs: list[tuple[int, int]]) -> None:
        if not pairs:
            return
        if not pages.is_contiguous():
            raise ValueError("the page store is not contiguous")
        numbers = torch.tensor(pairs, dtype=torch.int64)
        if int(numbers.min()) < 0 or int(numbers.max()) >= pages.shape[0]:
            raise ValueError(f"a page to copy is outside the {pages.shape[0]} pages")
        page_bytes = pages.stride(0) * pages.itemsize
        self._library.forebay_copy_pages(pages.data_ptr(), numbers.data_ptr(), len(pairs), page_bytes)

    def stack(self, layers: tuple[LayerWeights, ...], settings: LayerSettings, ends: EndWeights) -> Stack | None:
        return NativeStack(
            self._library,
            layers,
            settings,
            ends,
            rounds_bf16=self.rounds_bf16,
            prepare=self._prepare,
            place=self._place,
            threads=self._threads,
        )

    def read(self, buffer: Tensor) -> None:
        """Read an fp32 tensor once with all threads and do nothing with it: measures the machine's memory."""
        check_tensor("buffer", buffer, torch.float32, (buffer.numel(),))
        self._library.forebay_read(buffer.data_ptr(), buffer.numel(), self._threads)

    def _place(self, weight: Weight) -> tuple[int, int, int]:
        """A packed matrix's address, format, and number of rows that are few for it, or that inputs are rounded."""
        own = _own(weight)
        return own.address, own.format, self._few_rows(own)

    def _few_rows(self, weight: NativeWeight) -> int:
        plain = weight.format in PLAIN_FORMATS.values()
        rounds = self.rounds_bf16 if plain else self.activations == "int8"
        return ROUNDED_INPUTS if rounds else self._few.get(_kind(weight), USUAL_CROSSOVER)

    def _prepare(self, batch: StepBatch) -> PreparedBatch:
        """Addresses of the batch's tensors, checked when the batch is first seen."""
        if self._batch is None or self._batch.batch is not batch:
            self._batch = prepare_batch(batch)
        return self._batch


def _own(weight: Weight) -> NativeWeight:
    if not isinstance(weight, NativeWeight):
        raise TypeError(f"a weight packed by another backend: {type(weight).__name__}")
    return weight


def _kind(weight: NativeWeight) -> MatrixKind:
    return MatrixKind(weight.format.name, *weight.shape)


def _addresses(pages: Tensor, layer: int, layout: KvLayout) -> tuple[int, int]:
    """Where K and V of `layer` begin in page 0."""
    half = layout.page_bytes // (2 * layout.layers)
    keys = pages.data_ptr() + 2 * layer * half
    return keys, keys + half
