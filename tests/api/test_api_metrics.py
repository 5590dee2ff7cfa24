"""Metrics: what the worker says and what the API's clock says, under the names that readers of vLLM's metrics know."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.api.live import Live

from forebay.api import ApiConfig
from forebay.api.metrics import ApiMetrics
from forebay.api.observe import RequestObserver
from forebay.core.messages import StepSample, TokenOutput, WorkerStats
from forebay.core.request import FinishReason, GenerateRequest, SamplingParams

LABELS = {"model_name": "m", "engine": "0"}


def value(metrics: ApiMetrics, name: str, **labels: str) -> float | None:
    """One sample."""
    return metrics.registry.get_sample_value(name, {**LABELS, **labels})


def test_worker_counters_are_added_as_differences_and_survive_a_new_worker() -> None:
    metrics = ApiMetrics("m")
    metrics.on_stats(WorkerStats(prompt_tokens_computed=10, prompt_tokens_cached=4, preemptions=1))
    metrics.on_stats(WorkerStats(prompt_tokens_computed=15, prompt_tokens_cached=4, preemptions=1))
    metrics.on_stats(WorkerStats(prompt_tokens_computed=3, prompt_tokens_cached=1, preemptions=0))
    assert value(metrics, "vllm:prompt_tokens_by_source_total", source="local_compute") == 18
    assert value(metrics, "vllm:prompt_tokens_by_source_total", source="local_cache_hit") == 5
    assert value(metrics, "vllm:prompt_tokens_total") == 23
    assert value(metrics, "vllm:num_preemptions_total") == 1


def test_worker_gauges() -> None:
    metrics = ApiMetrics("m")
    metrics.on_stats(
        WorkerStats(running=2, waiting=3, waiting_by_class=[1, 2, 0, 0], pages_total=8, pages_used=2, pages_cached=1)
    )
    assert value(metrics, "vllm:num_requests_running") == 2
    assert value(metrics, "vllm:kv_cache_usage_perc") == 0.25
    assert value(metrics, "forebay_kv_pages", state="free") == 5
    assert value(metrics, "forebay_waiting_by_length_class", length_class="1") == 2
    metrics.on_stats(WorkerStats())
    assert value(metrics, "vllm:kv_cache_usage_perc") == 0


def test_steps() -> None:
    metrics = ApiMetrics("m")
    metrics.on_stats(WorkerStats(steps=[StepSample(0.01, 0.02, 256, 4), StepSample(0.03, 0.03, 0, 4)]))
    assert value(metrics, "vllm:iteration_tokens_total_sum") == 264
    assert value(metrics, "forebay_step_predicted_seconds_sum") == pytest.approx(0.04)
    assert value(metrics, "forebay_step_seconds_sum") == pytest.approx(0.05)


def test_work_is_a_share_of_the_machines_limits() -> None:
    metrics = ApiMetrics("m")

    def stats(flops: float, bytes_read: float, busy_s: float) -> WorkerStats:
        return WorkerStats(flops=flops, bytes_read=bytes_read, busy_s=busy_s, gemm_gflops=100.0, read_gbps=20.0)

    metrics.on_stats(stats(50e9, 10e9, 1.0))
    assert value(metrics, "forebay_mfu") == pytest.approx(0.5)
    assert value(metrics, "forebay_read_share") == pytest.approx(0.5)
    metrics.on_stats(stats(60e9, 30e9, 3.0))
    assert value(metrics, "forebay_mfu") == pytest.approx(0.05)
    assert value(metrics, "forebay_read_share") == pytest.approx(0.5)
    metrics.on_stats(stats(60e9, 30e9, 3.0))
    assert value(metrics, "forebay_mfu") == pytest.approx(0.05), "no step, no news"
    assert value(metrics, "forebay_flops_total") == 60e9
    assert value(metrics, "forebay_busy_seconds_total") == 3.0
    assert value(metrics, "forebay_machine_flops") == 100e9


def test_clock_of_one_generation() -> None:
    metrics, now = ApiMetrics("m"), [100.0]
    observer = RequestObserver(metrics, clock=lambda: now[0])
    observer.started(GenerateRequest(id="r", prompt_ids=[1, 2, 3], sampling=SamplingParams(max_tokens=9)))
    for at, queued in ((101.5, 0.5), (101.75, None), (102.5, None)):
        now[0] = at
        observer.output(TokenOutput(request_id="r", token_ids=[7], queued_s=queued))
    observer.finished(FinishReason.LENGTH)
    observer.ended(complete=True)
    assert value(metrics, "vllm:time_to_first_token_seconds_sum") == 1.5
    assert value(metrics, "vllm:inter_token_latency_seconds_sum") == 1.0
    assert value(metrics, "vllm:request_queue_time_seconds_sum") == 0.5
    assert value(metrics, "vllm:request_prefill_time_seconds_sum") == 1.0
    assert value(metrics, "vllm:request_decode_time_seconds_sum") == 1.0
    assert value(metrics, "vllm:request_inference_time_seconds_sum") == 2.0
    assert value(metrics, "vllm:e2e_request_latency_seconds_sum") == 2.5
    assert value(metrics, "vllm:request_time_per_output_token_seconds_sum") == 0.5
    assert value(metrics, "vllm:request_success_total", finished_reason="length") == 1


def test_refused_requests_are_counted() -> None:
    metrics = ApiMetrics("m")
    for route, status in (("/v1/chat/completions", 429), ("/v1/messages", 529), ("/v1/messages", 200)):
        metrics.http_answered(route, "POST", status)
    assert value(metrics, "vllm:admission_rejections_total") == 2


def test_cut_generations_count_as_cut_only() -> None:
    metrics = ApiMetrics("m")
    observer = RequestObserver(metrics)
    observer.started(GenerateRequest(id="r", prompt_ids=[1], sampling=SamplingParams(max_tokens=9)))
    observer.ended(complete=False)
    assert value(metrics, "forebay_requests_cut_total") == 1
    assert value(metrics, "vllm:e2e_request_latency_seconds_count") == 0


def test_scrape_of_a_running_server(start: Callable[..., Live]) -> None:
    live = start(ApiConfig())
    chat = {"model": "smollm2", "messages": [{"role": "user", "content": "Hi"}]}
    live.http.post("/v1/chat/completions", json=chat)
    live.http.get("/made/up/path")
    live.http.get("/v1/models/smollm2")
    text = live.http.get("/metrics").text
    samples = {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }
    http = {labels: n for (name, labels), n in samples.items() if name == "forebay_http_requests_total"}
    routes = {dict(labels)["route"]: dict(labels)["status"] for labels in http}
    assert routes["/v1/chat/completions"] == "200"
    assert routes["unmatched"] == "404"
    assert routes["/v1/models/{model_id:path}"] == "200"
    success = ("vllm:request_success_total", (("engine", "0"), ("finished_reason", "stop"), ("model_name", "smollm2")))
    assert samples[success] == 1
    assert live.router.on_stats is not None
