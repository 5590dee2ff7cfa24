"""What reads a checkpoint's tensors one at a time into memory that the loader gave it. Not a holder of tensors."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from torch import Tensor

from forebay.core.ggml_types import GgmlType
from forebay.kernels import StoredRows
from forebay.models.tensors import Part


class WeightReader(Protocol):
    """One checkpoint. Its tensors were checked before (`source.describe`), so reading can't fail but for the disk."""

    def identity(self) -> bytes:
        """A digest that tells these weights from others (see `fingerprint`)."""

    def read_into(self, part: Part, layer: int | None, out: Tensor) -> None:
        """Read a tensor into `out`, of its shape and any float dtype; rows are in the order that the kernels expect."""

    def stored_kind(self, part: Part, layer: int | None) -> GgmlType:
        """How the file stores a tensor."""

    def stored(self, part: Part, layer: int | None) -> AbstractContextManager[StoredRows]:
        """A matrix whose kind `StoredRows` takes, as the file holds it; rows as for `read_into`. Memory that reading it
        takes is given back at the end.
        """
