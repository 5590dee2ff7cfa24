"""Options of the KV cache below the device: host pool, disk, retention. How they are read; nothing is opened here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, Token

from forebay.cli.options import Flag, Seconds, Texts, parse_size

if TYPE_CHECKING:
    from forebay.kv.quota import Quotas


@dataclass(frozen=True, slots=True)
class HostPool:
    """How much memory, and whose."""

    size: int | None = None
    """Bytes; 0 for no host pool, None for the default."""
    path: Path | None = None
    numa: int | None = None


def parse_pool(text: str) -> HostPool:
    """The pool of "4GiB", "4GiB,path=/dev/hugepages", "64GiB,numa=1" or "0".

    Raises ValueError saying what is understood.
    """
    from forebay.cli.host_pool import parse_host_pool

    if text.strip() == "0":
        return HostPool(0)
    memory = parse_host_pool(text)
    return HostPool(memory.size, memory.path, memory.numa)


def parse_size_or_zero(text: str) -> int:
    """As `parse_size`, with 0 for none."""
    return 0 if text.strip() == "0" else parse_size(text)


def _pool(_: object, tokens: Sequence[Token]) -> HostPool:
    return parse_pool(tokens[0].value)


def _size_or_zero(_: object, tokens: Sequence[Token]) -> int:
    return parse_size_or_zero(tokens[0].value)


def _classes(_: object, tokens: Sequence[Token]) -> tuple[str, ...]:
    from forebay.kv.retention import parse_class

    values = tuple(token.value for token in tokens)
    for value in values:
        parse_class(value)
    return values


def parse_quotas(texts: Iterable[str]) -> Quotas:
    """Limits written as SIZE (every tenant's) or TENANT=SIZE; the last one of a kind counts.

    Raises ValueError saying what is understood.
    """
    from forebay.kv.quota import Quotas

    default: int | None = None
    by_tenant: dict[str, int | None] = {}
    for text in texts:
        tenant, equals, size = text.rpartition("=")
        if equals and not tenant.strip():
            raise ValueError(f"{text!r} names no tenant; write SIZE for every tenant, or TENANT=SIZE.")
        if equals:
            by_tenant[tenant.strip()] = parse_size(size)
        else:
            default = parse_size(size)
    return Quotas(default, by_tenant)


def _quotas(_: object, tokens: Sequence[Token]) -> tuple[str, ...]:
    values = tuple(token.value for token in tokens)
    parse_quotas(values)
    return values


QuotaTexts = Annotated[Texts, Parameter(converter=_quotas, consume_multiple=True, metavar="[TENANT=]SIZE")]
SizeOrZero = Annotated[int, Parameter(converter=_size_or_zero, metavar="SIZE")]


@Parameter(name="*", group="KV cache")
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions:
    """Where pages stay that the device has no room for, and how long."""

    host_pool: Annotated[
        HostPool | None, Parameter(converter=_pool, accepts_keys=False, n_tokens=1, metavar="SIZE[,path=…|numa=…]")
    ] = None
    """Memory for pages that leave the device, such as 4GiB; 0 for none. It can come from a folder (hugetlbfs), a file
    or a device (path=/dev/dax0.0), or from one NUMA node (numa=1); else what the KV cache holds too takes memory once.
    By default a quarter of the free memory, at most 8 GiB. Its pages end with the server, on persistent memory too;
    those on disk outlive it."""
    cache_dir: Path | None = None
    """Folder in which pages outlive the server; by default kv in the user's cache folder, where no other server uses
    it."""
    cache_disk: SizeOrZero | None = None
    """Most disk that the cache may take, such as 20GiB; 0 keeps nothing on disk. By default a tenth of what is free, at
    most 32 GiB."""
    verify_kv: Flag = False
    """Check stored pages again and again while nothing else is to do; a damaged one is dropped and counted."""
    retention: str = "chat"
    """Retention class of requests that name none: chat (7 days), agent (3 days), none (not on disk), or your own."""
    retention_class: Annotated[Texts, Parameter(converter=_classes, consume_multiple=True)] = ()
    """A retention class as NAME=DURATION, such as build=12h; may be given several times."""
    public_prefix: Annotated[tuple[Path, ...], Parameter(show_default=False)] = ()
    """Text file with a system prompt whose pages all tenants share; may be given several times. Anyone can find out by
    timing that it is in use, so it must hold nothing secret; what follows it in a prompt stays with its tenant."""
    host_quota: QuotaTexts = ()
    """Most memory of the host pool that one tenant's pages may take, such as 1GiB, or TENANT=4GiB for one of them; may
    be given several times. A running request for which its tenant has no room left is not preempted."""
    disk_quota: QuotaTexts = ()
    """The same for the cache on disk. A tenant at its limit gives up pages of its own for new ones."""
    host_half_life: Seconds = 60.0
    """Seconds unused after which a page in the host pool is worth half, when pages have to go: about a tenth of the
    time in which it fills."""
    disk_half_life: Seconds = 3600.0
    """The same for pages on disk."""


CACHE_DEFAULTS = CacheOptions()
