"""The book-keeping of KV pages: which page number holds what, for whom. Numbers and hashes only; no tensor is ever
touched."""

from forebay.kv.book import KvBook
from forebay.kv.identity import PAGE_TOKENS, page_id, page_root
from forebay.kv.sequence_pages import SequencePages, pages_for
from forebay.kv.units import ResumePolicy
from forebay.kv.window_book import WindowBook

__all__ = [
    "PAGE_TOKENS",
    "KvBook",
    "ResumePolicy",
    "SequencePages",
    "WindowBook",
    "page_id",
    "page_root",
    "pages_for",
]
