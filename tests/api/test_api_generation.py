"""From the router's outputs to deltas: any number of tokens in one output, stop strings, several choices, failures."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.api.fakes import MODEL, FakeRouter

from forebay.api.errors import FaultError
from forebay.api.generation import Delta, Generation, collect, run_all
from forebay.api.metrics import ApiMetrics
from forebay.api.observe import RequestObserver
from forebay.api.reading import EndReason, Finish
from forebay.core.errors import EngineUnavailableError, OverloadedError
from forebay.core.messages import IntegrityReport, ModelInfo, TokenLogprobs, TokenOutput, WorkerStats
from forebay.core.request import FinishReason, GenerateRequest, SamplingParams
from forebay.recipe import Recipe


class Script:
    """A router that yields what it was given."""

    on_stats: Callable[[WorkerStats], None] | None = None
    healthy = True
    model: ModelInfo = MODEL

    def __init__(self, outputs: Sequence[TokenOutput]) -> None:
        self.outputs = outputs
        self.taken = 0

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenOutput, None]:
        for output in self.outputs:
            self.taken += 1
            yield output

    async def check_integrity(self) -> IntegrityReport:
        raise NotImplementedError


def generation(recipe: Recipe, stop: Sequence[str] = (), n: int = 1, stops: tuple[int, ...] = (2,)) -> Generation:
    sampling = SamplingParams(max_tokens=100, n=n, stop_token_ids=stops)
    request = GenerateRequest(id="r", prompt_ids=[1, 2, 3], sampling=sampling)
    return Generation(request, recipe, stop, RequestObserver(ApiMetrics("m")))


def split(ids: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """The ids in groups of these sizes, the rest in one."""
    groups, rest = [], list(ids)
    for size in sizes:
        groups.append(rest[:size])
        rest = rest[size:]
    return [group for group in (*groups, rest) if group]


TEXT = "Grüße aus der Wüste 🏜️, sagte er; und 世界 auch."


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(sizes=st.lists(st.integers(1, 6), max_size=12), cut=st.integers(0, 40), length=st.integers(1, 6))
async def test_how_tokens_are_grouped_changes_nothing(recipe: Recipe, sizes: list[int], cut: int, length: int) -> None:
    stop = TEXT[cut : cut + length]
    ids = recipe.plain_ids(TEXT)
    outputs = [
        TokenOutput(request_id="r", token_ids=group, logprobs=[TokenLogprobs(i, -1.0, []) for i in group])
        for group in split(ids, sizes)
    ]
    outputs[-1].finish_reason = FinishReason.LENGTH
    made = generation(recipe, [stop] if stop else [])
    delta = (await collect([made], Script(outputs), 10))[0]
    assert delta.text == (TEXT[: TEXT.index(stop)] if stop else TEXT)
    assert delta.finish == (Finish(EndReason.STOP, stop) if stop else Finish(EndReason.LENGTH))
    assert delta.logprobs is not None
    assert [p.token_id for p in delta.logprobs] == delta.token_ids == ids[: made.completion_tokens]
    assert recipe.decode(delta.token_ids).startswith(delta.text + stop)


async def test_stop_token_gives_no_text_but_counts(recipe: Recipe) -> None:
    ids = recipe.plain_ids("Yes.")
    made = generation(recipe)
    script = Script([TokenOutput(request_id="r", token_ids=[*ids, 2], finish_reason=FinishReason.STOP)])
    delta = (await collect([made], script, 10))[0]
    assert (delta.text, delta.token_ids, delta.finish) == ("Yes.", ids, Finish(EndReason.STOP))
    assert made.completion_tokens == len(ids) + 1


async def test_clients_stop_token_that_has_text_is_not_shown(recipe: Recipe) -> None:
    ids = recipe.plain_ids("Yes and no")
    script = Script([TokenOutput(request_id="r", token_ids=ids, finish_reason=FinishReason.STOP)])
    delta = (await collect([generation(recipe, stops=(ids[-1],))], script, 10))[0]
    assert delta.text == "Yes and"


async def test_held_back_text_comes_at_the_end(recipe: Recipe) -> None:
    ids = recipe.plain_ids("the end")
    script = Script([TokenOutput(request_id="r", token_ids=ids, finish_reason=FinishReason.LENGTH)])
    delta = (await collect([generation(recipe, ["end of all"])], script, 10))[0]
    assert delta.text == "the end"


async def test_other_choices_go_on_when_one_meets_a_stop_string(recipe: Recipe) -> None:
    first, second = recipe.plain_ids("a STOP b"), recipe.plain_ids("c d e f")
    outputs = [TokenOutput(request_id="r", index=0, token_ids=[i]) for i in first]
    outputs += [TokenOutput(request_id="r", index=1, token_ids=[i]) for i in second]
    outputs[-1].finish_reason = FinishReason.LENGTH
    script = Script([*outputs, TokenOutput(request_id="r", token_ids=[5], finish_reason=FinishReason.STOP)])
    texts, ends = ["", ""], [0, 0]

    async def sink(_: Generation, delta: Delta) -> None:
        texts[delta.index] += delta.text
        ends[delta.index] += delta.finish is not None

    await run_all([generation(recipe, [" STOP"], n=2)], script, sink, 10)
    assert (texts, ends) == (["a", "c d e f"], [1, 1])
    assert script.taken == len(outputs), "nothing is read once all choices are done"


async def test_outputs_that_end_too_soon_are_a_failure(recipe: Recipe) -> None:
    with pytest.raises(EngineUnavailableError):
        await collect([generation(recipe)], Script([TokenOutput(request_id="r", token_ids=[5])]), 10)


async def test_engines_error_is_raised(recipe: Recipe) -> None:
    script = Script([TokenOutput(request_id="r", finish_reason=FinishReason.ERROR, error="no memory")])
    with pytest.raises(FaultError, match="no memory"):
        await collect([generation(recipe)], script, 10)


async def test_first_failure_ends_the_other_prompts(recipe: Recipe) -> None:
    held = FakeRouter(recipe, hold_after=1)

    class Both(FakeRouter):
        async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenOutput, None]:
            if request.prompt_ids == [9]:
                raise OverloadedError("full")
            async for output in held.generate(request):
                yield output

    async def sink(_: Generation, delta: Delta) -> None:
        assert delta.index == 0

    slow, refused = generation(recipe), generation(recipe)
    refused.request = GenerateRequest(id="q", prompt_ids=[9], sampling=refused.request.sampling)
    with pytest.raises(OverloadedError):
        await run_all([slow, refused], Both(recipe), sink, 10)
    assert held.aborted == ["r"]
