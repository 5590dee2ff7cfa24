"""Names a model by what it computes: config, weights and dtype. The root of every page id: equal means the same pages.

Not a checksum of the files: it hashes headers, sizes and a sample of every tensor, since reading gigabytes would delay
each start. Two checkpoints that differ in a few single numbers only may share a fingerprint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from blake3 import blake3

from forebay.core.gguf import GgufFile
from forebay.models.config import ModelConfig
from forebay.models.hf_tensors import HfTensor

_SAMPLE_BYTES: Final = 2048
"""Read at the start, the middle and the end of each tensor."""


def fingerprint(config: ModelConfig, dtype: str, weights: bytes) -> str:
    """Hex digest (64 characters) over the config, the dtype that weights are held in, and the weights' identity."""
    return blake3(msgspec.json.encode([config, dtype, weights.hex()])).hexdigest()


def gguf_identity(file: GgufFile) -> bytes:
    """32 bytes over the file's size, its whole header and samples of its tensors."""
    digest = blake3(file.size.to_bytes(8, "little"))
    digest.update(file.byte_range(0, file.data_start).data)
    for tensor in file.tensors.values():
        for start, end in _samples(tensor.offset, tensor.offset + tensor.nbytes):
            digest.update(file.byte_range(start, end).data)
    return digest.digest()


def hf_identity(tensors: Mapping[str, HfTensor]) -> bytes:
    """32 bytes over names, types, shapes and samples of the tensors, however they are spread over files."""
    digest = blake3()
    streams = {file: file.open("rb") for file in {tensor.file for tensor in tensors.values()}}
    try:
        for name, tensor in sorted(tensors.items()):
            digest.update(msgspec.json.encode([name, tensor.type, tensor.shape]))
            for start, end in _samples(tensor.start, tensor.end):
                streams[tensor.file].seek(start)
                digest.update(streams[tensor.file].read(end - start))
    finally:
        for stream in streams.values():
            stream.close()
    return digest.digest()


def _samples(start: int, end: int) -> Iterable[tuple[int, int]]:
    """The ranges of [start, end) that are hashed: all of a small tensor, three samples of a large one."""
    if end - start <= 3 * _SAMPLE_BYTES:
        return [(start, end)]
    middle = (start + end) // 2
    return [
        (start, start + _SAMPLE_BYTES),
        (middle, middle + _SAMPLE_BYTES),
        (end - _SAMPLE_BYTES, end),
    ]
