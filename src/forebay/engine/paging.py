"""Which book of KV pages a model needs, and what that says of its context. No page and no tensor is made here."""

from __future__ import annotations

from forebay.engine.memory import context_limit
from forebay.kv import PAGE_TOKENS, KvBook, ResumePolicy, WindowBook, pages_for
from forebay.models import ModelConfig

_INTERVAL = 16384
_INTERVAL_WINDOWS = 4
"""A window of pages is kept every so many windows at most: a quarter of all pages."""


def resume_policy(config: ModelConfig) -> ResumePolicy | None:
    """Where a prefix can be resumed when every layer has a window; None where each page needs all pages before it."""
    window = config.sliding_window
    if window is None or window >= config.max_model_len:
        return None
    # One page more than the token's own is always held whole: the page table names it in place of those given up.
    window = max(window, PAGE_TOKENS + 1)
    return ResumePolicy(window, max(_INTERVAL, _INTERVAL_WINDOWS * window))


def open_book(config: ModelConfig, pages: int, chunk: int, prefix_cache: bool) -> KvBook:
    """The book of `pages` pages, for steps of at most `chunk` tokens of a sequence."""
    policy = resume_policy(config)
    if policy is None:
        return KvBook(pages, prefix_cache)
    return WindowBook(pages, policy, chunk, prefix_cache)


def context_of(config: ModelConfig, book: KvBook, asked: int | None) -> int:
    """Tokens of prompt and answer that one sequence may have: what the model was made for, where a window and a chunk
    fit, else what the pages hold. Raises ConfigError as `context_limit` does.
    """
    whole = pages_for(config.max_model_len)
    holds = whole if book.most_pages(config.max_model_len) <= book.total else book.total
    return context_limit(config.max_model_len, asked, holds)
