"""Rotary frequencies with every scaling, and the table of cosines and sines that kernels read. Not the rotation itself.

The scaling must not depend on how long one request is, or cached keys would not fit a longer request's queries. So
`dynamic` is served within the trained context only (where it changes nothing), and `longrope` takes its long factors
for all requests as soon as the model is served beyond the trained context.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from forebay.models.config import ModelConfig, RopeConfig, RopeKind


def cos_sin_table(config: ModelConfig) -> Tensor:
    """[max_model_len, head_dim] fp32: for each position the cosines of head_dim / 2 frequencies, then the sines.

    Angles are computed in fp32, as the models were trained.
    """
    frequencies = inverse_frequencies(config.rope, config.head_dim, config.max_model_len)
    scale = attention_factor(config.rope)
    table = torch.empty((config.max_model_len, config.head_dim), dtype=torch.float32)
    cos, sin = table.chunk(2, dim=1)
    angles = torch.arange(config.max_model_len, dtype=torch.float32)[:, None] * frequencies
    torch.mul(angles.cos(), scale, out=cos)
    torch.mul(angles.sin_(), scale, out=sin)
    return table


def inverse_frequencies(rope: RopeConfig, head_dim: int, max_model_len: int) -> Tensor:
    """[head_dim / 2] fp32: radians a position, after scaling."""
    powers = rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    plain = 1.0 / powers
    match rope.kind:
        case RopeKind.DEFAULT | RopeKind.DYNAMIC:
            scaled = plain
        case RopeKind.LINEAR:
            scaled = plain / rope.factor
        case RopeKind.LLAMA3:
            scaled = _llama3(plain, rope)
        case RopeKind.YARN:
            scaled = _yarn(plain, rope, head_dim)
        case RopeKind.LONGROPE:
            factors = rope.long_factor if max_model_len > rope.original_max_len else rope.short_factor
            scaled = 1.0 / (torch.tensor(factors) * powers)
    return scaled / torch.tensor(rope.divisors) if rope.divisors else scaled


def attention_factor(rope: RopeConfig) -> float:
    """What cos and sin are multiplied with, so that attention keeps its sharpness over a longer context."""
    if rope.kind not in {RopeKind.YARN, RopeKind.LONGROPE}:
        return 1.0
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.factor <= 1:
        return 1.0
    if rope.kind is RopeKind.LONGROPE:
        return math.sqrt(1 + math.log(rope.factor) / math.log(rope.original_max_len))
    if rope.mscale and rope.mscale_all_dim:
        return _yarn_mscale(rope.factor, rope.mscale) / _yarn_mscale(rope.factor, rope.mscale_all_dim)
    return _yarn_mscale(rope.factor, 1.0)


def _yarn_mscale(factor: float, weight: float) -> float:
    return 0.1 * weight * math.log(factor) + 1.0


def _llama3(plain: Tensor, rope: RopeConfig) -> Tensor:
    """Long waves are stretched by the factor, short ones not, those between by a blend of both."""
    turns = rope.original_max_len * plain / (2 * math.pi)
    share = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    share = share.clamp(0.0, 1.0)
    return (1 - share) * plain / rope.factor + share * plain


def _yarn(plain: Tensor, rope: RopeConfig, head_dim: int) -> Tensor:
    """Frequencies that turn less than `beta_slow` times in the trained context are stretched, above `beta_fast` not."""
    low, high = (_yarn_dimension(turns, rope, head_dim) for turns in (rope.beta_fast, rope.beta_slow))
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    width = high - low if high != low else 0.001
    ramp = ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / width).clamp(0.0, 1.0)
    return plain / rope.factor * ramp + plain * (1 - ramp)


def _yarn_dimension(turns: float, rope: RopeConfig, head_dim: int) -> float:
    """The (fractional) index of the frequency that turns so many times in the trained context."""
    return head_dim * math.log(rope.original_max_len / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))
