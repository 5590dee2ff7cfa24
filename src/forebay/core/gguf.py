"""Reads the header of a GGUF file (versions 2 and 3): metadata, tensor table, and where each tensor's bytes lie.

Not a dequantiser and not a judge of models: it knows the file format, and which ranges of the file are what. The file
is mapped, not read, so the cost is the header's (tens of milliseconds for a vocabulary of 50,000). Every count, length
and offset in the file is checked against the file's size before anything is allocated, since a model file may come
from anywhere. numpy is imported only for views of the file's bytes: who reads no more than the header needs none.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from forebay.core.errors import UnsupportedModelError
from forebay.core.ggml_types import GGML_TYPES, GgmlType
from forebay.core.gguf_strings import Strings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_HEADER_BYTES: Final = 128 << 20
"""Far above real headers (a vocabulary of 256,000 with merges is about 15 MB); bounds what a hostile file can cost."""
MAX_ARRAY_DEPTH: Final = 4
MAX_DIMENSIONS: Final = 4

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_STRING: Final = 8
_ARRAY: Final = 9
_SCALARS: Final[dict[int, struct.Struct]] = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_AT_ONCE: Final = 1024
"""Strings of an array that are checked at a time."""
_U32: Final = _SCALARS[4]
_U64: Final = _SCALARS[10]


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One row of the tensor table. `shape` is in row-major order: a matrix is (outputs, inputs)."""

    name: str
    shape: tuple[int, ...]
    type: GgmlType
    offset: int
    """Of the first byte, from the start of the file."""
    nbytes: int


class GgufFile:
    """An opened GGUF file: its metadata (arrays as lists, of strings as `Strings`) and tensor table, and views of its
    bytes, which keep the mapping alive."""

    def __init__(
        self, data: mmap.mmap, version: int, metadata: dict[str, Any], tensors: dict[str, GgufTensor], data_start: int
    ) -> None:
        self._map = data
        self.version = version
        self.metadata = metadata
        self.tensors = tensors
        self.data_start = data_start
        """Bytes of header, padding included; tensor data begins here."""

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return len(self._map)

    def byte_range(self, start: int, end: int) -> NDArray[np.uint8]:
        """Bytes [start, end) of the file, read-only, not copied; cut at the end of the file."""
        import numpy as np  # noqa: PLC0415  (see the module's docstring)

        return np.frombuffer(self._map, dtype=np.uint8)[start:end]

    def tensor_bytes(self, name: str) -> NDArray[np.uint8]:
        """The raw (still quantised) bytes of tensor `name`, read-only, not copied. KeyError when there is none."""
        tensor = self.tensors[name]
        return self.byte_range(tensor.offset, tensor.offset + tensor.nbytes)

    def release(self, name: str) -> None:
        """Give back the memory that reading the tensor took; a later read takes it from the file again."""
        tensor = self.tensors[name]
        start = tensor.offset // mmap.PAGESIZE * mmap.PAGESIZE
        self._map.madvise(mmap.MADV_DONTNEED, start, tensor.offset + tensor.nbytes - start)


def read_gguf(path: Path) -> GgufFile:
    """Map the file and read its header.

    Raises OSError when it can't be opened and UnsupportedModelError when it is not a GGUF file of a known version, is
    cut short, or contradicts itself; the message says which.
    """
    with path.open("rb") as file:
        size = path.stat().st_size
        if size < len(_MAGIC) + 20:
            raise UnsupportedModelError(f"{path.name} is not a GGUF file: it has only {size} bytes.")
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    cursor = _Cursor(data, path.name)
    version = _read_version(cursor)
    tensor_count, metadata_count = cursor.number(_U64), cursor.number(_U64)
    cursor.expect_entries(tensor_count, 24, "tensors")
    cursor.expect_entries(metadata_count, 13, "metadata entries")
    metadata = _read_metadata(cursor, metadata_count)
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment % 8 or alignment > 1 << 20:
        raise cursor.error(f"general.alignment is {alignment!r}, which is no alignment")
    tensors, data_start = _read_tensors(cursor, tensor_count, alignment)
    return GgufFile(data, version, metadata, tensors, data_start)


class _Cursor:
    """A reading position in the header that can't leave the file."""

    def __init__(self, data: mmap.mmap, name: str) -> None:
        self.data = data
        self.name = name
        self.position = 0
        self.size = len(data)
        self.end = min(self.size, MAX_HEADER_BYTES)

    def error(self, what: str) -> UnsupportedModelError:
        return UnsupportedModelError(f"{self.name} is not a usable GGUF file: {what}.")

    def take(self, count: int) -> int:
        """Step over `count` bytes and return where they start."""
        start = self.position
        if count > self.end - start:
            raise self._ends_early(count)
        self.position = start + count
        return start

    def number(self, kind: struct.Struct) -> Any:
        return kind.unpack_from(self.data, self.take(kind.size))[0]

    def string(self) -> str:
        return self.strings(1)[0]

    def strings(self, count: int) -> list[str]:
        """`count` length-prefixed strings; one tight loop, since vocabularies have 100,000 of them."""
        data, end, position, length_at = self.data, self.end, self.position, _U64.unpack_from
        found: list[str] = []
        try:
            for _ in range(count):
                start = position + 8
                position = start + length_at(data, position)[0]
                if position > end:
                    raise self._ends_early(position - start)
                found.append(data[start:position].decode())
        except struct.error:
            raise self._ends_early(8) from None
        except UnicodeDecodeError:
            raise self.error(f"the string at byte {start} is not UTF-8") from None
        self.position = position
        return found

    def string_array(self, count: int) -> Strings:
        """`count` such strings, checked, to be made when they are asked for."""
        start = self.position
        for done in range(0, count, _AT_ONCE):
            self.strings(min(_AT_ONCE, count - done))
        return Strings(self.data, start, count)

    def expect_entries(self, count: int, least_bytes: int, what: str) -> None:
        """Refuse a count that can't fit into what is left, before anything is made for it."""
        if count * least_bytes > self.end - self.position:
            raise self.error(f"it announces {count} {what}, which can't fit into its header")

    def _ends_early(self, wanted: int) -> UnsupportedModelError:
        if self.end < self.size:
            return self.error(f"its header is longer than {MAX_HEADER_BYTES >> 20} MiB")
        return self.error(f"it ends at byte {self.size}, but {wanted} bytes were to follow in the header (cut short?)")


def _read_version(cursor: _Cursor) -> int:
    magic = cursor.data[cursor.take(4) : cursor.position]
    if magic != _MAGIC:
        raise cursor.error(f"it starts with {magic!r} instead of {_MAGIC!r}")
    version = int(cursor.number(_U32))
    if version not in _VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        why = "it is big-endian" if swapped in _VERSIONS else f"its version is {version}"
        raise cursor.error(f"{why}; little-endian versions 2 and 3 are supported")
    return version


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(count):
        key = cursor.string()
        if key in metadata:
            raise cursor.error(f"the metadata key {key!r} occurs twice")
        metadata[key] = _read_value(cursor, cursor.number(_U32), key, 0)
    return metadata


def _read_value(cursor: _Cursor, kind: int, key: str, depth: int) -> Any:
    if kind in _SCALARS:
        return cursor.number(_SCALARS[kind])
    if kind == _STRING:
        return cursor.string()
    if kind == _ARRAY and depth < MAX_ARRAY_DEPTH:
        return _read_array(cursor, key, depth)
    raise cursor.error(f"the metadata key {key!r} has a value of unknown type {kind}")


def _read_array(cursor: _Cursor, key: str, depth: int) -> Sequence[Any]:
    kind, count = cursor.number(_U32), cursor.number(_U64)
    scalar = _SCALARS.get(kind)
    cursor.expect_entries(count, scalar.size if scalar else 8, f"entries of {key!r}")
    if scalar:
        raw = cursor.data[cursor.take(count * scalar.size) : cursor.position]
        return list(chain.from_iterable(scalar.iter_unpack(raw)))
    if kind == _STRING:
        return cursor.string_array(count)
    return [_read_value(cursor, kind, key, depth + 1) for _ in range(count)]


def _read_tensors(cursor: _Cursor, count: int, alignment: int) -> tuple[dict[str, GgufTensor], int]:
    """The tensor table with absolute offsets, and where the data section starts."""
    rows = [_read_tensor_row(cursor) for _ in range(count)]
    data_start = -(-cursor.position // alignment) * alignment
    tensors: dict[str, GgufTensor] = {}
    for name, shape, kind, relative in rows:
        if name in tensors:
            raise cursor.error(f"the tensor {name!r} occurs twice")
        if relative % alignment:
            raise cursor.error(f"the tensor {name!r} is not aligned to {alignment} bytes")
        nbytes = prod(shape) // kind.block * kind.block_bytes
        offset = data_start + relative
        if offset + nbytes > cursor.size:
            raise cursor.error(
                f"the tensor {name!r} ends at byte {offset + nbytes}, the file at {cursor.size} (cut short?)"
            )
        tensors[name] = GgufTensor(name, shape, kind, offset, nbytes)
    return tensors, data_start


def _read_tensor_row(cursor: _Cursor) -> tuple[str, tuple[int, ...], GgmlType, int]:
    name = cursor.string()
    dimensions = cursor.number(_U32)
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise cursor.error(f"the tensor {name!r} has {dimensions} dimensions")
    # The file gives the fastest-varying dimension first.
    shape = tuple(reversed([int(cursor.number(_U64)) for _ in range(dimensions)]))
    number, relative = cursor.number(_U32), cursor.number(_U64)
    kind = GGML_TYPES.get(number)
    if kind is None:
        raise UnsupportedModelError(f"{cursor.name}: the tensor {name!r} has ggml type {number}, which is not known.")
    if 0 in shape or shape[-1] % kind.block:
        raise cursor.error(f"the tensor {name!r} of type {kind.name} has the impossible shape {shape}")
    return name, shape, kind, int(relative)
