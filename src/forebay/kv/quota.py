"""How many bytes each tenant may hold in a tier. It counts; who makes room is the tier's business."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from forebay.kv.identity import PUBLIC


@dataclass(frozen=True, slots=True)
class Quotas:
    """Limits in bytes a tenant; None is no limit."""

    default: int | None = None
    """The limit of a tenant that is not named; public pages have none."""
    by_tenant: Mapping[str, int | None] = field(default_factory=dict)

    def limit(self, tenant: str) -> int | None:
        """The tenant's limit in bytes, or None."""
        return self.by_tenant.get(tenant, self.default if tenant != PUBLIC else None)

    def pages(self, tenant: str, size: int) -> int | None:
        """How many pages of `size` bytes the tenant's limit is, or None."""
        limit = self.limit(tenant)
        return None if limit is None else limit // size


class Usage:
    """The bytes that each tenant holds in one tier."""

    def __init__(self, quotas: Quotas) -> None:
        self.quotas = quotas
        self._held: dict[str, int] = {}

    def held(self, tenant: str) -> int:
        """Bytes of this tenant."""
        return self._held.get(tenant, 0)

    def by_tenant(self) -> dict[str, int]:
        """Bytes of every tenant that holds any."""
        return dict(self._held)

    def change(self, tenant: str, amount: int) -> None:
        """The tenant holds `amount` bytes more (or fewer)."""
        held = self.held(tenant) + amount
        if held:
            self._held[tenant] = held
        else:
            self._held.pop(tenant, None)

    def room(self, tenant: str, size: int, held: int) -> int | None:
        """How many pages of `size` bytes the tenant may hold beside the `held` ones that can't go; None: no limit."""
        most = self.quotas.pages(tenant, size)
        return None if most is None else max(0, most - held)

    def excess(self, tenant: str, incoming: int) -> int:
        """How many of its bytes the tenant has to give up first, so that `incoming` bytes fit (0 or less: none)."""
        limit = self.quotas.limit(tenant)
        return 0 if limit is None else self.held(tenant) + incoming - limit
