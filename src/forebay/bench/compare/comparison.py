"""Carries the comparison out: makes the sides, gives each its turns, one at a time, and keeps what they measured."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from forebay.bench.compare.limits import Bounds
from forebay.bench.compare.llama_cpp import LlamaCpp
from forebay.bench.compare.ours import Ours
from forebay.bench.compare.planning import order_of_turns, rows_to_measure, seconds_left
from forebay.bench.compare.processes import PeerError
from forebay.bench.compare.rows import LOW_MEMORY, MEMORY, OURS, OURS_EXACT, OWN, PEERS, ROWS, Kind, Row, of_kind
from forebay.bench.compare.serving import Server
from forebay.bench.compare.side import Setup, Side
from forebay.bench.compare.turns import Turn
from forebay.bench.compare.vllm import Vllm
from forebay.core.errors import ConfigError

Report = Callable[[str, float], None]

(_MEMORY,) = (row for row in ROWS if row.name == MEMORY)


@dataclass(frozen=True, slots=True)
class Budget:
    """How often is measured."""

    turns: int
    """Turns of every side."""
    row_s: float | None = None
    """Seconds that one row of one side may take over all turns; see `rows_to_measure`. None is without end."""


@dataclass(slots=True)
class Comparison:
    """All that was measured so far."""

    rows: Sequence[Row]
    setup: Setup
    turns: dict[str, list[Turn]]
    """By side, in the order they were taken."""
    described: dict[str, dict[str, Any]]
    """By side: version, weights and commands."""
    left_out: dict[str, str] = field(default_factory=dict)
    """By peer: why it takes no part."""

    def bounds(self, own: str = OURS) -> Bounds | None:
        """The machine's limits as our side `own` measured them, the best of all turns (other work only ever makes them
        smaller), and our sizes.
        """
        extras = [turn.extras for turn in self.turns[own] if turn.extras]
        if not extras:
            return None
        names = tuple(Bounds.__dataclass_fields__)
        return Bounds(**{name: max(extra[name] for extra in extras) for name in names})


def parse_peers(text: str) -> dict[str, Path]:
    """`llama.cpp=FOLDER,vllm=PYTHON` → paths by name. Raises ConfigError saying what is not understood."""
    peers: dict[str, Path] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, path = part.partition("=")
        if name not in PEERS or not path:
            raise ConfigError(f"{part!r} is no peer; write llama.cpp=FOLDER_OF_BINARIES or vllm=ITS_PYTHON.")
        peers[name] = Path(path).expanduser()
    return peers


def prepare(peers: Mapping[str, Path], rows: Sequence[Row], setup: Setup) -> tuple[Comparison, list[Side]]:
    """The sides that can take part; of a peer that can't, the reason is in `left_out`. Raises ForebayError for ours."""
    sides: list[Side] = [Ours(setup)]
    if setup.activations == "both":
        exact = Ours(replace(setup, activations="fp32"), OURS_EXACT)
        sides = [Ours(replace(setup, activations="int8")), exact]
    described = {side.name: side.describe() for side in sides}
    left_out = {name: "not named with --peers" for name in PEERS if name not in peers}
    for name, path in peers.items():
        try:
            peer: Side = LlamaCpp(path, setup) if name == LlamaCpp.name else Vllm(path, setup)
            described[name] = peer.describe()
            sides.append(peer)
        except PeerError as error:
            left_out[name] = str(error)
    return Comparison(rows, setup, {side.name: [] for side in sides}, described, left_out), sides


def compare(
    comparison: Comparison,
    sides: Sequence[Side],
    budget: Budget,
    report: Report,
    after_turn: Callable[[], object],
) -> None:
    """Take all turns; each adds to `comparison` as it goes and is followed by a call of `after_turn`.

    What a side keeps for its next turn is ended with the last, and also when this is interrupted.
    """
    setup = comparison.setup
    order = list(order_of_turns([side.name for side in sides], budget.turns))
    taken: dict[str, list[float]] = {side.name: [] for side in sides}
    with contextlib.ExitStack() as owned:
        servers = {side.name: Servers(side, setup) for side in sides}
        for closing in [side.close for side in sides] + [of_side.close for of_side in servers.values()]:
            owned.callback(closing)
        for step, (number, name) in enumerate(order):
            report(_stage(number, budget.turns, name, seconds_left(order[step:], taken)), step / len(order))
            rows = rows_to_measure(comparison.rows, comparison.turns[name], budget.row_s)
            begun = time.monotonic()
            turn = Turn()
            comparison.turns[name].append(turn)
            side = next(side for side in sides if side.name == name)
            take_turn(side, servers[name], rows, number, turn)
            taken[name].append(time.monotonic() - begun)
            after_turn()


def _stage(number: int, turns: int, name: str, left_s: float | None) -> str:
    left = "" if left_s is None else f", about {left_s / 60:.0f} min left"
    return f"turn {number + 1} of {turns}: {name}{left}"


class Servers:
    """A side's server, and the one in the mode that takes the least memory."""

    def __init__(self, side: Side, setup: Setup) -> None:
        self._usual = Server(side.server, setup.load, setup.timeout_s)
        self._small: Server | None = None
        if side.small_server(0) is not None:
            most = replace(setup.load, clients=setup.load.clients[-1:])
            self._small = Server(lambda port: side.small_server(port) or side.server(port), most, setup.timeout_s)

    def measure(self, rows: Sequence[Row], number: int, turn: Turn) -> None:
        """Measure both servers in turn `number`; a side without such a mode counts as it is. Fills in `turn`."""
        served, small = of_kind(rows, Kind.SERVER), of_kind(rows, Kind.SMALL_SERVER)
        if small and self._small is None:
            served = list({row.name: row for row in (*served, _MEMORY)}.values())
        if served:
            self._usual.measure(served, number, turn)
        if small:
            own = turn if self._small is None else Turn()
            if self._small is not None:
                self._small.measure([_MEMORY], number, own)
            _rename(own, MEMORY, turn, LOW_MEMORY)

    def close(self) -> None:
        """End both."""
        self._usual.close()
        if self._small is not None:
            self._small.close()


def _rename(measured: Turn, name: str, turn: Turn, other: str) -> None:
    """Put what one turn says of row `name` into `turn` as row `other`."""
    if name in measured.values:
        turn.values[other], turn.seconds[other] = measured.values[name], measured.seconds[name]
    elif name in measured.failures:
        turn.failures[other] = measured.failures[name]


def take_turn(side: Side, servers: Servers, rows: Sequence[Row], number: int, turn: Turn) -> None:
    """Everything that a side measures in one turn: first its servers, then its engine. `turn` is filled in.

    The servers come first because what their processes share with an engine that is kept would not count as memory.
    """
    in_process = [row for row in rows if row.kind in (Kind.PREFILL, Kind.DECODE)]
    served = [row for row in rows if row not in in_process]
    if served:
        try:
            servers.measure(served, number, turn)
        except PeerError as error:
            turn.fail(served, error)
    # Ours measures the machine's limits as well, so it is asked even without a row.
    if in_process or side.name in OWN:
        side.engine(in_process, turn)
