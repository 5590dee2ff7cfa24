"""Room below the device as a decision uses it up: that of all, and what each tenant's quota leaves of it. It moves
nothing, and asks the tiers once for each tenant."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Burden = Mapping[str, int]
"""Pages by the tenant that they are charged to."""


class Room:
    """Pages that can still be promised. Quotas count only for who brings pages: what costs nothing always fits."""

    def __init__(
        self, total: int, of: Callable[[str], int | None], left: Mapping[str, int | None] | None = None
    ) -> None:
        """`total` pages for all; `of` gives those of one tenant by its quota, None where it has none. `left` are
        tenants already asked for."""
        self._total = total
        self._of = of
        self._left = dict(left or {})

    def fits(self, burden: Burden) -> bool:
        """Whether these pages find room."""
        needed = sum(burden.values())
        return not needed or (needed <= self._total and all(self._allows(*share) for share in burden.items()))

    def take(self, burden: Burden) -> None:
        """These pages have their room, whether it is there or not."""
        self._change(burden, -1)

    def give(self, burden: Burden) -> None:
        """These pages are gone from below."""
        self._change(burden, 1)

    def copy(self) -> Room:
        """The same room, to be used up apart from this one."""
        return Room(self._total, self._of, self._left)

    def _allows(self, tenant: str, pages: int) -> bool:
        left = self._of_tenant(tenant)
        return not pages or left is None or pages <= left

    def _change(self, burden: Burden, sign: int) -> None:
        for tenant, pages in burden.items():
            left = self._of_tenant(tenant)
            self._total += sign * pages
            self._left[tenant] = None if left is None else left + sign * pages

    def _of_tenant(self, tenant: str) -> int | None:
        if tenant not in self._left:
            self._left[tenant] = self._of(tenant)
        return self._left[tenant]
