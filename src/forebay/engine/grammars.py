"""The grammars of running answers: one state for each choice, masks for a step's draws.

Imported with the first request that has a grammar (`constraints.py`). The state follows an answer's ids, so preemption,
resumption and forks need nothing of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from llguidance import LLTokenizer

from forebay.core.grammar import GrammarSpec
from forebay.engine.sampler import Draw
from forebay.recipe.grammar import DeadEndError, GrammarCompiler, Matcher, allowed_tokens

_DEAD_END = "The answer can't be continued within its grammar. Ask for a simpler one, or with another seed."


class Grammars:
    """Not thread-safe: the engine's thread calls it."""

    def __init__(self, tokens: LLTokenizer) -> None:
        self._compiler = GrammarCompiler(tokens)
        self._matchers: dict[tuple[str, int], Matcher] = {}

    def check(self, spec: GrammarSpec) -> None:
        """Raises InvalidRequestError for a grammar that can't be compiled."""
        self._compiler.check(spec)

    def constrain(self, draws: Sequence[Draw]) -> tuple[list[Draw], dict[int, str]]:
        """The draws, those of grammars with the tokens that may come next; and, by place in `draws`, why an answer
        can't go on. Such a draw is left free: its token must not be used."""
        bound = list(draws)
        dead: dict[int, str] = {}
        rows: list[int] = []
        matchers: list[Matcher] = []
        for at, draw in enumerate(draws):
            if draw.sampling.grammar is None:
                continue
            try:
                matchers.append(self._matcher(draw, draw.sampling.grammar))
                rows.append(at)
            except DeadEndError as error:
                dead[at] = str(error)
        if not rows:
            return bound, dead
        allowed = torch.from_numpy(allowed_tokens(matchers, self._compiler.vocab_size))
        for at, matcher, row in zip(rows, matchers, allowed, strict=True):
            if matcher.accepting:
                row[list(draws[at].sampling.stop_token_ids)] = True
            if bool(row.any()):
                bound[at] = replace(draws[at], allowed=row)
            else:
                dead[at] = _DEAD_END
        return bound, dead

    def _matcher(self, draw: Draw, spec: GrammarSpec) -> Matcher:
        key = (draw.request_id, draw.choice)
        matcher = self._matchers.get(key)
        if matcher is None:
            matcher = self._matchers[key] = self._compiler.matcher(spec, draw.sampling.stop_token_ids)
        matcher.follow(draw.output_ids)
        return matcher

    def forget(self, request_id: str, choice: int | None = None) -> None:
        """Drop the state of a choice, or of all of a request's."""
        if choice is not None:
            self._matchers.pop((request_id, choice), None)
            return
        self._matchers = {key: matcher for key, matcher in self._matchers.items() if key[0] != request_id}
