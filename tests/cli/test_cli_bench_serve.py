"""`forebay bench serve` against a server in a thread: load, report, file, failures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
SMALL = ("--num-prompts", "6", "--random-input-len", "20", "--random-output-len", "4")


def test_the_report_is_what_the_server_counted(run: Run, server: Any) -> None:
    outcome = run("bench", "serve", "--base-url", server.url, *SMALL, "--json", "--api-key", "k", "--ignore-eos")
    assert outcome.code == 0
    report = json.loads(outcome.out)
    assert (report["completed"], report["failed"], report["model_id"], report["request_rate"]) == (6, 0, "fake", "inf")
    assert (report["total_input_tokens"], report["total_output_tokens"]) == (6 * 7, 6 * 4)
    assert report["request_goodput"] is None
    assert {"p50_ttft_ms", "p90_itl_ms", "p99_e2el_ms", "mean_tpot_ms"} <= set(report)
    assert "ttfts" not in report
    assert set(server.keys) == {"Bearer k"}
    assert [len(body["prompt"].split()) for body in server.asked] == [20] * 6
    assert {(body["max_tokens"], body["ignore_eos"], body["stream"]) for body in server.asked} == {(4, True, True)}


def test_chat_with_a_rate_limit_warm_up_and_goodput(run: Run, server: Any) -> None:
    options = (
        "--endpoint",
        "/v1/chat/completions",
        "--request-rate",
        "500",
        "--max-concurrency",
        "2",
        "--num-warmups",
        "2",
    )
    outcome = run(
        "bench", "serve", "--base-url", server.url, *SMALL, *options, "--goodput", "ttft:60000", "e2el:60000", "--json"
    )
    report = json.loads(outcome.out)
    assert outcome.code == 0
    assert (report["completed"], report["max_concurrency"], report["backend"]) == (6, 2, "openai-chat")
    assert report["request_goodput"] == pytest.approx(report["request_throughput"])
    assert len(server.asked) == 8
    assert server.asked[0]["messages"][0]["role"] == "user"


def test_shared_prefixes(run: Run, server: Any) -> None:
    shared = ("--dataset-name", "shared-prefix", "--prefix-len", "30", "--num-prefixes", "2")
    assert run("bench", "serve", "--base-url", server.url, *SMALL, *shared).code == 0
    prompts = [body["prompt"].split() for body in server.asked]
    assert [len(prompt) for prompt in prompts] == [50] * 6
    assert len({tuple(prompt[:30]) for prompt in prompts}) == 2


def test_a_file_of_prompts_and_a_report_file(run: Run, server: Any, tmp_path: Path) -> None:
    data = tmp_path / "prompts.jsonl"
    data.write_text('{"prompt": "What is a forebay?", "max_tokens": 9}\n')
    saving = ("--save-detailed", "--result-dir", str(tmp_path / "out"), "--result-filename", "r.json")
    outcome = run(
        "bench", "serve", "--base-url", server.url, "--dataset-path", str(data), "--num-prompts", "2", *saving
    )
    assert outcome.code == 0
    assert [(body["prompt"], body["max_tokens"]) for body in server.asked] == [("What is a forebay?", 9)] * 2
    report = json.loads((tmp_path / "out" / "r.json").read_text())
    assert report["generated_texts"] == ["Rivers run down."] * 2
    assert "TTFT" in outcome.out


def test_some_failures_are_counted_and_shown(run: Run, server: Any) -> None:
    server.fail_every = 3
    outcome = run("bench", "serve", "--base-url", server.url, *SMALL, "--save-result", "--result-dir", "/proc/none")
    assert outcome.code == 1
    assert "4 requests completed, 2 failed" in outcome.out
    assert "2 of 6 requests failed: 503: no room left" in outcome.message
    assert "can't be written" in outcome.message


def test_nothing_but_failures_is_an_error(run: Run, server: Any) -> None:
    server.fail_every = 1
    assert run("bench", "serve", "--base-url", server.url, *SMALL).code == 1
    outcome = run("bench", "serve", "--base-url", server.url, *SMALL, "--num-warmups", "1")
    assert (outcome.code, "The warm-up failed: 503: no room left" in outcome.message) == (1, True)


def test_without_a_tokenizer_lengths_are_words(run: Run, server: Any) -> None:
    server.tokenizes = False
    outcome = run("bench", "serve", "--base-url", server.url, *SMALL)
    assert outcome.code == 0
    assert "no /tokenize" in outcome.message


def test_no_server_is_one_line(run: Run) -> None:
    outcome = run("bench", "serve", "--base-url", "http://127.0.0.1:9")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert "No server answers at http://127.0.0.1:9" in outcome.message
