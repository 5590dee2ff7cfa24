"""Measures vLLM's prefill and decode in a process of vLLM's own interpreter, which need not have Forebay.

The argument is {"engine": {arguments of vllm.LLM}, "fill": bool}; the rest is as the package says. The method is that
of `ours_engine`: the engine is stepped, and tokens are counted as they come. With "fill" the engine has vLLM's own
DecodeBenchConnector, which takes a prompt as computed: each sequence of a decode row has pages of its own, full of
numbers that mean nothing, and what is timed is the same as after a prompt.
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
    """Load the model, and measure what each line of standard input says."""
    plan: dict[str, Any] = json.loads(sys.argv[1])
    vllm = importlib.import_module("vllm")
    bench = Bench(vllm, vllm.LLM(**plan["engine"]), fill=plan["fill"])
    say({"ready": True})
    for line in sys.stdin:
        bench.wake()
        for row in json.loads(line)["rows"]:
            say({"row": row["name"]} | bench.measured(row))
        say({"extras": {}})
    return 0


def say(line: dict[str, Any]) -> None:
    """Print a line; what vLLM logged may have left one unfinished."""
    sys.stdout.write("\n" + json.dumps(line) + "\n")
    sys.stdout.flush()


class Bench:
    """Steps vLLM's engine."""

    def __init__(self, vllm: Any, llm: Any, *, fill: bool) -> None:
        self._vllm = vllm
        self._engine = llm.llm_engine
        self._vocabulary = llm.llm_engine.model_config.get_vocab_size()
        self._fill = fill
        self._counts: dict[str, int] = {}
        self._warmed: set[str] = set()

    def wake(self) -> None:
        """Compute a little: a process that was stopped may have lost pages of its files."""
        self._generate({"name": "waking", "sequences": 1}, "waking", WARM_CONTEXT, WARM_STEPS)

    def measured(self, row: dict[str, Any]) -> dict[str, Any]:
        """What is said of the row: the rate of one run, the first time after warming up; or why there is none."""
        begun = time.perf_counter()
        try:
            if row["name"] not in self._warmed:
                self._warm_up(row)
            self._warmed.add(row["name"])
            value = self._timed(row)
        except (RuntimeError, ValueError) as error:
            return {"failure": f"{type(error).__name__}: {error}"}
        return {"value": value, "seconds": time.perf_counter() - begun}

    def _timed(self, row: dict[str, Any]) -> float:
        return self._generate(row, "timed", row["context"], row["tokens"]) if row["context"] else self._prefill(row)

    def _warm_up(self, row: dict[str, Any]) -> None:
        if row["context"]:
            self._generate(row, "warm", WARM_CONTEXT, WARM_STEPS)
        else:
            self._prefill(row)

    def _prefill(self, row: dict[str, Any]) -> float:
        """Tokens of the prompt a second, from its submission to its first token."""
        started = time.perf_counter()
        self._submit([row["name"]], row["tokens"], 1, 0, computed=False)
        self._until_all_began()
        took = time.perf_counter() - started
        self._finish()
        return float(row["tokens"]) / took

    def _generate(self, row: dict[str, Any], label: str, context: int, steps: int) -> float:
        """Tokens a second of all sequences, from when each of them has given one."""
        names = [f"{row['name']}-{label}-{index}" for index in range(row["sequences"])]
        self._submit(names, context, steps + SPARE_TOKENS, 100 if label == "warm" else 200, computed=self._fill)
        self._until_all_began()
        before, started = sum(self._counts.values()), time.perf_counter()
        while sum(self._counts.values()) - before < steps * len(names):
            self._step()
        rate = (sum(self._counts.values()) - before) / (time.perf_counter() - started)
        self._engine.abort_request(names)
        self._finish()
        return rate

    def _submit(self, names: list[str], prompt: int, answer: int, seed: int, *, computed: bool) -> None:
        """Add requests; `computed` says whether their prompts are taken as computed."""
        self._counts = dict.fromkeys(names, 0)
        options = {"max_tokens": answer, "temperature": 0.0, "ignore_eos": True, "detokenize": False}
        sampling = self._vllm.SamplingParams(**options, **self._cache_options(computed))
        for index, name in enumerate(names):
            draw = random.Random(seed * 1000 + index)
            ids = [draw.randrange(self._vocabulary) for _ in range(prompt)]
            self._engine.add_request(name, {"prompt_token_ids": ids}, sampling)

    def _cache_options(self, computed: bool) -> dict[str, bool]:
        """Only an engine that fills caches knows the option, and must be told of prompts that are to be computed."""
        return {"skip_reading_prefix_cache": not computed} if self._fill else {}

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
