"""Loading: what is held, what is reported, what names the result, and the refusal when memory is short."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.models import gguf_files, tiny
from tests.models.harness import HandRunner, greedy, matrices
from torch import Tensor, nn

from forebay.core.errors import ConfigError
from forebay.kernels import Kernels, StoredRows, Weight
from forebay.kernels.torch_backend import TorchKernels
from forebay.models import ModelSource, describe, load_model
from forebay.models.loader import Quantize
from forebay.models.memory import check_memory, estimate_bytes, weight_bytes


def save(folder: Path, *, tied: bool = False) -> ModelSource:
    return ModelSource("tiny", tiny.save(tiny.build(tiny.llama(tie_word_embeddings=tied)), folder), "hf")


class CountingKernels(TorchKernels):
    """The torch backend, keeping the shape of each matrix that it packs, and with how many threads of torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.packed: list[tuple[int, int]] = []
        self.threads: set[int] = set()

    def pack(self, weight: Tensor, dtype: torch.dtype) -> Weight:
        return self._note(super().pack(weight, dtype))

    def pack_stored(self, parts: Sequence[StoredRows], dtype: torch.dtype) -> Weight:
        return self._note(super().pack_stored(parts, dtype))

    def _note(self, packed: Weight) -> Weight:
        self.packed.append(packed.shape)
        self.threads.add(torch.get_num_threads())
        return packed


@pytest.mark.parametrize("tied", [True, False])
def test_fuses_matrices_and_stores_tied_embeddings_once(tied: bool, tmp_path: Path) -> None:
    kernels = CountingKernels()
    model = load_model(save(tmp_path, tied=tied), kernels, torch.bfloat16)
    layer = [(128, 64), (64, 64), (192, 64), (64, 96)]  # q+k+v, output, gate+up, down
    shapes = [(128, 64), *(3 * layer), *([] if tied else [(128, 64)])]
    assert [weight.shape for weight in matrices(model)] == shapes
    assert sorted(kernels.packed) == sorted(shapes), "each of them once"
    table = 256 * 16 * 4
    assert model.weight_bytes == weight_bytes(model.config, 2) + table


def test_progress_rises_to_one(tmp_path: Path, torch_kernels: Kernels) -> None:
    shares: list[float] = []
    load_model(save(tmp_path), torch_kernels, torch.float32, shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) == 5, "the embedding, three layers, the head"


def test_leaves_torchs_threads_as_they_were(tmp_path: Path) -> None:
    source, before, kernels = save(tmp_path), torch.get_num_threads(), CountingKernels()
    torch.set_num_threads(2)
    try:
        load_model(source, kernels, torch.float32)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert kernels.threads == {1}


def test_a_matrix_that_cant_be_read_ends_loading(tmp_path: Path) -> None:
    class Failing(CountingKernels):
        def pack_stored(self, parts: Sequence[StoredRows], dtype: torch.dtype) -> Weight:
            if len(self.packed) == 3:
                raise OSError("the disk is gone")
            return super().pack_stored(parts, dtype)

    with pytest.raises(OSError, match="the disk is gone"):
        load_model(save(tmp_path), Failing(), torch.float32)


def test_bf16_weights_and_pages_stay_near_fp32(tmp_path: Path, kernels: Kernels) -> None:
    source = save(tmp_path)
    logits = []
    for dtype in (torch.float32, torch.bfloat16):
        runner = HandRunner(load_model(source, kernels, dtype), kv_dtype=dtype)
        (sequence,) = greedy(runner, tiny.PROMPT, 1, (64,))
        logits.append(sequence.logits[0])
    error = (logits[1] - logits[0]).norm() / logits[0].norm()
    assert 0 < error < 0.02


def test_reads_weights_spread_over_files(tmp_path: Path, torch_kernels: Kernels) -> None:
    source = save(tmp_path)
    whole = load_model(source, torch_kernels, torch.float32)
    tensors = load_file(tmp_path / "model.safetensors")
    names = sorted(tensors)
    shards = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for file, part in shards.items():
        save_file({name: tensors[name] for name in part}, tmp_path / file)
    index = {"weight_map": {name: file for file, part in shards.items() for name in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "model.safetensors").unlink()
    spread = load_model(source, torch_kernels, torch.float32)
    assert spread.fingerprint == whole.fingerprint
    answers = [greedy(HandRunner(model), tiny.PROMPT, 4, (64,))[0].ids for model in (whole, spread)]
    assert answers[0] == answers[1]


def test_serves_a_shorter_context_than_the_model_has(tmp_path: Path, torch_kernels: Kernels) -> None:
    source = save(tmp_path)
    short = dataclasses.replace(describe(source), max_model_len=100)
    model = load_model(source, torch_kernels, torch.float32, config=short)
    assert model.config.max_model_len == 100
    assert model.weight_bytes == weight_bytes(short, 4) + 100 * 16 * 4


def test_fingerprint_names_config_weights_and_dtype(tmp_path: Path, torch_kernels: Kernels) -> None:
    first, second = (save(tmp_path / name) for name in ("first", "second"))
    original = load_model(first, torch_kernels, torch.float32).fingerprint
    assert len(bytes.fromhex(original)) == 32
    assert load_model(second, torch_kernels, torch.float32).fingerprint == original
    assert load_model(first, torch_kernels, torch.bfloat16).fingerprint != original
    config = json.loads((second.path / "config.json").read_text())
    (second.path / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-5}))
    assert load_model(second, torch_kernels, torch.float32).fingerprint != original
    tensors = load_file(first.path / "model.safetensors")
    tensors["model.norm.weight"] += 1
    save_file(tensors, first.path / "model.safetensors")
    assert load_model(first, torch_kernels, torch.float32).fingerprint != original


def test_fingerprint_of_gguf_follows_the_weights(tmp_path: Path, torch_kernels: Kernels) -> None:
    oracle = tiny.build(tiny.llama())
    prints = []
    for step in range(3):
        path = tmp_path / f"{step}.gguf"
        gguf_files.write(oracle, path)
        prints.append(load_model(ModelSource("tiny", path, "gguf"), torch_kernels, torch.float32).fingerprint)
        if step:
            next(iter(oracle.parameters())).data.mul_(1.01)
    assert prints[0] == prints[1] != prints[2]


def test_memory_is_checked_before_it_is_taken(
    tmp_path: Path, torch_kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = save(tmp_path)
    needed = estimate_bytes(describe(source), 4)
    check_memory(describe(source), 4, available=needed)
    with pytest.raises(ConfigError, match=r"needs 0\.\d MiB .* 0\.\d MiB is available"):
        check_memory(describe(source), 4, available=needed - 1)
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 1000}))
    with pytest.raises(ConfigError, match="available"):
        load_model(source, torch_kernels, torch.float32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_backends_agree_on_what_16_bit_files_hold(
    dtype: torch.dtype, tmp_path: Path, native: Kernels, torch_kernels: Kernels
) -> None:
    source = ModelSource("tiny", tiny.save(nn.Module.to(tiny.build(tiny.llama()), dtype), tmp_path), "hf")
    models = [load_model(source, kernels, torch.float32) for kernels in (native, torch_kernels)]
    logits = [greedy(HandRunner(model), tiny.PROMPT, 1, (64,))[0].logits[0] for model in models]
    assert (logits[0] - logits[1]).abs().max() < 1e-4
    assert models[0].fingerprint == models[1].fingerprint


@pytest.mark.parametrize(
    ("kind", "quantize", "dtype", "most"),
    [
        ("Q4_0", "auto", torch.bfloat16, 0),  # packed from the file
        ("BF16", "auto", torch.bfloat16, 0),
        ("Q4_0", "none", torch.bfloat16, 2),  # decoded first
        ("Q8_0", "none", torch.float32, 4),
        ("F16", "int4", torch.bfloat16, 3.5),  # as bf16, then apart
    ],
)
def test_memory_for_packing_is_counted_where_it_is_needed(
    kind: str,
    quantize: Quantize,
    dtype: torch.dtype,
    most: float,
    tmp_path: Path,
    native: Kernels,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gguf_files.write(tiny.build(tiny.llama()), tmp_path / "tiny.gguf", kind)
    source, seen = ModelSource("tiny", tmp_path / "tiny.gguf", "gguf"), []
    monkeypatch.setattr("forebay.models.loader.check_memory", lambda *_, packing: seen.append(packing))
    load_model(source, native, dtype, quantize=quantize)
    assert seen == [192 * 64 * most], "of gate and up, the largest matrix"
