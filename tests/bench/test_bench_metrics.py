"""The figures of a report against values worked out by hand, and the field names of `vllm bench serve`."""

from __future__ import annotations

import pytest

from forebay.bench.metrics import (
    DETAIL_FIELDS,
    METRICS,
    RequestResult,
    count_good,
    distribution,
    parse_goodput,
    peaks,
    summarise,
    without_details,
)


def result(
    start: float = 0.0, ttft: float = 0.2, itls: tuple[float, ...] = (), tokens: int | None = None, error: str = ""
) -> RequestResult:
    return RequestResult(
        start=start,
        ttft=ttft,
        itls=list(itls),
        latency=ttft + sum(itls),
        prompt_tokens=10,
        output_tokens=len(itls) + 1 if tokens is None else tokens,
        error=error,
    )


def test_throughput_counts_only_what_completed() -> None:
    results = [result(itls=(0.1, 0.3)), result(start=1.0, ttft=0.4), result(error="500: no")]
    report = summarise(results, 2.0, percentiles=(50, 99, 99.9))
    assert (report["completed"], report["failed"]) == (2, 1)
    assert (report["total_input_tokens"], report["total_output_tokens"]) == (20, 4)
    assert report["request_throughput"] == 1.0
    assert report["output_throughput"] == 2.0
    assert report["total_token_throughput"] == 12.0
    assert report["request_goodput"] is None
    assert report["output_lens"] == [3, 1, 0]
    assert report["errors"] == ["", "", "500: no"]


def test_latency_figures_by_hand() -> None:
    report = summarise([result(itls=(0.1, 0.3)), result(start=1.0, ttft=0.4)], 2.0, percentiles=(50, 75, 99.9))
    assert report["mean_ttft_ms"] == pytest.approx(300)
    assert report["std_ttft_ms"] == pytest.approx(100)
    assert report["p75_ttft_ms"] == pytest.approx(350)
    # The answer of one token has no time per token after its first; the other took 0.4 s for two.
    assert report["mean_tpot_ms"] == pytest.approx(200)
    assert report["median_itl_ms"] == pytest.approx(200)
    assert report["mean_e2el_ms"] == pytest.approx(500)
    assert "p99.9_e2el_ms" in report


def test_only_the_chosen_metrics_are_reported() -> None:
    report = summarise([result()], 1.0, metrics=("ttft",))
    assert "mean_ttft_ms" in report
    assert "mean_itl_ms" not in report


def test_nothing_completed_gives_zeros_and_no_error() -> None:
    report = summarise([result(error="refused")], 0.0)
    assert report["request_throughput"] == 0
    assert report["mean_ttft_ms"] == 0
    assert report["max_concurrent_requests"] == 0


def test_percentiles_interpolate_between_samples() -> None:
    assert distribution("itl", [0.001, 0.002, 0.003, 0.004], (25,))["p25_itl_ms"] == pytest.approx(1.75)


def test_good_requests_meet_every_limit_and_one_token_has_tpot_zero() -> None:
    fast, slow_first, slow_rest, single = (
        result(ttft=0.1, itls=(0.02, 0.02)),
        result(ttft=0.9, itls=(0.02,)),
        result(ttft=0.1, itls=(0.5,)),
        result(ttft=0.1),
    )
    done = [fast, slow_first, slow_rest, single]
    assert count_good(done, {"ttft": 500, "tpot": 50}) == 2
    assert count_good(done, {"e2el": 200}) == 2
    assert summarise(done, 2.0, goodput={"ttft": 500})["request_goodput"] == 1.5


def test_peaks_count_tokens_and_requests_by_second() -> None:
    # First second: tokens at 0.2, 0.3, 0.6 of the first request; second one: 1.2 of it and 1.5, 1.6 of the second.
    done = [result(itls=(0.1, 0.3, 0.6)), result(start=1.3, itls=(0.1,))]
    assert peaks(done) == (3.0, 2)
    assert peaks([]) == (0.0, 0)


def test_field_names_are_those_of_the_peers_client() -> None:
    report = summarise([result()], 1.0)
    totals = "duration completed failed total_input_tokens total_output_tokens rtfx"
    rates = "request_throughput request_goodput output_throughput total_token_throughput"
    expected = {*totals.split(), *rates.split(), "max_output_tokens_per_s", "max_concurrent_requests"}
    expected |= {f"{stat}_{name}_ms" for name in METRICS for stat in ("mean", "median", "std", "p99")}
    assert set(without_details(report)) == expected
    assert set(report) == expected | set(DETAIL_FIELDS)


def test_goodput_pairs() -> None:
    assert parse_goodput(["ttft:500", "tpot:50.5"]) == {"ttft": 500.0, "tpot": 50.5}
    for bad in ("ttft", "itl:50", "ttft:fast", "e2el:0"):
        with pytest.raises(ValueError, match="NAME:MILLISECONDS"):
            parse_goodput([bad])
