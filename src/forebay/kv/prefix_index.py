"""From a page's id to its number and back: the prefix index. It does not know who holds a page or when it may go."""

from __future__ import annotations


class PrefixIndex:
    """At most one page for an id and one id for a page."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self.names: dict[int, tuple[bytes, bytes]] = {}
        """Of each registered page its id and its parent's; changed here only."""
        self._children: dict[bytes, set[int]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, page: bytes) -> int | None:
        """The page that holds this id's content, or None."""
        return self._numbers.get(page)

    def has_id(self, page: bytes) -> bool:
        """Whether some page holds this id's content."""
        return page in self._numbers

    def has_number(self, number: int) -> bool:
        """Whether the page is registered."""
        return number in self.names

    def add(self, page: bytes, parent: bytes, number: int) -> None:
        """Register a page under its id. Raises ValueError when either is registered already."""
        if page in self._numbers or number in self.names:
            raise ValueError(f"page {number} or its id is registered already")
        self._numbers[page] = number
        self.names[number] = (page, parent)
        self._children.setdefault(parent, set()).add(number)

    def drop(self, number: int) -> set[int]:
        """Forget a registered page; returns the registered pages that follow it. Raises KeyError for one that is not
        registered."""
        page, parent = self.names.pop(number)
        del self._numbers[page]
        siblings = self._children[parent]
        siblings.discard(number)
        if not siblings:
            del self._children[parent]
        return set(self._children.get(page, ()))

    def problems(self, roots: set[bytes] | None) -> list[str]:
        """Entries that disagree, and pages that can't be reached because their parent is gone (not if `roots` is None:
        then a page is of use without its parent)."""
        found = []
        for number, (page, parent) in self.names.items():
            if self._numbers.get(page) != number:
                found.append(f"page {number} is registered under an id that leads elsewhere")
            if roots is not None and parent not in self._numbers and parent not in roots:
                found.append(f"page {number} is registered, but its parent is not")
        if sum(map(len, self._children.values())) != len(self.names):
            found.append("the pages that follow one another are not those that are registered")
        if len(self.names) != len(self._numbers):
            found.append(f"{len(self._numbers)} ids are registered for {len(self.names)} pages")
        return found
