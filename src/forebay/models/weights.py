"""What reads a checkpoint's tensors one at a time into memory that the loader gave it. Not a holder of tensors."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from forebay.kernels import QuantisedMatrix
from forebay.models.tensors import Part


class WeightReader(Protocol):
    """One checkpoint. Its tensors were checked before (`source.describe`), so reading can't fail but for the disk."""

    def identity(self) -> bytes:
        """A digest that tells these weights from others (see `fingerprint`)."""

    def read_into(self, part: Part, layer: int | None, out: Tensor) -> None:
        """Read a tensor into `out`, of its shape and any float dtype; rows are in the order that the kernels expect."""

    def stored_bits(self, part: Part, layer: int | None) -> int | None:
        """4 or 8 when `read_quantised` can give this tensor as it is stored, else None."""

    def read_quantised(self, part: Part, layer: int | None) -> QuantisedMatrix:
        """A tensor that has `stored_bits`, with the very weights of the file; rows as for `read_into`."""
