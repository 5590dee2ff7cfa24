"""A process's own account, as JSON: what an engine answers, and which modules of torch are still empty. Not a test.

`test_engine_torch_import` runs it with torch in parts and with torch as a whole. Its argument is a model's folder.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

from forebay.engine.torch_import import deferred_modules, import_torch

import_torch()
AT_START = deferred_modules()

from forebay.core.grammar import GrammarSpec  # noqa: E402  (torch is imported first)
from forebay.core.request import GenerateRequest, SamplingParams  # noqa: E402
from forebay.engine.build import build_engine  # noqa: E402
from forebay.engine.options import WorkerOptions  # noqa: E402

GRAMMAR = GrammarSpec("json_schema", json.dumps({"type": "array", "items": {"type": "integer"}, "maxItems": 4}))
SAMPLING: list[dict[str, Any]] = [
    {"temperature": 0.0, "logprobs": 2, "prompt_logprobs": 1},
    {"temperature": 0.9, "top_p": 0.9, "top_k": 40, "min_p": 0.01, "seed": 5, "n": 2},
    {"temperature": 0.7, "repetition_penalty": 1.2, "presence_penalty": 0.1, "logit_bias": {7: 2.0}, "seed": 6},
    {"temperature": 1.0, "grammar": GRAMMAR, "seed": 7},
]
HELD = (
    ("auto", "bf16", "auto"),
    ("auto", "bf16", "int4"),
    ("auto", "fp32", "int8"),
    ("torch", "bf16", "none"),
    ("torch", "fp32", "int4"),
)
"""Kernels, and how the weights are held."""


def answers(model: str, **options: Any) -> dict[str, list[int]]:
    """The tokens of every answer, by request and choice, of an engine with these options."""
    engine = build_engine(WorkerOptions(model=model, threads=1, kv_memory=4 << 20, **options), lambda *_: None)
    for number, sampling in enumerate(SAMPLING):
        prompt = [100 + (5 * i + number) % 250 for i in range(40)]
        asked = GenerateRequest(id=str(number), prompt_ids=prompt, sampling=SamplingParams(max_tokens=12, **sampling))
        engine.submit(asked)
    found: dict[str, list[int]] = {}
    while engine.has_work:
        for output in engine.step():
            found.setdefault(f"{output.request_id}/{output.index}", []).extend(output.token_ids)
    engine.close(lambda _: None)
    return found


def contents() -> dict[str, str]:
    """Of every module of torch, and of the meta kernels that are registered, a digest of the names in it."""
    import torch

    names = {
        name: sorted(attribute for attribute in vars(module) if attribute != "_forebay_parts")
        for name, module in list(sys.modules.items())
        if name == "torch" or name.startswith("torch.")
    }
    names["meta kernels"] = sorted(torch._C._dispatch_get_registrations_for_dispatch_key("Meta"))
    return {name: hashlib.sha256(repr(found).encode()).hexdigest() for name, found in names.items()}


def account(model: str) -> dict[str, Any]:
    """Run the engines, then ask for one deferred module."""
    found = {
        f"{kernels} {dtype} {quantize}": answers(model, kernels=kernels, dtype=dtype, quantize=quantize)
        for kernels, dtype, quantize in HELD
    }
    untouched = deferred_modules()
    import torch

    exported = callable(torch.export.export)
    return {
        "at start": AT_START,
        "answers": found,
        "untouched": untouched,
        "filled": exported and not deferred_modules(),
        "real": torch.vmap is torch.func.vmap and torch.cond is sys.modules["torch._higher_order_ops"].cond,
        "contents": contents(),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(account(sys.argv[1])))
