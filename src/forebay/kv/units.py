"""Where a prefix can be resumed when attention sees a sliding window only: the points that are worth keeping pages for.

With full attention every page is of use, and any page's end is such a point. With a window of W tokens, going on from
token p takes the pages of the last W tokens before p and nothing earlier, so pages far from any point are never read
again. Points lie at page borders. Pure arithmetic: no page is stored or dropped here. The scheduler does not use it:
models with a window are served with all of their pages kept, so any page's end can be resumed, at the price of room.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from forebay.kv.identity import PAGE_TOKENS


@dataclass(frozen=True, slots=True)
class ResumePolicy:
    """Which points of a sequence are kept. Raises ValueError for a window or an interval of less than a page."""

    window: int
    """Tokens that a token sees, itself included."""
    interval: int = 16384
    """A point every so many tokens, whatever else there is: a prompt that leaves a known one anywhere computes no more
    than that again. Each costs a window of pages, so an interval of a window or less would keep everything."""

    def __post_init__(self) -> None:
        if min(self.window, self.interval) < PAGE_TOKENS:
            raise ValueError(f"a window and an interval have at least {PAGE_TOKENS} tokens")

    def points(self, prompt: int, total: int, common: Iterable[int] = ()) -> list[int]:
        """Token positions to keep, in order, for a sequence of `total` tokens whose first `prompt` are its prompt.

        The end of the input (the same prompt again resumes there, so a token must be left to compute), the end of the
        output (the next turn), `common` (positions where other prompts were seen to part, see `CommonPrefixes`), and
        fixed intervals.
        """
        step = max(PAGE_TOKENS, _floor(self.interval))
        wanted = {_floor(prompt - 1), _floor(total), *map(_floor, common), *range(step, total + 1, step)}
        return sorted(point for point in wanted if 0 < point <= total)

    def first_page(self, computed: int) -> int:
        """The first page that tokens from position `computed` on see."""
        return max(0, computed - self.window + 1) // PAGE_TOKENS

    def pages_for(self, point: int) -> range:
        """The pages that going on from `point` (a page border) reads: the token computed there still sees them."""
        return range(self.first_page(point), point // PAGE_TOKENS)

    def keep(self, points: Iterable[int]) -> list[int]:
        """The pages that some of these points need, each once, in order."""
        return sorted({page for point in points for page in self.pages_for(point)})

    def resume_at(self, pages: int, there: Callable[[int], bool]) -> int:
        """The largest token position within the first `pages` pages from which a prefix can be resumed, given which
        pages are there; 0 when none.

        A page that is missing rules out all points up to a window behind it: where nothing is there, one page a window
        is asked for.
        """
        end = pages
        while end:
            needed = self.pages_for(end * PAGE_TOKENS)
            missing = next((page for page in (needed.start, *reversed(needed)) if not there(page)), None)
            if missing is None:
                return end * PAGE_TOKENS
            end = missing
        return 0


class CommonPrefixes:
    """Notices where prompts part: the page border before which two of them were equal and after which they are not.

    Remembers one follower for each of at most `bound` pages; the page seen longest ago is forgotten first.
    """

    def __init__(self, bound: int = 65536) -> None:
        self._bound = bound
        self._followers: OrderedDict[bytes, bytes | None] = OrderedDict()

    def see(self, root: bytes, ids: Sequence[bytes]) -> list[int]:
        """Take in the page ids of a prompt; returns the token positions at which it or an earlier one left the other.

        A position counts from the second prompt that parts there on, for every prompt that passes it.
        """
        found: list[int] = []
        parent = root
        for i, page in enumerate(ids):
            if parent not in self._followers:
                self._followers[parent] = page
            elif self._followers[parent] != page:
                self._followers[parent] = None
            self._followers.move_to_end(parent)
            if i and self._followers[parent] is None:
                found.append(i * PAGE_TOKENS)
            parent = page
        while len(self._followers) > self._bound:
            self._followers.popitem(last=False)
        return found


def _floor(tokens: int) -> int:
    return tokens // PAGE_TOKENS * PAGE_TOKENS
