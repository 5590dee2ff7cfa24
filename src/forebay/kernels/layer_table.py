"""The native backend's `Stack`: a table of addresses, made once for a model, and one call a step. No arithmetic.

The structures mirror those in `csrc/layers.cpp`, field for field.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import c_float, c_int64, c_void_p

import torch
from torch import Tensor

from forebay.kernels.checks import PreparedBatch, check_kv, check_tensor
from forebay.kernels.interface import EndWeights, KvLayout, LayerSettings, LayerWeights, StepBatch, Weight

_FLOATS = ("attn_norm", "qkv_bias", "q_norm", "k_norm", "output_bias", "mlp_norm", "gate_up_bias", "down_bias")
_MATRICES = ("qkv", "output", "gate_up", "down")
_NO_WINDOW = 1 << 40
_SPARE = 4
"""How many times larger than needed a step's memory may be; beyond, the rest is worth giving back."""
_SMALL = 1 << 20
"""Numbers (4 MiB of them) that are kept in any case."""


class _Matrix(ctypes.Structure):
    _fields_ = [("panels", c_void_p), ("format", c_int64), ("few", c_int64)]


class _Layer(ctypes.Structure):
    _fields_ = [
        *((name, c_void_p) for name in _FLOATS),
        *((name, _Matrix) for name in _MATRICES),
        ("window", c_int64),
    ]


class _Shape(ctypes.Structure):
    _fields_ = [
        *(
            (name, c_int64)
            for name in (
                "layers",
                "hidden",
                "query_heads",
                "kv_heads",
                "dim",
                "inner",
                "kv_bytes",
                "rounded",
                "page_stride",
                "layer_bytes",
            )
        ),
        ("cos_sin", c_void_p),
        ("eps", c_float),
        ("scale", c_float),
    ]


class _Ends(ctypes.Structure):
    _fields_ = [
        ("embed", _Matrix),
        ("head", _Matrix),
        ("final_norm", c_void_p),
        ("known", c_int64),
        ("vocabulary", c_int64),
    ]


class _Step(ctypes.Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("positions", "slots", "row_starts", "context", "page_table")),
        *((name, c_int64) for name in ("table_stride", "rows", "tokens")),
    ]


class NativeStack:
    """All layers of one model. It keeps the weights alive, and one buffer as large as the largest step so far."""

    def __init__(
        self,
        library: ctypes.CDLL,
        layers: Sequence[LayerWeights],
        settings: LayerSettings,
        ends: EndWeights,
        *,
        rounds_bf16: bool,
        prepare: Callable[[StepBatch], PreparedBatch],
        place: Callable[[Weight], tuple[int, int, int]],
        threads: int,
    ) -> None:
        """`rounds_bf16` is the kernels'; `prepare` checks a batch; `place` gives a packed matrix's address, format and
        number of rows that are few for it. Raises ValueError for weights that don't fit each other.
        """
        _check_layers(layers, settings)
        _check_ends(ends, layers[0].qkv.shape[1])
        self._run = library.forebay_layers
        self._decode = library.forebay_decode
        self._prepare = prepare
        self._layers = layers
        self._end_weights = ends
        self._settings = settings
        self._rounds_bf16 = rounds_bf16
        self._threads = threads
        self._table = (_Layer * len(layers))(
            *(_layer(layer, window, place) for layer, window in zip(layers, settings.windows, strict=True))
        )
        self._ends = _ends(ends, place)
        self._hidden = layers[0].qkv.shape[1]
        self._qkv = layers[0].qkv.shape[0]
        self._inner = layers[0].down.shape[1]
        self._work = _work_memory(0)
        self._known: tuple[tuple[int, int, KvLayout], _Shape] | None = None

    def run(self, hidden: Tensor, batch: StepBatch, pages: Tensor, layout: KvLayout) -> None:
        """See `Stack`. Raises ValueError for tensors of a wrong shape or type."""
        step = self._prepare(batch)
        check_tensor("hidden", hidden, torch.float32, (step.tokens, self._hidden))
        shape, work = self._checked(step, pages, layout)
        self._run(
            self._table,
            ctypes.byref(shape),
            ctypes.byref(_step(step)),
            pages.data_ptr(),
            hidden.data_ptr(),
            work,
            self._threads,
        )

    def decode(self, ids: Tensor, batch: StepBatch, pages: Tensor, layout: KvLayout) -> Tensor:
        """See `Stack`. Raises ValueError for tensors of a wrong shape or type, and for ids that the model has not."""
        step = self._prepare(batch)
        check_tensor("ids", ids, torch.int32, (step.tokens,))
        shape, work = self._checked(step, pages, layout)
        logits = torch.empty((step.tokens, self._ends.vocabulary))
        wrong = self._decode(
            self._table,
            ctypes.byref(shape),
            ctypes.byref(self._ends),
            ctypes.byref(_step(step)),
            ids.data_ptr(),
            pages.data_ptr(),
            work,
            work + 4 * step.tokens * self._hidden,
            logits.data_ptr(),
            self._threads,
        )
        if wrong >= 0:
            raise ValueError(f"token id {int(ids[wrong])} at {wrong} is outside the vocabulary of {self._ends.known}")
        return logits

    def _checked(self, step: PreparedBatch, pages: Tensor, layout: KvLayout) -> tuple[_Shape, int]:
        """The model's shape, and memory for hidden states and what is between the operations of a layer."""
        query_heads = check_kv((step.tokens, self._qkv), step, pages, layout.layers - 1, layout)
        if layout.layers != len(self._layers):
            raise ValueError(f"the pages have {layout.layers} layers, the model {len(self._layers)}")
        if step.positions_end > self._settings.cos_sin.shape[0]:
            raise ValueError(f"position {step.positions_end - 1} has no angles")
        floats = step.tokens * (2 * self._hidden + self._qkv + query_heads * layout.head_dim + 3 * self._inner)
        self._reserve(floats)
        return self._shape(pages.stride(0), query_heads, layout), self._work.data_ptr()

    def _shape(self, page_stride: int, query_heads: int, layout: KvLayout) -> _Shape:
        """The same from step to step, so it is made once."""
        key = (page_stride, query_heads, layout)
        if self._known is None or self._known[0] != key:
            shape = _Shape(
                layers=layout.layers,
                hidden=self._hidden,
                query_heads=query_heads,
                kv_heads=layout.kv_heads,
                dim=layout.head_dim,
                inner=self._inner,
                kv_bytes=layout.dtype.itemsize,
                rounded=self._rounds_bf16,
                page_stride=page_stride,
                layer_bytes=layout.page_bytes // layout.layers,
                cos_sin=self._settings.cos_sin.data_ptr(),
                eps=self._settings.eps,
                scale=self._settings.scale,
            )
            self._known = (key, shape)
        return self._known[1]

    def _reserve(self, floats: int) -> None:
        """Memory for a step. What a much larger one took goes back to the system: reading a prompt takes a hundred
        times what a decode step does, and touching it anew a hundredth of the prompt's time.
        """
        if not floats <= self._work.numel() <= max(_SPARE * floats, _SMALL):
            self._work = _work_memory(floats)


def _work_memory(floats: int) -> Tensor:
    """fp32 [at least `floats`] in a mapping of its own, which ends with the tensor; an allocator would keep it."""
    region = mmap.mmap(-1, max(4 * floats, mmap.PAGESIZE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a system without huge pages
        region.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(region, dtype=torch.float32)


def _step(batch: PreparedBatch) -> _Step:
    return _Step(
        positions=batch.positions,
        slots=batch.slots,
        row_starts=batch.row_starts,
        context=batch.context,
        page_table=batch.page_table,
        table_stride=batch.table_stride,
        rows=batch.rows,
        tokens=batch.tokens,
    )


def _layer(layer: LayerWeights, window: int | None, place: Callable[[Weight], tuple[int, int, int]]) -> _Layer:
    vectors = {name: getattr(layer, name) for name in _FLOATS}
    return _Layer(
        **{name: None if vector is None else vector.data_ptr() for name, vector in vectors.items()},
        **{name: _Matrix(*place(getattr(layer, name))) for name in _MATRICES},
        window=_NO_WINDOW if window is None else window,
    )


def _ends(ends: EndWeights, place: Callable[[Weight], tuple[int, int, int]]) -> _Ends:
    return _Ends(
        embed=_Matrix(*place(ends.embed)),
        head=_Matrix(*place(ends.head)),
        final_norm=ends.final_norm.data_ptr(),
        known=ends.embed.shape[0],
        vocabulary=ends.head.shape[0],
    )


def _check_ends(ends: EndWeights, hidden: int) -> None:
    for name, weight in (("the embedding", ends.embed), ("the head", ends.head)):
        if weight.shape[1] != hidden:
            raise ValueError(f"{name} is {weight.shape}, but hidden states have {hidden} values")
    check_tensor("the final norm", ends.final_norm, torch.float32, (hidden,))


def _check_layers(layers: Sequence[LayerWeights], settings: LayerSettings) -> None:
    hidden, inner = layers[0].qkv.shape[1], layers[0].down.shape[1]
    qkv, mixed = layers[0].qkv.shape[0], layers[0].output.shape[1]
    dim = settings.cos_sin.shape[1]
    lengths = dict(zip(_FLOATS, (hidden, qkv, dim, dim, hidden, hidden, 2 * inner, hidden), strict=True))
    shapes = dict(zip(_MATRICES, ((qkv, hidden), (hidden, mixed), (2 * inner, hidden), (hidden, inner)), strict=True))
    check_tensor("cos_sin", settings.cos_sin, torch.float32, tuple(settings.cos_sin.shape))
    for number, layer in enumerate(layers):
        for name, shape in shapes.items():
            if getattr(layer, name).shape != shape:
                raise ValueError(f"layer {number}: {name} is {getattr(layer, name).shape}, not {shape}")
        for name, length in lengths.items():
            vector = getattr(layer, name)
            if vector is not None:
                check_tensor(f"layer {number}: {name}", vector, torch.float32, (length,))
