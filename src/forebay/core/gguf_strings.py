"""The strings of an array in a GGUF file, made when they are asked for. Where they lie is for `gguf.py` to find.

A vocabulary is an array of 50,000 strings and more. Most who read a file's header want none of them, and made at once
they take some megabytes, which Python gives back in part only: what else was made meanwhile lies between.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, overload

_LENGTH: Final = struct.Struct("<Q")


class Strings(Sequence[str]):
    """Strings with a length in front of each, known to be whole and UTF-8. Equal to a list of the same strings.

    Each is decoded anew when it is asked for, and one by its number after all before it were passed: who wants many of
    them makes a list. The file stays mapped.
    """

    __slots__ = ("_count", "_data", "_start")

    def __init__(self, data: mmap.mmap, start: int, count: int) -> None:
        self._data = data
        self._start = start
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        data, position, length_at = self._data, self._start, _LENGTH.unpack_from
        for _ in range(self._count):
            begin = position + _LENGTH.size
            position = begin + length_at(data, position)[0]
            yield data[begin:position].decode()

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return list(self)[index]
        at = index + self._count if index < 0 else index
        if not 0 <= at < self._count:
            raise IndexError(f"string {index} of {self._count}")
        return next(islice(self, at, None))

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self))

    def index(self, value: str, *bounds: int) -> int:
        """As that of a list: `Sequence` would ask for one string after the other by its number."""
        return list(self).index(value, *bounds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list | Strings) and len(other) == self._count and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]
