"""Everything that touches numbers in bulk, behind one interface; policy and models are elsewhere."""

from forebay.kernels.interface import PAGE_TOKENS, Kernels, KvLayout, LayerSettings, LayerWeights, StepBatch, Weight
from forebay.kernels.load import load_kernels

__all__ = ["PAGE_TOKENS", "Kernels", "KvLayout", "LayerSettings", "LayerWeights", "StepBatch", "Weight", "load_kernels"]
