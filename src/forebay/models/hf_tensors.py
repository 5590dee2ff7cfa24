"""Finds and checks the tensors of a Hugging Face folder by its safetensors headers. Reads no data; no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from forebay.core.errors import UnsupportedModelError
from forebay.models.config import ModelConfig
from forebay.models.tensors import Part, check_tensors, hf_name, part_shapes

READABLE_TYPES: Final = ("F32", "F16", "BF16")
_IGNORED: Final = ("rotary_emb.inv_freq",)
"""Buffers that old checkpoints carry and that follow from the config."""
_MAX_HEADER_BYTES: Final = 100_000_000
"""The format's own limit."""


@dataclass(frozen=True, slots=True)
class HfTensor:
    """Where one tensor of the folder is: its file, type and shape, and the range of its bytes in the file."""

    file: Path
    type: str
    shape: tuple[int, ...]
    start: int
    end: int


class _Entry(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def hf_files(folder: Path) -> list[Path]:
    """The safetensors files of the folder: those of the index, else model.safetensors. Raises UnsupportedModelError."""
    index = folder / "model.safetensors.index.json"
    single = folder / "model.safetensors"
    if not index.is_file():
        if single.is_file():
            return [single]
        raise UnsupportedModelError("The model's folder has no model.safetensors and no index of several.")
    try:
        weight_map = msgspec.json.decode(index.read_bytes(), type=dict[str, Any]).get("weight_map")
        names = sorted(set(msgspec.convert(weight_map, dict[str, str]).values()))
    except msgspec.MsgspecError as error:
        raise UnsupportedModelError(f"The model's index of safetensors files can't be read: {error}") from None
    files = [folder / name for name in names if "/" not in name]
    missing = [name for name in names if "/" in name or not (folder / name).is_file()]
    if missing:
        raise UnsupportedModelError(f"The model's folder lacks {', '.join(missing[:3])}, which its index names.")
    return files


def hf_tensors(folder: Path) -> dict[str, HfTensor]:
    """All tensors of the folder by name. Raises UnsupportedModelError when a header can't be read."""
    tensors: dict[str, HfTensor] = {}
    for file in hf_files(folder):
        base, entries = _read_header(file)
        size = file.stat().st_size
        for name, entry in entries.items():
            start, end = (base + offset for offset in entry.data_offsets)
            if not base <= start <= end <= size:
                raise UnsupportedModelError(f"{file.name} is cut short or damaged: {name} lies outside the file.")
            tensors[name] = HfTensor(file, entry.dtype, tuple(entry.shape), start, end)
    return tensors


def _read_header(file: Path) -> tuple[int, dict[str, _Entry]]:
    """Where the data starts, and the entries of the header."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > min(_MAX_HEADER_BYTES, file.stat().st_size - 8):
            raise UnsupportedModelError(f"{file.name} is not a usable safetensors file: its header can't fit into it.")
        content = stream.read(length)
    try:
        raw = msgspec.json.decode(content, type=dict[str, Any])
        raw.pop("__metadata__", None)
        return 8 + length, msgspec.convert(raw, dict[str, _Entry])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnsupportedModelError(f"{file.name} is not a usable safetensors file: {error}") from None


def check_hf_tensors(folder: Path, config: ModelConfig) -> None:
    """Raises UnsupportedModelError naming the tensors that are missing, unexpected, misshapen or of unreadable type."""
    found = hf_tensors(folder)
    # A tied model may have been saved with its copy of the embeddings.
    ignored = (*_IGNORED, Part.HEAD.value) if config.tied_embeddings else _IGNORED
    check_tensors(
        {hf_name(part, layer): shape for (part, layer), shape in part_shapes(config).items()},
        {name: tensor.shape for name, tensor in found.items()},
        {name: tensor.type for name, tensor in found.items()},
        READABLE_TYPES,
        ignored,
    )
