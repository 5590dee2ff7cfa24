"""Measures vLLM's prefill and decode in a process of vLLM's own interpreter, which need not have Forebay.

The argument is {"engine": {arguments of vllm.LLM}, "rows": [{"name", "sequences", "context", "tokens"}]}; a row without
context is a prefill. The method is that of `ours_engine`: the engine is stepped, and tokens are counted as they come.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import time
from typing import Any

WARM_CONTEXT = 16
WARM_STEPS = 4
SPARE_TOKENS = 512


def main() -> int:
    """Measure what the argument says and print the figures."""
    plan: dict[str, Any] = json.loads(sys.argv[1])
    vllm = importlib.import_module("vllm")
    bench = Bench(vllm, vllm.LLM(**plan["engine"]))
    values: dict[str, float] = {}
    failures: dict[str, str] = {}
    for row in plan["rows"]:
        try:
            values[row["name"]] = bench.decode(row) if row["context"] else bench.prefill(row)
        except (RuntimeError, ValueError) as error:
            failures[row["name"]] = f"{type(error).__name__}: {error}"
    sys.stdout.write("\n" + json.dumps({"values": values, "failures": failures, "extras": {}}) + "\n")
    return 0


class Bench:
    """Steps vLLM's engine."""

    def __init__(self, vllm: Any, llm: Any) -> None:
        self._vllm = vllm
        self._engine = llm.llm_engine
        self._vocabulary = llm.llm_engine.model_config.get_vocab_size()
        self._counts: dict[str, int] = {}

    def prefill(self, row: dict[str, Any]) -> float:
        """Tokens of the prompt a second, from its submission to its first token."""
        for seed in range(2):
            started = time.perf_counter()
            self._submit([f"{row['name']}-{seed}"], row["tokens"], 1, seed)
            self._until_all_began()
            took = time.perf_counter() - started
            self._finish()
        return float(row["tokens"]) / took

    def decode(self, row: dict[str, Any]) -> float:
        """Tokens a second of all sequences, from when each of them has given one."""
        self._generate(row, "warm", WARM_CONTEXT, WARM_STEPS)
        return self._generate(row, "timed", row["context"], row["tokens"])

    def _generate(self, row: dict[str, Any], label: str, context: int, steps: int) -> float:
        names = [f"{row['name']}-{label}-{index}" for index in range(row["sequences"])]
        self._submit(names, context, steps + SPARE_TOKENS, 100 if label == "warm" else 200)
        self._until_all_began()
        before, started = sum(self._counts.values()), time.perf_counter()
        while sum(self._counts.values()) - before < steps * len(names):
            self._step()
        rate = (sum(self._counts.values()) - before) / (time.perf_counter() - started)
        self._engine.abort_request(names)
        self._finish()
        return rate

    def _submit(self, names: list[str], prompt: int, answer: int, seed: int) -> None:
        self._counts = dict.fromkeys(names, 0)
        sampling = self._vllm.SamplingParams(max_tokens=answer, temperature=0.0, ignore_eos=True, detokenize=False)
        for index, name in enumerate(names):
            draw = random.Random(seed * 1000 + index)
            ids = [draw.randrange(self._vocabulary) for _ in range(prompt)]
            self._engine.add_request(name, {"prompt_token_ids": ids}, sampling)

    def _until_all_began(self) -> None:
        while not all(self._counts.values()):
            self._step()

    def _step(self) -> None:
        for output in self._engine.step():
            if output.request_id in self._counts:
                self._counts[output.request_id] = len(output.outputs[0].token_ids)

    def _finish(self) -> None:
        self._counts = {}
        while self._engine.has_unfinished_requests():
            self._engine.step()


if __name__ == "__main__":
    sys.exit(main())
