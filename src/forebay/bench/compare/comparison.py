"""Carries the comparison out: makes the sides, gives each its turns, one at a time, and keeps what they measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay.bench.compare.limits import Bounds
from forebay.bench.compare.llama_cpp import LlamaCpp
from forebay.bench.compare.ours import Ours
from forebay.bench.compare.processes import PeerError
from forebay.bench.compare.rows import OURS, PEERS, Kind, Row, of_kind
from forebay.bench.compare.serving import Session, free_port, measure_server
from forebay.bench.compare.side import Setup, Side, failed_turn
from forebay.bench.compare.turns import Turn, order_of_turns
from forebay.bench.compare.vllm import Vllm
from forebay.core.errors import ConfigError

Report = Callable[[str, float], None]


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

    def bounds(self) -> Bounds | None:
        """The machine's limits, the best of all turns (other work only ever makes them smaller), and our sizes."""
        extras = [turn.extras for turn in self.turns[OURS] if turn.extras]
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
    ours = Ours(setup)
    sides: list[Side] = [ours]
    described = {OURS: ours.describe()}
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
    comparison: Comparison, sides: Sequence[Side], turns: int, report: Report, after_turn: Callable[[], None]
) -> None:
    """Take all turns; each adds to `comparison` and is followed by a call of `after_turn`.

    A row that a side failed in is not tried by it again.
    """
    by_name = {side.name: side for side in sides}
    order = list(order_of_turns([side.name for side in sides], turns))
    for step, (number, name) in enumerate(order):
        failed = {row for turn in comparison.turns[name] for row in turn.failures}
        rows = [row for row in comparison.rows if row.name not in failed]
        report(f"turn {number + 1} of {turns}: {name}", step / len(order))
        comparison.turns[name].append(take_turn(by_name[name], rows, comparison.setup, number))
        after_turn()


def take_turn(side: Side, rows: Sequence[Row], setup: Setup, number: int) -> Turn:
    """Everything that a side measures in one turn: first its engine, then its server. `number` seeds the prompts."""
    turn = Turn()
    in_process = [row for row in rows if row.kind != Kind.SERVER]
    # Ours measures the machine's limits as well, so it is asked even without a row.
    if in_process or side.name == OURS:
        turn = side.engine(in_process)
    served = of_kind(rows, Kind.SERVER)
    if served:
        port = free_port()
        try:
            session = Session(side.server(port), port, setup.load, number, setup.timeout_s)
            over_http = measure_server(session, served)
        except PeerError as error:
            over_http = failed_turn(served, error)
        turn.values |= over_http.values
        turn.failures |= over_http.failures
        turn.loads = over_http.loads
    return turn
