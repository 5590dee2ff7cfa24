"""The GGUF header reader: what a good file holds, and that no bad file gets past it or crashes it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.core.errors import UnsupportedModelError
from forebay.core.gguf import read_gguf

METADATA: dict[str, Any] = {
    "a.uint8": (200, gguf.GGUFValueType.UINT8),
    "a.int8": (-100, gguf.GGUFValueType.INT8),
    "a.uint16": (60000, gguf.GGUFValueType.UINT16),
    "a.int16": (-30000, gguf.GGUFValueType.INT16),
    "a.uint32": (4_000_000_000, gguf.GGUFValueType.UINT32),
    "a.int32": (-2_000_000_000, gguf.GGUFValueType.INT32),
    "a.float32": (0.5, gguf.GGUFValueType.FLOAT32),
    "a.bool": (True, gguf.GGUFValueType.BOOL),
    "a.string": ("héllo\n", gguf.GGUFValueType.STRING),
    "a.uint64": (1 << 60, gguf.GGUFValueType.UINT64),
    "a.int64": (-(1 << 60), gguf.GGUFValueType.INT64),
    "a.float64": (1e300, gguf.GGUFValueType.FLOAT64),
    "a.strings": (["a", "", "Ġb"], gguf.GGUFValueType.ARRAY),
    "a.numbers": ([1, -2, 3], gguf.GGUFValueType.ARRAY),
    "a.flags": ([True, False], gguf.GGUFValueType.ARRAY),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "good.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key, (value, kind) in METADATA.items():
        writer.add_key_value(key, value, kind)
    writer.add_tensor("matrix", np.arange(6, dtype=np.float32).reshape(2, 3))
    blocks = np.arange(4 * 34, dtype=np.uint8).reshape(4, 34)
    writer.add_tensor("blocks", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_reads_every_type_of_metadata(good: Path) -> None:
    metadata = read_gguf(good).metadata
    assert metadata.pop("general.architecture") == "llama"
    assert metadata == {key: value for key, (value, _) in METADATA.items()}


def test_reads_tensors(good: Path) -> None:
    file = read_gguf(good)
    assert file.version == 3
    assert list(file.tensors) == ["matrix", "blocks"]
    assert (file.tensors["matrix"].shape, file.tensors["matrix"].type.name) == ((2, 3), "F32")
    assert (file.tensors["blocks"].shape, file.tensors["blocks"].type.name) == ((4, 32), "Q8_0")
    for _ in range(2):  # a released tensor is read from the file again
        assert file.tensor_bytes("matrix").tobytes() == np.arange(6, dtype=np.float32).tobytes()
        assert file.tensor_bytes("blocks").tolist() == list(range(136))
        file.release("matrix")
    assert file.tensors["matrix"].offset == file.data_start
    assert file.size == good.stat().st_size


def header(*, magic: bytes = b"GGUF", version: int = 3, tensors: int = 0, keys: int = 0, rest: bytes = b"") -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, keys) + rest + bytes(64)


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def entry(key: str, kind: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + value


def row(name: str, shape: tuple[int, ...], kind: int, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


NESTED = b"".join(struct.pack("<IQ", 9, 1) for _ in range(9))
BAD = {
    "empty": (b"", "only 0 bytes"),
    "foreign": (b"PK\x03\x04" + bytes(100), "starts with"),
    "version": (header(version=1), "version is 1"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(64), "big-endian"),
    "tensor-count": (header(tensors=1 << 60), "announces 1152921504606846976 tensors"),
    "key-count": (header(keys=1 << 60), "metadata entries"),
    "string-length": (header(keys=1, rest=struct.pack("<Q", 1 << 62)), "cut short"),
    "not-utf8": (header(keys=1, rest=string(b"\xff\xfe")), "not UTF-8"),
    "value-type": (header(keys=1, rest=entry("k", 13, b"")), "unknown type 13"),
    "array-count": (header(keys=1, rest=entry("k", 9, struct.pack("<IQ", 0, 1 << 61))), "entries of 'k'"),
    "array-depth": (header(keys=1, rest=entry("k", 9, NESTED)), "unknown type 9"),
    "key-twice": (header(keys=2, rest=2 * entry("k", 0, b"\x01")), "'k' occurs twice"),
    "alignment": (header(keys=1, rest=entry("general.alignment", 4, bytes(4))), "no alignment"),
    "dimensions": (header(tensors=1, rest=row("t", (1,) * 5, 0)), "5 dimensions"),
    "empty-shape": (header(tensors=1, rest=row("t", (0,), 0)), "impossible shape"),
    "partial-block": (header(tensors=1, rest=row("t", (33,), 8)), "impossible shape"),
    "type": (header(tensors=1, rest=row("t", (32,), 99)), "ggml type 99"),
    "tensor-twice": (header(tensors=2, rest=2 * row("t", (1,), 0)), "'t' occurs twice"),
    "unaligned": (header(tensors=1, rest=row("t", (1,), 0, 5)), "not aligned"),
    "beyond-the-end": (header(tensors=1, rest=row("t", (1 << 30, 1 << 30, 1 << 30), 0)), "cut short"),
    "offset": (header(tensors=1, rest=row("t", (1,), 0, (1 << 63) + 32)), "cut short"),
}


@pytest.mark.parametrize("name", list(BAD))
def test_refuses(name: str, tmp_path: Path) -> None:
    content, reason = BAD[name]
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(UnsupportedModelError, match=reason) as caught:
        read_gguf(path)
    assert str(tmp_path) not in str(caught.value)


def test_refuses_a_header_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.core.gguf.MAX_HEADER_BYTES", 1 << 20)
    path = tmp_path / "bad.gguf"
    path.write_bytes(header(keys=1, rest=string(bytes(1 << 20))))
    with pytest.raises(UnsupportedModelError, match="longer than 1 MiB"):
        read_gguf(path)


def test_every_cut_is_noticed(good: Path, tmp_path: Path) -> None:
    content = good.read_bytes()
    path = tmp_path / "cut.gguf"
    last = max(tensor.offset + tensor.nbytes for tensor in read_gguf(good).tensors.values())
    for length in range(0, last, 3):
        path.write_bytes(content[:length])
        with pytest.raises(UnsupportedModelError):
            read_gguf(path)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_is_refused_or_stays_within_the_file(data: st.DataObject, good: Path, tmp_path: Path) -> None:
    content = bytearray(good.read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[at] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content)
    try:
        file = read_gguf(path)
    except UnsupportedModelError:
        return
    for tensor in file.tensors.values():
        assert len(file.tensor_bytes(tensor.name)) == tensor.nbytes


def test_an_array_of_strings_is_as_its_list(tmp_path: Path) -> None:
    words = [f"wörd {i}" for i in range(2500)]
    path = tmp_path / "words.gguf"
    body = string(b"words") + struct.pack("<IIQ", 9, 8, len(words)) + b"".join(string(w.encode()) for w in words)
    path.write_bytes(header(keys=1, rest=body))
    found = read_gguf(path).metadata["words"]
    assert len(found) == len(words)
    assert found == words == list(found)
    assert found != [*words[:-1], "other"]
    assert (found[0], found[-1], found[1234], found[5:7]) == (words[0], words[-1], words[1234], words[5:7])
    assert words[3] in found
    assert (found.index(words[7]), found.index(words[7], 3, 8)) == (7, 7)
    with pytest.raises(ValueError, match="not in list"):
        found.index("other")
    for outside in (2500, -2501):
        with pytest.raises(IndexError):
            found[outside]


def test_all_strings_are_passed_once_not_for_each_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"{i}" for i in range(50)]
    path = tmp_path / "words.gguf"
    body = string(b"words") + struct.pack("<IIQ", 9, 8, len(words)) + b"".join(string(w.encode()) for w in words)
    path.write_bytes(header(keys=1, rest=body))
    found = read_gguf(path).metadata["words"]

    def by_number(_self: object, index: int) -> str:
        raise AssertionError(f"string {index} was asked for by its number")

    monkeypatch.setattr(type(found), "__getitem__", by_number)
    assert found.index("49") == 49
    assert list(reversed(found)) == words[::-1]
    assert "49" in found
    assert found.count("7") == 1


def test_an_array_with_a_string_that_is_no_text_is_refused_at_once(tmp_path: Path) -> None:
    words = [b"fine"] * 2400 + [b"\xff"]
    path = tmp_path / "words.gguf"
    body = string(b"words") + struct.pack("<IIQ", 9, 8, len(words)) + b"".join(map(string, words))
    path.write_bytes(header(keys=1, rest=body))
    with pytest.raises(UnsupportedModelError, match="not UTF-8"):
        read_gguf(path)
