"""Under which options the engine is measured."""

from __future__ import annotations

from forebay.bench.engine import EnginePlan, engine_options


def test_the_engine_has_room_for_the_most_rows_and_no_prefix_cache() -> None:
    options = engine_options("tiny", EnginePlan(rows=(1, 100)), {"threads": 1})
    assert (options.max_running, options.prefix_cache, options.threads) == (100, False, 1)
