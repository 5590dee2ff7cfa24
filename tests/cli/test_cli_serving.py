"""Parts of `forebay serve` without an engine: the socket, what becomes of options, the start-up report."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvicorn

from forebay.api import ApiConfig
from forebay.cli import console
from forebay.cli.cache_options import CacheOptions, HostPool
from forebay.cli.http_server import api_config
from forebay.cli.options import EngineOptions, SchedulingOptions
from forebay.cli.serve import HttpOptions
from forebay.cli.serving import Stop, listen
from forebay.cli.startup import kv_tokens, local_url, start_report
from forebay.cli.worker import worker_options
from forebay.cluster import WorkerOptions
from forebay.core.errors import ConfigError
from forebay.core.messages import ModelInfo, TierStats
from forebay.engine.options import spare_memory
from forebay.models import ModelConfig, ModelSource, describe, resolve

Run = Callable[..., Any]
SOURCE = ModelSource("tiny", Path("/models/tiny.gguf"), "gguf")


def test_a_port_in_use_is_found_before_the_model_is_touched(run: Run) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        outcome = run("serve", "no-such-model.gguf", "--port", str(port))
    assert outcome.code == 1
    assert (
        f"Can't listen on 127.0.0.1 port {port}: Address already in use. Choose another with --port." in outcome.message
    )
    assert "no-such-model" not in outcome.message


def test_an_address_that_is_not_ours_is_refused() -> None:
    with pytest.raises(ConfigError, match="--host"):
        listen("no.such.host.invalid", 0)
    with pytest.raises(ConfigError, match="Can't listen"):
        listen("192.0.2.1", 0)


def test_the_socket_listens_at_once() -> None:
    with listen("127.0.0.1", 0) as sock, socket.create_connection(sock.getsockname()):
        pass


async def test_a_signal_ends_the_server_when_nobody_reads_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    task = asyncio.current_task()
    assert task is not None
    server, stop = uvicorn.Server(uvicorn.Config("none")), Stop()
    stop.attach(server)
    monkeypatch.setattr(sys, "stderr", Closed())
    with stop.installed(task):
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(5):
            while not server.should_exit:  # noqa: ASYNC110 (the server's own flag)
                await asyncio.sleep(0)
    console.fail("this goes nowhere")
    assert stop.exit_code == 0


def test_a_missing_model_is_one_line(run: Run) -> None:
    outcome = run("serve", "no-such-model.gguf", "--port", "0")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert "no-such-model.gguf" in outcome.message


def test_defaults_of_the_command_are_those_of_the_parts() -> None:
    assert api_config(HttpOptions()) == dataclasses.replace(ApiConfig(), shutdown_grace_s=HttpOptions().shutdown_grace)
    made = worker_options(SOURCE, "tiny", EngineOptions(), SchedulingOptions())
    assert made == WorkerOptions(model="/models/tiny.gguf", served_name="tiny")


def test_options_reach_the_parts() -> None:
    http = HttpOptions(
        host="::1", port=9, api_key=("a",), served_model_name=("x", "y"), max_body_size=5, max_messages=6
    )
    config = api_config(http)
    assert (config.host, config.port, config.api_keys, config.served_model_names) == ("::1", 9, ("a",), ("x", "y"))
    assert (config.max_body_bytes, config.max_messages) == (5, 6)
    stored = HttpOptions(stored_responses=2, stored_responses_size=3, stored_responses_ttl=4.0)
    config = api_config(stored)
    assert (config.stored_responses, config.stored_responses_bytes, config.stored_responses_ttl_s) == (2, 3, 4.0)
    engine = EngineOptions(dtype="fp32", kv_dtype="bf16", kv_memory=7, max_model_len=8, threads=9, kernels="torch")
    assert worker_options(SOURCE, "x", engine, SchedulingOptions()).activations == "int8"
    engine = dataclasses.replace(engine, activations="fp32")
    scheduling = SchedulingOptions(target_itl=80, max_running=2, max_waiting=3, prefix_cache=False)
    made = worker_options(SOURCE, "x", engine, scheduling)
    assert (made.dtype, made.kv_dtype, made.kv_memory, made.max_model_len) == ("fp32", "bf16", 7, 8)
    assert (made.threads, made.kernels, made.activations, made.target_itl_s) == (9, "torch", "fp32", 0.08)
    assert (made.max_running, made.max_waiting, made.prefix_cache) == (2, 3, False)


def test_low_memory_sets_what_was_not_chosen() -> None:
    made = worker_options(SOURCE, "x", EngineOptions(low_memory=True), SchedulingOptions(), CacheOptions())
    assert (made.quantize, made.host_pool, made.max_step_tokens, made.low_memory) == ("int4", 32 << 20, 512, True)
    chosen = CacheOptions(host_pool=HostPool(7))
    made = worker_options(SOURCE, "x", EngineOptions(low_memory=True, quantize="int8"), SchedulingOptions(), chosen)
    assert (made.quantize, made.host_pool) == ("int8", 7)


@pytest.fixture
def config(tiny_llama: Path) -> ModelConfig:
    return describe(resolve(str(tiny_llama)))


def info(kernels: str) -> ModelInfo:
    return ModelInfo(
        name="tiny",
        architecture="llama",
        vocab_size=256,
        max_model_len=512,
        fingerprint="00",
        parameters=1_234_567,
        weight_bytes=3 << 20,
        kv_bytes=10 * 4096 + 100,
        kernels=kernels,
        threads="2 threads (as asked)",
    )


def test_the_report_says_what_runs_and_how_to_try_it(config: ModelConfig) -> None:
    options = WorkerOptions(model="tiny")
    report = start_report(info("native-avx2"), config, options, "http://127.0.0.1:8000", keys=0)
    for words in (
        "serves tiny",
        "1.2 million",
        "3 MiB",
        "native-avx2\n",
        "threads   2 threads (as asked)",
        "512 tokens",
        "no API key",
        "curl http://",
    ):
        assert words in report
    assert "slow" not in report
    assert "memory  " not in report
    low = start_report(info("torch"), config, spare_memory(options), "http://127.0.0.1:8000", keys=0)
    assert "memory    low: --quantize int4, at most 512 prompt tokens in a step" in low
    with_keys = start_report(info("torch"), config, options, "http://127.0.0.1:8000", keys=2)
    assert "2 API keys" in with_keys
    assert "forebay doctor" in with_keys
    assert "authorization: Bearer" in with_keys


def test_the_report_names_the_tiers_below_the_device(config: ModelConfig) -> None:
    options = WorkerOptions(model="tiny", cache_dir="/cache", retention="agent")
    model = msgspec.structs.replace(info("torch"), retention_classes={"chat": 604800.0, "agent": 5400.0, "none": 0.0})
    found = TierStats(page_bytes=4096, host_pages_total=512, disk_pages=1234, disk_bytes=5 << 20)

    def report(tiers: TierStats | None) -> str:
        return start_report(model, config, options, "http://127.0.0.1:8000", keys=0, tiers=tiers)

    assert "host pool none" in report(None)
    assert "host pool 2 MiB: 8,192 tokens\n  disk      none" in report(found)
    full = report(msgspec.structs.replace(found, disk_bytes_limit=1 << 30))
    assert "disk      at most 1 GiB in /cache: 1,234 pages found, 5 MiB" in full
    assert "kept      chat 7 d, agent 1.5 h without being read; agent unless" in full


def test_kv_tokens_by_hand(config: ModelConfig) -> None:
    # Two layers of two KV heads of 16, K and V, 2 bytes: 256 bytes a token, 4,096 a page of 16.
    assert kv_tokens(info("torch"), config, WorkerOptions(model="tiny")) == 160
    assert kv_tokens(info("torch"), config, WorkerOptions(model="tiny", kv_dtype="fp32")) == 80


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::1", "http://[::1]:80"),
        ("::", "http://127.0.0.1:80"),
    ],
)
def test_the_address_to_try(host: str, url: str) -> None:
    assert local_url(host, 80) == url
