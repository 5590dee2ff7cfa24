"""Everything that touches numbers in bulk, behind one interface; policy and models are elsewhere."""

from forebay.kernels.draw import Pick
from forebay.kernels.interface import (
    PAGE_TOKENS,
    EndWeights,
    Kernels,
    KvLayout,
    LayerSettings,
    LayerWeights,
    StepBatch,
    Weight,
)
from forebay.kernels.load import load_kernels
from forebay.kernels.quantised import GROUP, QuantisedMatrix, quantise
from forebay.kernels.stored import PLAIN_KINDS, STORED_BITS, StoredRows

__all__ = [
    "GROUP",
    "PAGE_TOKENS",
    "PLAIN_KINDS",
    "STORED_BITS",
    "EndWeights",
    "Kernels",
    "KvLayout",
    "LayerSettings",
    "LayerWeights",
    "Pick",
    "QuantisedMatrix",
    "StepBatch",
    "StoredRows",
    "Weight",
    "load_kernels",
    "quantise",
]
