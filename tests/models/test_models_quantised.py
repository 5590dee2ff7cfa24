"""Models kept quantised: the bits of the dequantised model, the memory of the file, and quantising at load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gguf
import pytest
import torch
from tests.models import gguf_files, tiny
from tests.models.harness import HandRunner, HandSequence, matrices
from torch import Tensor

from forebay.core.ggml_types import GGML_TYPES
from forebay.kernels import STORED_BITS, Kernels, QuantisedMatrix, StoredRows, Weight, load_kernels
from forebay.kernels.stored import stored_bits
from forebay.kernels.stored_blocks import quantised_matrix
from forebay.kernels.torch_backend import TorchKernels
from forebay.models import Model, ModelSource, load_model
from forebay.models.dequant import dequantize_rows
from forebay.models.loader import Quantize

WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2}
TYPES = {kind.name: kind for kind in GGML_TYPES.values()}


class CountingKernels(TorchKernels):
    """The torch backend posing as one that keeps matrices quantised, and noting how each was packed."""

    keeps_quantised = True

    def __init__(self) -> None:
        super().__init__()
        self._packed: list[tuple[Weight, int | None]] = []

    def pack(self, weight: Tensor, dtype: torch.dtype) -> Weight:
        return self._note(super().pack(weight, dtype), None)

    def pack_quantised(self, matrix: QuantisedMatrix, dtype: torch.dtype) -> Weight:
        return self._note(super().pack(matrix.dequantised(torch.float32), dtype), matrix.bits)

    def pack_stored(self, parts: Sequence[StoredRows], dtype: torch.dtype) -> Weight:
        packed = super().pack_stored(parts, dtype)
        return packed if stored_bits(parts) else self._note(packed, None)  # quantised ones are noted above

    def _note(self, packed: Weight, bits: int | None) -> Weight:
        self._packed.append((packed, bits))
        return packed

    def bits_of(self, model: Model) -> list[int | None]:
        """Of the model's matrices in the model's order, whatever the order in which they were packed."""
        bits = {id(packed): found for packed, found in self._packed}
        assert len(bits) == len(matrices(model))
        return [bits[id(weight)] for weight in matrices(model)]


def logits_of(model: Model) -> Tensor:
    """All logits of the prompt for each of three chunk sizes, computed beside each other."""
    runner = HandRunner(model)
    sequences = [HandSequence(list(tiny.PROMPT), chunk) for chunk in (1, 16, 53)]
    while live := [sequence for sequence in sequences if sequence.next_tokens()]:
        runner.step(live)
    return torch.stack([torch.cat(sequence.logits) for sequence in sequences])


def gguf_source(path: Path, kind: str, others: dict[str, str] | None = None) -> ModelSource:
    config = tiny.llama(**WIDE, tie_word_embeddings=True)
    gguf_files.write(tiny.build(config), path / "tiny.gguf", kind, others=others)
    return ModelSource("tiny", path / "tiny.gguf", "gguf")


@pytest.mark.parametrize("kind", STORED_BITS)
def test_blocks_taken_apart_hold_the_weights_that_dequantising_gives(kind: str) -> None:
    plain = torch.randn(11, 512, generator=torch.Generator().manual_seed(5)).numpy()
    raw = gguf_files.quantize(plain, kind)
    expected = torch.empty(plain.shape)
    dequantize_rows(raw, TYPES[kind], expected)
    matrix = quantised_matrix([StoredRows(TYPES[kind], raw)])
    assert torch.equal(matrix.dequantised(torch.float32), expected)
    assert matrix.scales.dtype is (torch.float32 if kind == "Q4_K" else torch.float16)


@pytest.mark.parametrize("kind", STORED_BITS)
def test_a_model_kept_quantised_gives_the_bits_of_the_dequantised_one(
    kind: str, tmp_path: Path, native: Kernels
) -> None:
    source = gguf_source(tmp_path, kind)
    kept, plain = (load_model(source, native, torch.float32, quantize=how) for how in ("auto", "none"))
    assert kept.weight_bytes < plain.weight_bytes / 2
    assert kept.fingerprint != plain.fingerprint
    logits = logits_of(kept)
    assert torch.equal(logits, logits_of(plain))
    assert torch.equal(logits[0], logits[2]), "nor does the size of the chunks matter"


@pytest.mark.parametrize("kind", STORED_BITS)
def test_inputs_rounded_to_8_bits(kind: str, tmp_path: Path, native: Kernels, torch_kernels: Kernels) -> None:
    source = gguf_source(tmp_path, kind)
    kept = load_model(source, native, torch.float32)
    rounding = load_model(source, load_kernels("native", "int8"), torch.float32)
    logits, exact = logits_of(rounding), logits_of(kept)
    assert torch.equal(logits[0], logits[1])
    assert torch.equal(logits[0], logits[2]), "the size of the chunks doesn't matter"
    torchs = logits_of(load_model(source, load_kernels("torch", "int8"), torch.float32))
    # Where the two add up in another order, now and then an input is rounded the other way.
    assert (logits - torchs).norm() < 0.25 * (logits - exact).norm()
    assert 0.001 < (logits - exact).norm() / exact.norm() < 0.1
    assert rounding.fingerprint != kept.fingerprint, "their KV caches differ"


def test_without_quantised_weights_nothing_is_rounded(tmp_path: Path, native: Kernels) -> None:
    source = ModelSource("tiny", tiny.save(tiny.build(tiny.llama()), tmp_path), "hf")
    plain, rounding = (
        load_model(source, kernels, torch.float32) for kernels in (native, load_kernels("native", "int8"))
    )
    assert plain.fingerprint == rounding.fingerprint, "their KV caches are the same"
    assert torch.equal(logits_of(plain), logits_of(rounding))


def test_matrices_of_mixed_types_are_fused_where_their_bits_agree(tmp_path: Path) -> None:
    others = {"v_proj": "Q4_0", "up_proj": "Q8_0", "down_proj": "Q6_K", "embed": "Q8_0"}
    kernels = CountingKernels()
    model = load_model(gguf_source(tmp_path, "Q4_1", others), kernels, torch.float32)
    assert kernels.bits_of(model) == [8, *(2 * [4, 4, None, None])]  # embedding; per layer qkv, output, gate+up, down


def test_int4_keeps_what_is_stored_and_quantises_the_rest(tmp_path: Path) -> None:
    kernels = CountingKernels()
    source = gguf_source(tmp_path, "Q8_0", {"down_proj": "F16"})
    model = load_model(source, kernels, torch.float32, quantize="int4")
    assert kernels.bits_of(model) == [8, *(2 * [8, 8, 8, 4])]


@pytest.mark.parametrize(("quantize", "bits"), [("int4", 4), ("int8", 8), ("auto", None), ("none", None)])
def test_plain_weights_quantised_at_load(quantize: Quantize, bits: int | None, tmp_path: Path) -> None:
    source = ModelSource("tiny", tiny.save(tiny.build(tiny.llama()), tmp_path), "hf")
    kernels = CountingKernels()
    model = load_model(source, kernels, torch.float32, quantize=quantize)
    ends = None if bits is None else 8  # embedding and head
    assert kernels.bits_of(model) == [ends, *(3 * 4 * [bits]), ends]


@pytest.mark.parametrize(("quantize", "error"), [("int4", 0.5), ("int8", 0.05)])
def test_both_backends_agree_on_a_model_quantised_at_load(
    quantize: Quantize, error: float, tmp_path: Path, native: Kernels, torch_kernels: Kernels
) -> None:
    source = ModelSource("tiny", tiny.save(tiny.build(tiny.qwen2()), tmp_path), "hf")
    ours = logits_of(load_model(source, native, torch.float32, quantize=quantize))
    torchs = logits_of(load_model(source, torch_kernels, torch.float32, quantize=quantize))
    plain = logits_of(load_model(source, torch_kernels, torch.float32))
    assert (ours - torchs).abs().max() < 1e-4
    assert 0 < (ours - plain).norm() / plain.norm() < error


def test_inputs_that_are_no_multiple_of_32_stay_plain(tmp_path: Path) -> None:
    source = ModelSource("tiny", tiny.save(tiny.build(tiny.llama(intermediate_size=72)), tmp_path), "hf")
    kernels = CountingKernels()
    model = load_model(source, kernels, torch.float32, quantize="int8")
    assert kernels.bits_of(model) == [8, *(3 * [8, 8, 8, None]), 8]


def test_the_torch_backend_dequantises(tmp_path: Path, torch_kernels: Kernels) -> None:
    source = gguf_source(tmp_path, "Q4_1")
    kept, plain = (load_model(source, torch_kernels, torch.bfloat16, quantize=how) for how in ("auto", "none"))
    assert kept.weight_bytes == plain.weight_bytes
    assert kept.fingerprint == plain.fingerprint


def test_types_known_here_are_those_of_the_format() -> None:
    for kind, bits in STORED_BITS.items():
        block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
        assert bits <= 8 * size / block <= bits + 1
