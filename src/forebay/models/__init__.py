"""Architectures and weight loading: from a model's name to a `Model` that computes logits. No sampling or scheduling.

`resolve` and `describe` need no torch; `load_model` imports it when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay.models.config import ModelConfig
from forebay.models.source import ModelSource, describe, resolve

if TYPE_CHECKING:
    from forebay.models.loader import load_model
    from forebay.models.transformer import Model

__all__ = ["Model", "ModelConfig", "ModelSource", "describe", "load_model", "resolve"]


def __getattr__(name: str) -> Any:
    """Import what needs torch on first use, so that a command line can check a model without it."""
    if name == "load_model":
        from forebay.models.loader import load_model  # noqa: PLC0415

        return load_model
    if name == "Model":
        from forebay.models.transformer import Model  # noqa: PLC0415

        return Model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
