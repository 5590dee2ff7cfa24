"""Everything that touches numbers in bulk, behind one interface; policy and models are elsewhere."""

from forebay.kernels.draw import Pick
from forebay.kernels.interface import (
    PAGE_TOKENS,
    Activations,
    EndWeights,
    Kernels,
    KvLayout,
    LayerSettings,
    LayerWeights,
    StepBatch,
    Weight,
)
from forebay.kernels.load import load_kernels
from forebay.kernels.quantised import GROUP, QuantisedMatrix, below_each_other, quantise

__all__ = [
    "GROUP",
    "PAGE_TOKENS",
    "Activations",
    "EndWeights",
    "Kernels",
    "KvLayout",
    "LayerSettings",
    "LayerWeights",
    "Pick",
    "QuantisedMatrix",
    "StepBatch",
    "Weight",
    "below_each_other",
    "load_kernels",
    "quantise",
]
