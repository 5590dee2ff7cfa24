"""How far a layer's inputs may be rounded: the word that the command line, the engine and the kernels share."""

from __future__ import annotations

from typing import Literal

Activations = Literal["fp32", "bf16", "int8"]
"""How far the inputs of a layer may be rounded before they are multiplied with weights, which is faster and gives
slightly other numbers: `fp32` not at all; `bf16` to bf16 with weights, and K and V, of bf16, where the processor has
products of it; `int8` also to 8 bits in groups of 32 with quantised weights. Products with weights of fp32 are fp32
always.
"""
