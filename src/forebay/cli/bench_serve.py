"""Carries out `forebay bench serve`: prompts, progress, report. The sending and the figures are in `forebay.bench`."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2

from forebay.bench.arrivals import arrival_times
from forebay.bench.client import Target, first_model, one_token_words, open_client, send
from forebay.bench.load import run_load, warm_up
from forebay.bench.metrics import RequestResult, parse_goodput, summarise, without_details
from forebay.bench.workload import WORDS, Sample, Shape, file_samples, random_samples
from forebay.cli import console
from forebay.cli.bench import LoadOptions, PromptOptions, ReportOptions, TargetOptions
from forebay.core.errors import ConfigError, ForebayError

_FEW_WORDS = 50
"""With fewer words of one token than this, prompts would repeat themselves."""


async def run(target: TargetOptions, prompts: PromptOptions, load: LoadOptions, report: ReportOptions) -> int:
    """Measure and report. Returns 1 when every request failed; raises ForebayError when the run can't begin."""
    async with open_client(target.base_url, target.api_key) as client:
        model = target.model or await first_model(client)
        samples = await _samples(client, model, prompts)
        aim = Target(target.base_url, target.endpoint, model, prompts.ignore_eos, prompts.temperature)
        await _warm_up(client, aim, samples[0], load.num_warmups)
        results, duration = await _measure(client, aim, samples, load, prompts.seed)
    figures = summarise(
        results,
        duration,
        metrics=report.percentile_metrics.split(","),
        percentiles=[float(part) for part in report.metric_percentiles.split(",")],
        goodput=parse_goodput(report.goodput),
    )
    full = _heading(target, model, prompts, load) | figures
    _show(full, report, results)
    if report.save_result or report.save_detailed:
        _save(full, report, model, load)
    return 0 if full["completed"] else 1


async def _samples(client: httpx2.AsyncClient, model: str, prompts: PromptOptions) -> list[Sample]:
    if prompts.dataset_path is not None:
        return file_samples(prompts.dataset_path, prompts.num_prompts, prompts.random_output_len)
    words: Sequence[str] = await one_token_words(client, model, WORDS)
    if len(words) < _FEW_WORDS:
        console.notice("The server has no /tokenize to ask: prompt lengths are in words, about one token each.")
        words = WORDS
    shared = prompts.dataset_name == "shared-prefix"
    shape = Shape(
        prompts.random_input_len,
        prompts.random_output_len,
        prompts.random_range_ratio,
        prefix_tokens=prompts.prefix_len if shared else 0,
        prefixes=prompts.num_prefixes if shared else 1,
    )
    return random_samples(prompts.num_prompts, shape, words, prompts.seed)


async def _warm_up(client: httpx2.AsyncClient, target: Target, sample: Sample, count: int) -> None:
    if not count:
        return
    console.notice(f"Warming up with {count} requests ...")
    results = await warm_up(lambda one: send(client, target, one, time.perf_counter), sample, count)
    failed = [result for result in results if not result.ok]
    if failed:
        raise ForebayError(f"The warm-up failed: {failed[0].error}")


async def _measure(
    client: httpx2.AsyncClient, target: Target, samples: Sequence[Sample], load: LoadOptions, seed: int
) -> tuple[list[RequestResult], float]:
    arrivals = arrival_times(len(samples), load.request_rate, load.burstiness, seed)
    done = failed = tokens = 0
    with console.progress_bar() as progress:
        task = progress.add_task("requests", total=len(samples), note="")

        def count(result: RequestResult) -> None:
            nonlocal done, failed, tokens
            done, failed, tokens = done + 1, failed + (not result.ok), tokens + result.output_tokens
            note = f"{done}/{len(samples)} done, {failed} failed, {tokens:,} tokens"
            progress.update(task, completed=done, note=note)

        async def one(sample: Sample) -> RequestResult:
            return await send(client, target, sample, time.perf_counter)

        return await run_load(one, samples, arrivals, load.max_concurrency, count)


def _heading(target: TargetOptions, model: str, prompts: PromptOptions, load: LoadOptions) -> dict[str, Any]:
    """What was run, under the names that vLLM's client uses."""
    backend = "openai-chat" if target.endpoint.endswith("/chat/completions") else "openai"
    return {
        "date": datetime.now(UTC).strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": backend,
        "backend": backend,
        "label": None,
        "model_id": model,
        "tokenizer_id": model,
        "num_prompts": prompts.num_prompts,
        "request_rate": "inf" if load.request_rate == float("inf") else load.request_rate,
        "burstiness": load.burstiness,
        "max_concurrency": load.max_concurrency,
    }


def _show(full: dict[str, Any], report: ReportOptions, results: Sequence[RequestResult]) -> None:
    if report.json:
        console.say(json.dumps(full if report.save_detailed else without_details(full), indent=2))
    else:
        console.say(table(full, report.percentile_metrics.split(","), report.metric_percentiles.split(",")))
    errors = Counter(result.error for result in results if not result.ok)
    for message, times in errors.most_common(3):
        console.notice(f"forebay: {times} of {len(results)} requests failed: {message}")


def _save(full: dict[str, Any], report: ReportOptions, model: str, load: LoadOptions) -> None:
    name = report.result_filename
    if name is None:
        limit = f"-concurrency{load.max_concurrency}" if load.max_concurrency else ""
        short = model.rsplit("/", maxsplit=1)[-1]
        name = f"{full['backend']}-{full['request_rate']}qps{limit}-{short}-{full['date']}.json"
    path = Path(report.result_dir) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(full if report.save_detailed else without_details(full)), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"The report can't be written to {path}: {error.strerror}.") from error
    console.notice(f"The report is in {path}.")


def table(full: dict[str, Any], metrics: Sequence[str], percentiles: Sequence[str]) -> str:
    """The report for people: totals, then one line a latency in milliseconds."""
    lines = [
        f"{full['completed']} requests completed, {full['failed']} failed, in {full['duration']:.2f} s "
        f"({full['request_throughput']:.2f} a second)",
        f"prompt tokens {full['total_input_tokens']:,}, answer tokens {full['total_output_tokens']:,}: "
        f"{full['output_throughput']:.1f} answer tokens/s, {full['total_token_throughput']:.1f} of both",
    ]
    if full["request_goodput"] is not None:
        lines.append(f"good requests {full['request_goodput']:.2f} a second")
    levels = [f"p{float(level):g}" for level in percentiles]
    columns = ["mean", "median", *(level for level in levels if level != "p50")]
    lines += ["", "ms".ljust(6) + "".join(column.rjust(11) for column in columns)]
    for metric in metrics:
        values = (full[f"{column}_{metric}_ms"] for column in columns)
        lines.append(metric.upper().ljust(6) + "".join(f"{value:11.1f}" for value in values))
    return "\n".join(lines)
