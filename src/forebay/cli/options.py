"""Options that several commands share, and where values come from: command line, then environment, then TOML file.

A dataclass field is an option; its docstring is the help. `--kv-memory` of `forebay serve` is FOREBAY_SERVE_KV_MEMORY
in the environment and `kv-memory` in the section [serve] of the file that --config names.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, Token
from cyclopts.config import Dict, Env
from cyclopts.validators import Number

from forebay.core.activations import Activations
from forebay.core.errors import ForebayError

ENV_PREFIX = "FOREBAY_"
DEFAULT_MODEL = "smollm2"


class UsageError(ForebayError):
    """Options that make no sense, found only after they were read; the command ends with exit code 2."""


_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes of "2GiB", "512MiB", "1.5 GB" or a plain number; KiB and K are powers of 1024, KB of 1000.

    Raises ValueError saying what is understood.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no size; write a number of bytes, or one with a unit such as 512MiB or 2GiB.")
    number, unit, binary = match.groups()
    decimal = bool(unit) and not binary and text.strip().lower().endswith("b")
    size = int(float(number) * (1000 if decimal else 1024) ** _UNITS[unit.lower()])
    if size < 1:
        raise ValueError(f"{text!r} is no size; it must be at least one byte.")
    return size


def _size_converter(_: object, tokens: Sequence[Token]) -> int:
    return parse_size(tokens[0].value)


Size = Annotated[int, Parameter(converter=_size_converter, metavar="SIZE")]
Flag = Annotated[bool, Parameter(negative=())]
Texts = Annotated[tuple[str, ...], Parameter(show_default=False)]
Positive = Annotated[int, Parameter(validator=Number(gte=1))]
NotNegative = Annotated[int, Parameter(validator=Number(gte=0))]
Port = Annotated[int, Parameter(validator=Number(gte=0, lte=65535))]
Seconds = Annotated[float, Parameter(validator=Number(gt=0), metavar="SECONDS")]

SecondsOrZero = Annotated[float, Parameter(validator=Number(gte=0), metavar="SECONDS")]
Milliseconds = Annotated[float, Parameter(validator=Number(gt=0), metavar="MS")]

Dtype = Literal["bf16", "fp32"]
Quantize = Literal["auto", "none", "int4", "int8"]
KernelChoice = Literal["auto", "native", "torch"]


@Parameter(name="*", group="Model and memory")
@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """How an engine loads its model; the same for every command that starts one."""

    dtype: Dtype = "bf16"
    """How weights are kept in memory."""
    quantize: Quantize = "auto"
    """auto keeps weights that a GGUF file holds at 4 or 8 bits as they are; int4 and int8 quantise the others too."""
    activations: Activations = "int8"
    """How far what weights are multiplied with may be rounded. int8: to 8 bits with quantised weights, as llama.cpp
    does, and to bf16 with bf16 weights where the processor multiplies bf16; bf16: the latter alone; fp32: not at all,
    which gives exactly what the weights say and takes up to twice the time."""
    kv_dtype: Dtype | None = None
    """How the KV cache is kept; by default as the weights."""
    kv_memory: Size | None = None
    """Memory for the KV cache, such as 2GiB; by default a quarter of the free memory, at most 8 GiB."""
    low_memory: Flag = False
    """Take less memory, at the price of speed: weights that are stored plain become int4 (as --quantize int4), prompts
    are read in steps of at most 512 tokens, the KV cache gets a sixteenth of the free memory and at most 512 MiB, and
    the host pool 32 MiB; the cache on disk stays. --quantize, --kv-memory and --host-pool still decide where given."""
    max_model_len: Positive | None = None
    """Longest prompt and answer together, in tokens; by default the model's context, or what the KV memory holds."""
    threads: Positive | None = None
    """Compute threads; by default one for each core that this process may use, fewer where a quota (cgroup) gives less
    time. They stay on their cores where they take all of them, unless OMP_PROC_BIND says otherwise."""
    kernels: KernelChoice = "auto"
    """Which kernels compute: auto takes native ones where they can be built, else the slower torch ones."""


@Parameter(name="*", group="Scheduling")
@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingOptions:
    """How requests share the engine."""

    target_itl: Milliseconds = 100.0
    """Longest time between two tokens that the scheduler aims for while prompts of others are read, in milliseconds."""
    max_running: Positive = 64
    """Sequences that may generate at the same time."""
    max_waiting: Positive = 512
    """Requests that may wait; one more is refused with 429 (OpenAI) or 529 (Anthropic)."""
    prefix_cache: bool = True
    """Keep what was read of ended requests, for prompts that begin alike."""


ENGINE_DEFAULTS = EngineOptions()
SCHEDULING_DEFAULTS = SchedulingOptions()


def read_config(path: Path, sections: Iterable[str]) -> Dict:
    """The TOML file as a source of options. Unknown keys within a section are found later, by the command itself.

    Raises UsageError when the file can't be read, is not TOML, or has a section that is not among `sections`.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"The configuration file {path} can't be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"The configuration file {path} is not TOML: {error}.") from error
    _check_sections(path, data, list(sections))
    return Dict(data, source=str(path))


def _check_sections(path: Path, data: dict[str, Any], known: list[str]) -> None:
    for name, section in data.items():
        if name not in known:
            raise UsageError(f"Unknown key {name!r} in {path}; the sections are {', '.join(f'[{n}]' for n in known)}.")
        if not isinstance(section, dict):
            raise UsageError(f"{name!r} in {path} must be a section: [{name}].")


def env_source() -> Env:
    """The environment as a source of options: FOREBAY_<COMMAND>_<OPTION>."""
    return Env(ENV_PREFIX)
