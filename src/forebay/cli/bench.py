"""`forebay bench serve` and `forebay bench engine`: their options. The measuring is in the package `forebay.bench`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, Token
from cyclopts.validators import Number

from forebay.cli.options import DEFAULT_MODEL, Dtype, Flag, KernelChoice, NotNegative, Positive, Quantize
from forebay.core.activations import Activations

Rate = Annotated[float, Parameter(validator=Number(gt=0))]


def _goodput(_: object, tokens: Sequence[Token]) -> tuple[str, ...]:
    from forebay.bench.metrics import parse_goodput

    values = tuple(token.value for token in tokens)
    parse_goodput(values)
    return values


def _metrics(_: object, tokens: Sequence[Token]) -> str:
    from forebay.bench.metrics import METRICS

    text = tokens[0].value
    for name in text.split(","):
        if name not in METRICS:
            raise ValueError(f"{name!r} is no metric; write some of {','.join(METRICS)}.")
    return text


def _percentiles(_: object, tokens: Sequence[Token]) -> str:
    text = tokens[0].value
    for part in text.split(","):
        try:
            good = 0 <= float(part) <= 100
        except ValueError:
            good = False
        if not good:
            raise ValueError(f"{part!r} is no percentile; write numbers from 0 to 100 such as 50,99.")
    return text


@Parameter(name="*", group="Server")
@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """Which server is measured."""

    base_url: str = "http://127.0.0.1:8000"
    """Address of an OpenAI-compatible server."""
    endpoint: Literal["/v1/completions", "/v1/chat/completions"] = "/v1/completions"
    """Where requests go; chat adds the model's template to each prompt."""
    model: str | None = None
    """Name of the model; by default the first that the server lists."""
    api_key: str | None = None
    """Key for the server."""


@Parameter(name="*", group="Prompts")
@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOptions:
    """What is asked."""

    dataset_name: Literal["random", "shared-prefix"] = "random"
    """Random words, or random words behind prefixes that prompts share."""
    dataset_path: Path | None = None
    """JSONL file of {"prompt": text, "max_tokens": number}, instead of random words."""
    num_prompts: Positive = 100
    """Requests to send."""
    random_input_len: Positive = 512
    """Tokens of a prompt, without a shared prefix."""
    random_output_len: Positive = 128
    """Most tokens of an answer."""
    random_range_ratio: Annotated[float, Parameter(validator=Number(gte=0, lt=1))] = 0.0
    """Lengths vary by this share to both sides; 0 makes them exact."""
    prefix_len: Positive = 1024
    """Tokens of each shared prefix (shared-prefix)."""
    num_prefixes: Positive = 4
    """How many different prefixes take turns (shared-prefix)."""
    ignore_eos: Flag = False
    """Have every answer reach its full length, on servers that know ignore_eos."""
    temperature: Annotated[float | None, Parameter(validator=Number(gte=0))] = None
    """Sampling temperature; by default the server's."""
    seed: NotNegative = 0
    """Decides prompts and arrival times."""


@Parameter(name="*", group="Load")
@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """When it is asked."""

    request_rate: Rate = math.inf
    """Requests per second with random (Poisson) arrivals; inf sends all at once."""
    burstiness: Rate = 1.0
    """Shape of the arrivals: 1 is Poisson, below comes in bursts, above is steadier."""
    max_concurrency: Positive | None = None
    """Most requests under way; more wait on this side."""
    num_warmups: NotNegative = 0
    """Requests sent before the run, which count in no figure."""


@Parameter(name="*", group="Report")
@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """What is reported, and where to."""

    percentile_metrics: Annotated[str, Parameter(converter=_metrics)] = "ttft,tpot,itl,e2el"
    """Which latencies to report, separated by commas."""
    metric_percentiles: Annotated[str, Parameter(converter=_percentiles)] = "50,90,99"
    """Which percentiles to report, separated by commas."""
    goodput: Annotated[tuple[str, ...], Parameter(converter=_goodput, consume_multiple=True, show_default=False)] = ()
    """Limits that a good request keeps, in milliseconds: ttft:500 tpot:50 e2el:5000."""
    json: Flag = False
    """Print the report as JSON."""
    save_result: Flag = False
    """Write the report to a file."""
    save_detailed: Flag = False
    """Write each request's figures and text too."""
    result_dir: Path = Path()
    """Folder of that file."""
    result_filename: str | None = None
    """Name of that file; by default made from rate, model and time."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBenchOptions:
    """What is measured of the engine."""

    dtype: Dtype = "bf16"
    """How weights and KV cache are kept in memory."""
    quantize: Quantize = "auto"
    """As for forebay serve: auto keeps 4 and 8 bits of a GGUF file, int4 and int8 quantise the others too."""
    activations: Activations = "int8"
    """As for forebay serve: how far what weights are multiplied with may be rounded."""
    threads: Positive | None = None
    """Compute threads; by default the cores that this process may use."""
    kernels: KernelChoice = "auto"
    """Which kernels compute: auto takes native ones where they can be built, else the slower torch ones."""
    prefill: tuple[Positive, ...] = (512, 2048)
    """Prompt lengths to read, in tokens; may be given several times."""
    rows: tuple[Positive, ...] = (1, 8, 32)
    """Numbers of sequences to decode at once; may be given several times."""
    context: Positive = 128
    """Tokens that each sequence has when its decode is measured."""
    repeat: Positive = 5
    """Runs of each measurement; the median is reported."""
    json: Flag = False
    """Print the report as JSON."""


_TARGET = TargetOptions()
_PROMPTS = PromptOptions()
_LOAD = LoadOptions()
_REPORT = ReportOptions()
_ENGINE = EngineBenchOptions()


def serve(
    *,
    target: TargetOptions = _TARGET,
    prompts: PromptOptions = _PROMPTS,
    load: LoadOptions = _LOAD,
    report: ReportOptions = _REPORT,
) -> int:
    """Measure a running server (any OpenAI-compatible one) over HTTP.

    Exit code 1 when every request failed.
    """
    import asyncio

    from forebay.cli.bench_serve import run

    return asyncio.run(run(target, prompts, load, report))


def engine(model: str = DEFAULT_MODEL, *, options: EngineBenchOptions = _ENGINE) -> int:
    """Measure the engine by itself: tokens per second of prefill and decode, beside this machine's limits.

    Parameters
    ----------
    model
        As for forebay serve.
    """
    from forebay.engine.threads import set_thread_defaults

    set_thread_defaults(options.threads)
    from forebay.cli.bench_engine import run

    return run(model, options)
