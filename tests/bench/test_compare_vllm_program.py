"""The program for vLLM's interpreter, with an engine in vLLM's place: what is asked of it, and what is timed."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from forebay.bench.compare.programs import vllm_engine

PREFILL = {"name": "prefill", "sequences": 1, "context": 0, "tokens": 40}
DECODE = {"name": "decode", "sequences": 3, "context": 20, "tokens": 5}
HUGE = {"name": "huge", "sequences": 1, "context": 0, "tokens": 999}


class FakeEngine:
    """Gives every request one token a step, after a first step that gives none."""

    def __init__(self) -> None:
        self.model_config = SimpleNamespace(get_vocab_size=lambda: 100)
        self.asked: list[tuple[str, int, dict[str, Any]]] = []
        self.running: dict[str, list[int]] = {}

    def add_request(self, name: str, prompt: dict[str, list[int]], sampling: dict[str, Any]) -> None:
        ids = prompt["prompt_token_ids"]
        if len(ids) > 500:
            raise ValueError("too long")
        self.asked.append((name, len(ids), sampling))
        self.running[name] = [-1, sampling["max_tokens"]]

    def step(self) -> list[Any]:
        outputs = []
        for name, state in list(self.running.items()):
            state[0] += 1
            outputs.append(SimpleNamespace(request_id=name, outputs=[SimpleNamespace(token_ids=[0] * state[0])]))
            if state[0] == state[1]:
                del self.running[name]
        return outputs

    def abort_request(self, names: list[str]) -> None:
        for name in names:
            self.running.pop(name, None)

    def has_unfinished_requests(self) -> bool:
        return bool(self.running)


@pytest.mark.parametrize("fill", [True, False])
def test_rows_are_warmed_once_and_only_decode_takes_its_prompts_as_computed(
    fill: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = FakeEngine()
    made: list[dict[str, Any]] = []

    def llm(**arguments: Any) -> Any:
        made.append(arguments)
        return SimpleNamespace(llm_engine=engine)

    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=llm, SamplingParams=dict))
    monkeypatch.setattr(sys, "argv", ["vllm_engine", json.dumps({"engine": {"model": "m"}, "fill": fill})])
    request = json.dumps({"rows": [PREFILL, DECODE, HUGE]})
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{request}\n{request}\n"))
    assert vllm_engine.main() == 0
    assert made == [{"model": "m"}]
    ready, *lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line]
    assert ready == {"ready": True}
    assert [line.get("row", "end") for line in lines] == 2 * ["prefill", "decode", "huge", "end"]
    assert all(line["value"] > 0 and line["seconds"] > 0 for line in lines if line.get("row") in ("prefill", "decode"))
    assert lines[2]["failure"] == lines[6]["failure"] == "ValueError: too long"
    sizes = [size for name, size, _ in engine.asked if not name.startswith("waking")]
    assert sizes == [40, 40, 16, 16, 16, 20, 20, 20, 40, 20, 20, 20]
    skipped = {size == 40: sampling.get("skip_reading_prefix_cache") for _, size, sampling in engine.asked}
    assert skipped == ({True: True, False: False} if fill else {True: None, False: None})
    assert engine.running == {}
