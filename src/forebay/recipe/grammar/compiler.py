"""Compiles grammars and keeps the last ones. Blocking: a large schema may take a tenth of a second."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from threading import Lock
from typing import Final

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from forebay.core.errors import InvalidRequestError
from forebay.core.grammar import GrammarSpec
from forebay.recipe.grammar.fault import fault_in
from forebay.recipe.grammar.matcher import Matcher, error_of
from forebay.recipe.grammar.source import source_of

MAX_TEXT: Final = 256 << 10
"""Characters of a grammar's text."""
_KEPT: Final = 64
_MAX_SYMBOLS: Final = 200_000


class GrammarCompiler:
    """Grammars of one model's tokens. Safe to use from several threads."""

    def __init__(self, tokens: LLTokenizer, kept: int = _KEPT) -> None:
        """`kept`: how many compiled grammars are remembered; the one unused for longest is dropped first."""
        self._tokens = tokens
        self._bound = kept
        self._lock = Lock()
        self._compiled: OrderedDict[GrammarSpec, LLMatcher] = OrderedDict()
        self._ends: frozenset[int] = frozenset(tokens.eos_tokens)

    @property
    def vocab_size(self) -> int:
        """The width of masks, before it is rounded up."""
        return self._tokens.vocab_size

    @property
    def kept(self) -> list[GrammarSpec]:
        """The grammars that are remembered, the one unused for longest first."""
        with self._lock:
            return list(self._compiled)

    def matcher(self, spec: GrammarSpec, stop_ids: Collection[int] = ()) -> Matcher:
        """The beginning of an answer that follows the grammar; `stop_ids` are those of its request.

        Raises what `check` raises.
        """
        return Matcher(self._template(spec, None), self._ends, stop_ids)

    def check(self, spec: GrammarSpec, param: str | None = None) -> None:
        """Compile a grammar and remember it.

        Raises InvalidRequestError, for `param`, that says what can't be compiled and where in the schema it is.
        """
        self._template(spec, param)

    def _template(self, spec: GrammarSpec, param: str | None) -> LLMatcher:
        with self._lock:
            known = self._compiled.get(spec)
            if known is not None:
                self._compiled.move_to_end(spec)
                return known
        compiled = self._compile(spec, param)
        with self._lock:
            self._compiled[spec] = compiled
            while len(self._compiled) > self._bound:
                self._compiled.popitem(last=False)
        return compiled

    def _compile(self, spec: GrammarSpec, param: str | None) -> LLMatcher:
        if len(spec.text) > MAX_TEXT:
            text = f"The grammar has {len(spec.text)} characters; at most {MAX_TEXT} are accepted."
            raise InvalidRequestError(text, param)
        try:
            source = source_of(spec)
        except ValueError as error:
            raise InvalidRequestError(f"The schema is not a JSON object: {error}", param) from error
        limits = LLParserLimits(max_grammar_size=_MAX_SYMBOLS, verbose_errors=False)
        compiled = LLMatcher(self._tokens, source, log_level=0, limits=limits)
        problem = error_of(compiled)
        if problem:
            raise InvalidRequestError(fault_in(spec, problem), param)
        return compiled
