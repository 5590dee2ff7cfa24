"""Prometheus metrics of one app: vLLM's names where vLLM has one (so that its dashboards read us), else `forebay_`.

Fed from two sides: the worker's statistics (gauges, and counters since its start, of which the differences are added),
and the API's own clock for each generation. All times are seconds.
"""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.responses import Response

from forebay.api.answer_metrics import AnswerMetrics
from forebay.api.cache import LastStats
from forebay.api.metric_deltas import CounterDeltas
from forebay.api.observe import Timing
from forebay.api.tier_metrics import TierMetrics
from forebay.api.work_metrics import WorkMetrics
from forebay.core.messages import StepSample, WorkerStats
from forebay.core.request import FinishReason

_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640)
_ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_LATENCY = (0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_STEP = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5)
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_REQUEST_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
_LABELS = ("model_name", "engine")

_OVERLOADED = (429, 529)
"""Statuses of a request that was not admitted, in OpenAI's and in Anthropic's protocol."""


class ApiMetrics:
    """The metrics of one app, in a registry of its own."""

    def __init__(self, model_name: str) -> None:
        self.registry = CollectorRegistry()
        self._labels = (model_name, "0")
        self._worker_metrics()
        self._token_metrics()
        self._latency_metrics()
        self._step_metrics()
        self._http_metrics()
        self._tiers = TierMetrics(self.registry, dict(zip(_LABELS, self._labels, strict=True)))
        self.answers = AnswerMetrics(self.registry, dict(zip(_LABELS, self._labels, strict=True)))
        self._work = WorkMetrics(self.registry, dict(zip(_LABELS, self._labels, strict=True)))
        self.last = LastStats()

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, _LABELS, registry=self.registry).labels(*self._labels)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, _LABELS, registry=self.registry).labels(*self._labels)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, _LABELS, buckets=buckets, registry=self.registry).labels(*self._labels)

    def _worker_metrics(self) -> None:
        self._running = self._gauge("vllm:num_requests_running", "Sequences that are being computed.")
        self._waiting = self._gauge("vllm:num_requests_waiting", "Sequences that wait to be computed.")
        self._kv_usage = self._gauge("vllm:kv_cache_usage_perc", "Share of KV pages held by live sequences; 1 is all.")
        labels = (*_LABELS, "length_class")
        text = "Waiting sequences by class of uncached length, 0 the shortest."
        self._class_waiting = Gauge("forebay_waiting_by_length_class", text, labels, registry=self.registry)
        pages = Gauge("forebay_kv_pages", "KV pages by state.", (*_LABELS, "state"), registry=self.registry)
        self._pages = {state: pages.labels(*self._labels, state) for state in ("used", "cached", "free")}

    def _token_metrics(self) -> None:
        by_source = Counter(
            "vllm:prompt_tokens_by_source", "Prompt tokens by source.", (*_LABELS, "source"), registry=self.registry
        )
        prompt = self._counter("vllm:prompt_tokens", "Prompt tokens served, computed or cached.")
        computed = by_source.labels(*self._labels, "local_compute")
        cached = by_source.labels(*self._labels, "local_cache_hit")
        self._deltas = CounterDeltas(
            {
                "prompt_tokens_computed": [prompt, computed],
                "prompt_tokens_cached": [prompt, cached, self._counter("vllm:prompt_tokens_cached", "From the cache.")],
                "generation_tokens": [self._counter("vllm:generation_tokens", "Tokens generated.")],
                "prefix_queries_tokens": [self._counter("vllm:prefix_cache_queries", "Tokens looked up.")],
                "prefix_hits_tokens": [self._counter("vllm:prefix_cache_hits", "Tokens found.")],
                "preemptions": [self._counter("vllm:num_preemptions", "Sequences put back for want of pages.")],
                "evictions": [self._counter("forebay_kv_evictions", "Cached KV pages given up for want of room.")],
            }
        )

    def _latency_metrics(self) -> None:
        make = self._histogram
        self._ttft = make("vllm:time_to_first_token_seconds", "Arrival to first token.", _TTFT)
        self._itl = make("vllm:inter_token_latency_seconds", "Between two outputs of one answer.", _ITL)
        self._tpot = make("vllm:request_time_per_output_token_seconds", "Mean time per token after the first.", _ITL)
        self._e2e = make("vllm:e2e_request_latency_seconds", "Arrival to last token.", _LATENCY)
        self._queue = make("vllm:request_queue_time_seconds", "Arrival to first scheduled chunk.", _LATENCY)
        self._prefill = make("vllm:request_prefill_time_seconds", "First chunk to first token.", _LATENCY)
        self._decode = make("vllm:request_decode_time_seconds", "First token to last.", _LATENCY)
        self._inference = make("vllm:request_inference_time_seconds", "First chunk to last token.", _LATENCY)
        self._prompt_len = make("vllm:request_prompt_tokens", "Prompt tokens of one request.", _REQUEST_TOKENS)
        self._answer_len = make("vllm:request_generation_tokens", "Tokens generated for one request.", _REQUEST_TOKENS)
        name, text = "vllm:request_success", "Answers that were completed, by reason."
        success = Counter(name, text, (*_LABELS, "finished_reason"), registry=self.registry)
        reasons = (FinishReason.STOP, FinishReason.LENGTH, FinishReason.ERROR)
        self._success = {reason: success.labels(*self._labels, reason.value) for reason in reasons}
        self._cut = self._counter("forebay_requests_cut", "Generations ended early: hang-up, deadline or failure.")

    def _step_metrics(self) -> None:
        make = self._histogram
        self._step_tokens = make("vllm:iteration_tokens_total", "Tokens computed in one step.", _STEP_TOKENS)
        self._step_predicted = make("forebay_step_predicted_seconds", "A step's time as predicted.", _STEP)
        self._step_actual = make("forebay_step_seconds", "A step's time as measured.", _STEP)

    def _http_metrics(self) -> None:
        labels = ("route", "method", "status")
        self._http = Counter("forebay_http_requests", "Requests answered.", labels, registry=self.registry)
        self._rejections = self._counter("vllm:admission_rejections", "Requests refused since too many were waiting.")
        text = "Requests whose client hung up first."
        self._hangups = Counter("forebay_http_client_hangups", text, ("route",), registry=self.registry)

    def on_stats(self, stats: WorkerStats) -> None:
        """Take one statistics message of the worker."""
        self._running.set(stats.running)
        self._waiting.set(stats.waiting)
        self._kv_usage.set(stats.pages_used / stats.pages_total if stats.pages_total else 0.0)
        self._pages["used"].set(stats.pages_used)
        self._pages["cached"].set(stats.pages_cached)
        self._pages["free"].set(max(stats.pages_total - stats.pages_used - stats.pages_cached, 0))
        for length_class, waiting in enumerate(stats.waiting_by_class):
            self._class_waiting.labels(*self._labels, str(length_class)).set(waiting)
        self._deltas.add(stats)
        self._tiers.on_stats(stats)
        self._work.on_stats(stats)
        self.last.stats = stats
        for step in stats.steps:
            self._add_step(step)

    def _add_step(self, step: StepSample) -> None:
        self._step_tokens.observe(step.prefill_tokens + step.decode_tokens)
        self._step_predicted.observe(step.predicted_s)
        self._step_actual.observe(step.actual_s)

    def first_token(self, seconds: float) -> None:
        """From arrival to the first token of the first choice."""
        self._ttft.observe(seconds)

    def token_gap(self, seconds: float) -> None:
        """Between two outputs of one choice."""
        self._itl.observe(seconds)

    def choice_finished(self, reason: FinishReason) -> None:
        """One choice ended with STOP or LENGTH, or with ERROR because a call in it can't be read."""
        self._success[reason].inc()

    def generation_complete(self, timing: Timing) -> None:
        """All choices of one prompt ended."""
        self._prompt_len.observe(timing.prompt_tokens)
        self._answer_len.observe(timing.tokens)
        self._queue.observe(timing.queued_s)
        self._prefill.observe(timing.prefill_s)
        self._decode.observe(timing.decode_s)
        self._inference.observe(timing.prefill_s + timing.decode_s)
        self._e2e.observe(timing.e2e_s)
        if timing.tokens > 1:
            self._tpot.observe(timing.decode_s / (timing.tokens - 1))

    def generation_cut(self) -> None:
        """One generation ended early."""
        self._cut.inc()

    def http_answered(self, route: str, method: str, status: int) -> None:
        """One request got an answer."""
        self._http.labels(route, method, str(status)).inc()
        if status in _OVERLOADED:
            self._rejections.inc()

    def http_hung_up(self, route: str) -> None:
        """One request lost its client."""
        self._hangups.labels(route).inc()


def metrics_routes(metrics: ApiMetrics) -> APIRouter:
    """The route that Prometheus scrapes. It needs no key, as is usual for scrapers; it holds numbers only."""
    routes = APIRouter(tags=["Health"])

    @routes.get("/metrics", response_model=None)
    async def read_metrics() -> Response:
        """All metrics in Prometheus' text format."""
        return Response(generate_latest(metrics.registry), media_type="text/plain; version=0.0.4")

    return routes
