"""`forebay cache`: what the KV cache on disk holds, whether it is whole, and how to make it smaller.

`stats`, `ls` and `verify` work beside a running server; `prune` and `clear` need the directory for themselves.
"""

from __future__ import annotations

import json as json_module
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from forebay.cli import console
from forebay.cli.options import Flag, Size, UsageError

if TYPE_CHECKING:
    from forebay.fabric.disk_store import DiskStore

CacheDir = Annotated[Path | None, Parameter(name="--cache-dir")]

app = App(name="cache", help="Look into the KV cache on disk, check it, or make it smaller.")


@app.command
def stats(*, cache_dir: CacheDir = None, json: Flag = False) -> int:
    """Sizes, ages, tenants, classes and hit rates.

    Parameters
    ----------
    cache_dir
        The cache directory; by default kv in the user's cache folder.
    json
        Print the figures as JSON.
    """
    from forebay.fabric import inspect

    folder = _folder(cache_dir)
    with inspect.reading(folder) as index:
        groups, counters = index.summary(), index.value("counters") or {}
    found = {
        "cache_dir": str(folder),
        "server_running": inspect.in_use(folder),
        **inspect.totals(groups),
        "disk_bytes": inspect.disk_usage(folder),
        "groups": [_with_ages(group) for group in groups],
        "hit_rates": _hit_rates(counters),
        "counters": counters,
    }
    console.say(json_module.dumps(found, indent=2) if json else _stats_lines(found))
    return 0


@app.command(name="ls")
def list_pages(*, cache_dir: CacheDir = None, tenant: str | None = None, limit: int = 100, json: Flag = False) -> int:
    """List pages, the one used last first.

    Parameters
    ----------
    cache_dir
        The cache directory; by default kv in the user's cache folder.
    tenant
        Only pages of this tenant.
    limit
        List at most so many; 0 for all.
    json
        Print them as JSON.
    """
    from forebay.fabric import inspect

    with inspect.reading(_folder(cache_dir)) as index:
        records = [record for record in index.records() if tenant in {None, record.ref.tenant}]
    records.sort(key=lambda record: -record.last_use)
    now = time.time()
    rows = [
        {
            "id": record.ref.id.hex(),
            "tenant": record.ref.tenant,
            "class": record.ref.retention,
            "bytes": record.place.size,
            "end": record.ref.end,
            "uses": record.uses,
            "age_s": round(now - record.created, 3),
            "unused_s": round(now - record.last_use, 3),
        }
        for record in records[: limit or None]
    ]
    if json:
        console.say(json_module.dumps({"pages": rows, "total": len(records)}, indent=2))
    else:
        console.say(_table(rows, len(records)))
    return 0


@app.command
def verify(*, cache_dir: CacheDir = None, json: Flag = False) -> int:
    """Read every page and compare it with its checksum; exit code 1 when one is bad, or the index is damaged.

    Parameters
    ----------
    cache_dir
        The cache directory; by default kv in the user's cache folder.
    json
        Print the outcome as JSON.
    """
    from forebay.fabric import inspect

    folder = _folder(cache_dir)
    with inspect.reading(folder) as index, console.stages("checking pages") as report:
        verdict = inspect.verify(folder, index, report)
    if json:
        found = {"pages": verdict.pages, "bytes": verdict.bytes, "bad": verdict.bad, "index": verdict.index}
        console.say(json_module.dumps(found, indent=2))
    else:
        size = console.binary_size(verdict.bytes)
        console.say(f"{verdict.pages} pages, {size}: {len(verdict.bad) or 'none'} bad")
        for page in verdict.bad:
            console.say(f"bad: {page}")
        for problem in verdict.index:
            console.say(f"index: {problem}")
    return 0 if verdict.whole else 1


@app.command
def prune(
    *, cache_dir: CacheDir = None, to: Size | None = None, unused_for: str | None = None, tenant: str | None = None
) -> int:
    """Drop pages that are worth least, are old, or belong to a tenant. Expired ones go in any case.

    Parameters
    ----------
    cache_dir
        The cache directory; by default kv in the user's cache folder.
    to
        Drop the least valuable pages until the cache is no larger, such as 2GiB.
    unused_for
        Drop pages that were not used for so long, such as 12h or 3d.
    tenant
        Drop this tenant's pages; with --unused-for only those of them that are old.
    """
    seconds = None if unused_for is None else _duration(unused_for)
    store = _open(_folder(cache_dir))
    try:
        dropped = store.prune(time.time(), to=to, unused_for=seconds, tenant=tenant)
        console.say(f"dropped {dropped} pages; {store.pages} left, {console.binary_size(store.disk_bytes)}")
    finally:
        store.close()
    return 0


@app.command
def clear(*, cache_dir: CacheDir = None) -> int:
    """Drop every page.

    Parameters
    ----------
    cache_dir
        The cache directory; by default kv in the user's cache folder.
    """
    store = _open(_folder(cache_dir))
    try:
        console.say(f"dropped {store.clear()} pages")
    finally:
        store.close()
    return 0


def _folder(given: Path | None) -> Path:
    from forebay.core.location import cache_folder
    from forebay.fabric.index import NAME

    folder = cache_folder("kv") if given is None else given
    if not (folder / NAME).exists():
        raise UsageError(f"There is no KV cache in {folder}.")
    return folder


def _open(folder: Path) -> DiskStore:
    from forebay.fabric.disk_store import DiskStore
    from forebay.fabric.metrics import Metrics

    return DiskStore(folder, 1 << 62, Metrics(), time.time())


def _duration(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no duration; write a number with s, m, h or d, such as 12h.")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def _with_ages(group: dict[str, Any]) -> dict[str, Any]:
    now = time.time()
    kept = {"tenant": group["tenant"], "class": group["retention"]}
    kept |= {name: group[name] for name in ("pages", "bytes", "uses")}
    return kept | {"oldest_s": round(now - group["oldest"], 1), "unused_s": round(now - group["last_use"], 1)}


def _hit_rates(counters: dict[str, float]) -> dict[str, float | None]:
    """Shares of the pages that prompts asked the lower tiers for; None before any was."""
    host, disk = counters.get("loaded_host", 0), counters.get("loaded_disk", 0)
    asked = host + disk + counters.get("misses", 0)
    return {"host": host / asked, "disk": disk / asked} if asked else {"host": None, "disk": None}


def _stats_lines(found: dict[str, Any]) -> str:
    lines = [
        f"cache directory: {found['cache_dir']} ({'in use' if found['server_running'] else 'no server'})",
        f"pages: {found['pages']}, {console.binary_size(found['bytes'])}",
        f"disk:  {console.binary_size(found['disk_bytes'])}",
    ]
    for group in found["groups"]:
        size, oldest, unused = console.binary_size(group["bytes"]), _age(group["oldest_s"]), _age(group["unused_s"])
        lines.append(
            f"tenant {group['tenant'] or '(public)'}, class {group['class']}: {group['pages']} pages, {size}, "
            f"oldest {oldest}, last used {unused} ago"
        )
    for tier, rate in found["hit_rates"].items():
        lines.append(f"hits {tier}: {'none asked for' if rate is None else f'{rate:.1%}'}")
    return "\n".join(lines)


def _table(rows: list[dict[str, Any]], total: int) -> str:
    lines = [
        f"{row['id'][:16]}  {row['class']:<8} {console.binary_size(row['bytes']):>10}  to token {row['end']:<7} "
        f"used {row['uses']} times, last {_age(row['unused_s'])} ago  {row['tenant']}"
        for row in rows
    ]
    return "\n".join([*lines, f"{len(rows)} of {total} pages"])


def _age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
