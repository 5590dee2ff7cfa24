"""How many KV pages a worker gets: pure arithmetic on sizes that the caller has measured."""

from __future__ import annotations

from forebay.core.errors import ConfigError
from forebay.kernels.interface import PAGE_TOKENS

DEFAULT_SHARE = 4
DEFAULT_CAP = 8 << 30
LOW_SHARE = 16
LOW_CAP = 512 << 20


def kv_pages(
    page_bytes: int,
    asked: int | None,
    available: int,
    max_model_len: int,
    max_running: int,
    *,
    low: bool = False,
) -> int:
    """The number of pages to make.

    Args:
        page_bytes: bytes of one page.
        asked: `--kv-memory` in bytes, or None for a quarter of what is available, at most 8 GiB.
        available: bytes of memory free now, after the weights.
        max_model_len: the model's context in tokens.
        max_running: the most sequences at once; no more pages are made than all of them could fill.
        low: by default a sixteenth of what is available instead, at most 512 MiB.

    Raises:
        ConfigError: the memory asked for is not there, or holds not even two pages.
    """
    if asked is not None and asked > available:
        raise ConfigError(
            f"--kv-memory asks for {asked / 2**30:.2f} GiB, but only {available / 2**30:.2f} GiB of memory are free. "
            f"Ask for less."
        )
    share, cap = (LOW_SHARE, LOW_CAP) if low else (DEFAULT_SHARE, DEFAULT_CAP)
    budget = asked if asked is not None else min(available // share, cap)
    pages = budget // page_bytes
    if pages < 2:
        raise ConfigError(
            f"The KV memory of {budget} bytes holds {pages} pages of {page_bytes} bytes; at least 2 are needed. "
            f"Raise --kv-memory to {2 * page_bytes} bytes or more."
        )
    most = max_running * -(-max_model_len // PAGE_TOKENS) if asked is None else pages
    return min(pages, max(most, 2))


def context_limit(model_context: int, asked: int | None, pages: int) -> int:
    """Tokens of prompt and answer that one sequence may have.

    Raises:
        ConfigError: `--max-model-len` is more than the model's context or than the KV memory holds.
    """
    held = pages * PAGE_TOKENS
    if asked is None:
        return min(model_context, held)
    if asked > model_context:
        raise ConfigError(f"--max-model-len is {asked}, but the model's context is {model_context} tokens.")
    if asked > held:
        raise ConfigError(f"--max-model-len is {asked}, but the KV memory holds {held} tokens. Raise --kv-memory.")
    return asked
