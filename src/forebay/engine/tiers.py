"""Opens the tiers below the device as a worker's options say. Once open they are the business of `moves.py`."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from pathlib import Path

from forebay.core.copying import CopyBytes
from forebay.core.errors import ConfigError
from forebay.engine.device_pages import CopyPages, DevicePages, FramedPages
from forebay.engine.options import WorkerOptions
from forebay.fabric import CommonMemory, HostMemory, KvTiers, TierConfig, slots_in
from forebay.kernels import KvLayout

log = logging.getLogger(__name__)

_SHARE = 4
_HOST_CAP = 8 << 30
_DISK_SHARE = 10
_DISK_CAP = 32 << 30
_OVERHEAD = 4096


def host_bytes(asked: int | None, available: int, page_bytes: int) -> int:
    """Bytes of host pool: what is asked for, or a quarter of the memory free now and at most 8 GiB; 0 where that holds
    no page. Raises ConfigError when more is asked for than is free.
    """
    if asked is None:
        size = min(available // _SHARE, _HOST_CAP)
        return size if size >= page_bytes + 2 * _OVERHEAD else 0
    if asked > available:
        raise ConfigError(
            f"--host-pool asks for {asked / 2**30:.2f} GiB, but only {available / 2**30:.2f} GiB of memory are free."
        )
    return asked


def disk_bytes(folder: Path, asked: int | None) -> int:
    """Most bytes of disk for pages: what is asked for, or a tenth of what is free there and at most 32 GiB."""
    if asked is not None:
        return asked
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return min(shutil.disk_usage(there).free // _DISK_SHARE, _DISK_CAP)


def host_memory(options: WorkerOptions, page_bytes: int, available: int) -> HostMemory | None:
    """The host pool's memory, or None where the options ask for none. Raises ConfigError as `host_bytes` does."""
    size = host_bytes(options.host_pool, available, page_bytes)
    if not size or not options.prefix_cache:
        return None
    path = None if options.host_pool_path is None else Path(options.host_pool_path)
    return HostMemory(size, path, options.host_pool_numa)


def open_pages(layout: KvLayout, pages: int, host: HostMemory | None, copy: CopyPages) -> DevicePages:
    """The page store, in memory that the host pool has in common where that may be anywhere in this process's.

    The store is the processor's memory, so a copy between the two would only double what a page takes. A pool of which
    was said where it is to lie, lies there.
    """
    if host is None or host.path is not None or host.numa is not None:
        return DevicePages(layout, pages, copy)
    return FramedPages(layout, pages, slots_in(host.size, layout.page_bytes), copy)


def open_tiers(
    options: WorkerOptions, page_bytes: int, host: HostMemory | None, copy: CopyBytes, common: CommonMemory | None
) -> KvTiers | None:
    """The tiers, or None without `host`. `copy` copies pages between host pool and device, unless they lie in memory in
    `common`.

    A cache directory that another server uses is left to it, with a line in the log. Raises ConfigError when memory
    or folder can't be had.
    """
    if host is None:
        return None
    plain = TierConfig(
        page_bytes,
        host,
        retention=options.retention_classes,
        host_quotas=options.host_quotas,
        disk_quotas=options.disk_quotas,
        host_half_life_s=options.host_half_life_s,
        disk_half_life_s=options.disk_half_life_s,
        verify_at_rest=options.verify_kv,
    )
    if options.cache_dir is None or options.cache_disk == 0:
        return KvTiers(plain, copy=copy, common=common)
    folder = Path(options.cache_dir)
    try:
        placed = replace(plain, cache_dir=folder, cache_bytes=disk_bytes(folder, options.cache_disk))
        return KvTiers(placed, copy=copy, common=common)
    except ConfigError as error:
        if options.cache_required:
            raise
        log.warning("pages are not kept on disk: %s", error)
    return KvTiers(plain, copy=copy, common=common)
