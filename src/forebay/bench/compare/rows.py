"""The rows of the comparison: what work each is, in which unit, and what is aimed for. Pure; nothing is run here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from forebay.core.errors import ConfigError

OURS = "ours"
OURS_EXACT = "ours-fp32"
"""Our side once more, with --activations fp32; only where it was asked for."""
OWN = (OURS, OURS_EXACT)
PEERS = ("llama.cpp", "vllm")
BEST = "best"
"""In a goal: the better of the peers that were measured."""


class Kind(StrEnum):
    """How a row is measured."""

    PREFILL = "prefill"
    """One prompt, in process, from its start to its first token."""
    DECODE = "decode"
    """Sequences that all generate, in process."""
    SERVER = "server"
    """A server process: its start, a load over HTTP, its memory."""
    SMALL_SERVER = "small server"
    """The same in the mode that takes the least memory, where a side has one."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a row should reach; all that is named must hold."""

    times: dict[str, float] = field(default_factory=dict)
    """At least this many times as good as the peer of that name, or as `BEST`."""
    below: float | None = None
    """Less than this, in the row's unit."""
    of_float_limit: float | None = None
    """At least this share of what the machine's rate of floating-point products allows."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    name: str
    title: str
    kind: Kind
    unit: str
    goal: Goal
    higher_is_better: bool = True
    sequences: int = 1
    context: int = 0
    """Tokens read before what is timed (decode)."""
    tokens: int = 0
    """Tokens that are timed, a sequence: of the prompt (prefill) or generated (decode)."""


@dataclass(frozen=True, slots=True)
class Load:
    """What every server is asked over HTTP, by each number of clients in turn."""

    clients: tuple[int, ...] = (1, 4, 16)
    """The last is what the table's rows tell of; the others are for the plots."""
    requests_per_client: int = 1
    input_tokens: int = 512
    output_tokens: int = 128

    @property
    def cached_tokens(self) -> int:
        """Tokens that the KV cache must hold for the most clients, with a sixteenth to spare."""
        return max(self.clients) * (self.input_tokens + self.output_tokens) * 17 // 16


SERVING, SERVING_ITL, SERVING_TTFT, START, MEMORY = "serving", "serving-itl", "serving-ttft", "start", "memory"
LOW_MEMORY = "memory-low"

_TOKENS, _MS, _S, _MIB = "tokens/s", "ms", "s", "MiB"


def _prefill(tokens: int) -> Row:
    goal = Goal({BEST: 2.2}, of_float_limit=0.75)
    return Row(f"prefill-{tokens}", f"prefill, {tokens:,} tokens", Kind.PREFILL, _TOKENS, goal, tokens=tokens)


def _decode(name: str, sequences: int, context: int, steps: int, goal: Goal) -> Row:
    title = f"decode, {sequences} sequence{'s' * (sequences > 1)} at {context:,} tokens"
    return Row(name, title, Kind.DECODE, _TOKENS, goal, sequences=sequences, context=context, tokens=steps)


def _server(name: str, title: str, unit: str, goal: Goal, *, higher: bool = False) -> Row:
    kind = Kind.SMALL_SERVER if name == LOW_MEMORY else Kind.SERVER
    return Row(name, title, kind, unit, goal, higher_is_better=higher)


_ONE_SEQUENCE = Goal({"llama.cpp": 1.3, "vllm": 4.0})

ROWS = (
    _prefill(512),
    _prefill(2048),
    _decode("decode-1", 1, 128, 64, _ONE_SEQUENCE),
    _decode("decode-1-1024", 1, 1024, 64, _ONE_SEQUENCE),
    _decode("decode-8", 8, 128, 32, Goal({BEST: 2.0})),
    _decode("decode-32", 32, 128, 32, Goal({BEST: 1.8})),
    _decode("decode-8-4000", 8, 4000, 16, Goal({BEST: 1.5})),
    _server(SERVING, "serving, 16 clients: output", _TOKENS, Goal({BEST: 2.0}), higher=True),
    _server(SERVING_ITL, "serving, 16 clients: p99 ITL", _MS, Goal(below=200.0)),
    _server(SERVING_TTFT, "serving, 16 clients: median TTFT", _MS, Goal()),
    _server(START, "process start to first token", _S, Goal(below=3.0)),
    _server(MEMORY, "memory after the load", _MIB, Goal({"llama.cpp": 1 / 1.6})),
    _server(LOW_MEMORY, "the same with --low-memory", _MIB, Goal({"llama.cpp": 1 / 1.2})),
)


def choose_rows(names: str) -> tuple[Row, ...]:
    """The rows named, separated by commas, in the table's order; `all`, or a name's first part such as `decode`.

    `serving` is all that its load tells of latency and throughput.
    Raises ConfigError naming what is no row.
    """
    chosen: set[str] = set()
    for name in filter(None, (part.strip() for part in names.split(","))):
        found = _named(name)
        if not found:
            raise ConfigError(f"There is no row {name!r}; the rows are {', '.join(row.name for row in ROWS)}.")
        chosen |= found
    if not chosen:
        raise ConfigError("No row is named; write all, or some of " + ", ".join(row.name for row in ROWS) + ".")
    return tuple(row for row in ROWS if row.name in chosen)


def _named(name: str) -> set[str]:
    exact = {row.name for row in ROWS if name in ("all", row.name)}
    if exact and name != SERVING:
        return exact
    return exact | {row.name for row in ROWS if row.name.startswith(f"{name}-")}


def of_kind(rows: Sequence[Row], kind: Kind) -> list[Row]:
    """Those of one kind."""
    return [row for row in rows if row.kind == kind]
