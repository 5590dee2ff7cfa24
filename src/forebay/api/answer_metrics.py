"""Prometheus metrics of what answers say and of what requests ask of them: calls, problems, forms, kept answers."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

from forebay.core.grammar import GrammarKind
from forebay.recipe.parsers import ProblemKind


class AnswerMetrics:
    """They belong to one app; `labels` are the ones that all its metrics have."""

    def __init__(self, registry: CollectorRegistry, labels: Mapping[str, str]) -> None:
        self._labels = dict(labels)
        self._registry = registry
        self._calls = self._counter("forebay_tool_calls", "Tool calls that answers began.").labels(**self._labels)
        self._problems = self._counter("forebay_answer_problems", "What was wrong with answers, by kind.", "kind")
        self._grammars = self._counter("forebay_grammar_requests", "Requests whose answer has a given form.", "kind")
        self._kept = self._counter("forebay_kept_answer_lookups", "Assistant messages looked up.", "result")
        self._entries = self._gauge("forebay_kept_answers", "Answers that are kept.")
        self._bytes = self._gauge("forebay_kept_answer_bytes", "Bytes of the kept answers' ids.")

    def _counter(self, name: str, text: str, *more: str) -> Counter:
        return Counter(name, text, (*self._labels, *more), registry=self._registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, tuple(self._labels), registry=self._registry).labels(**self._labels)

    def tool_call(self) -> None:
        """An answer began a call."""
        self._calls.inc()

    def problem(self, kind: ProblemKind) -> None:
        """Something is wrong with an answer."""
        self._problems.labels(**self._labels, kind=kind.value).inc()

    def grammar_request(self, kind: GrammarKind) -> None:
        """A request says what its answer has to look like."""
        self._grammars.labels(**self._labels, kind=kind).inc()

    def looked_up(self, *, hits: int, misses: int) -> None:
        """A conversation's assistant messages were looked up."""
        for result, count in (("hit", hits), ("miss", misses)):
            if count:
                self._kept.labels(**self._labels, result=result).inc(count)

    def keeping(self, entries: int, size: int) -> None:
        """What is kept now; `size` in bytes."""
        self._entries.set(entries)
        self._bytes.set(size)
