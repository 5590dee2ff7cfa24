"""The book-keeping of KV pages: which page number holds what, for whom. Numbers and hashes only; no tensor is ever
touched."""

from forebay.kv.book import KvBook
from forebay.kv.identity import PAGE_TOKENS, page_id, page_root
from forebay.kv.sequence_pages import SequencePages, pages_for

__all__ = ["PAGE_TOKENS", "KvBook", "SequencePages", "page_id", "page_root", "pages_for"]
