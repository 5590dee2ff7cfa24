"""`forebay cache`: what it says of a cache directory, with and without a server that uses it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fabric.fabric_pages import PAGE, chain, name, stored

from forebay.fabric.disk_store import DiskStore
from forebay.fabric.faults import damage_file
from forebay.fabric.metrics import Metrics
from forebay.kv.retention import RetentionPolicy

Run = Callable[..., Any]
NOW = 1_900_000_000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)


@pytest.fixture
def folder(tmp_path: Path, clock: None) -> Path:
    """A cache with two tenants: 4 pages of an hour ago, 3 of two days ago."""
    folder = tmp_path / "cache"
    store = DiskStore(folder, 8 << 20, Metrics(), NOW, retention=RetentionPolicy({"archive": 1e9}))
    store.store([stored(page) for page in chain(4, "alice")], NOW - 3600)
    store.store([stored(page) for page in chain(3, "bob", retention="archive")], NOW - 2 * 86400)
    store.save_values({"counters": {"loaded_host": 6, "loaded_disk": 3, "misses": 3}})
    store.close()
    return folder


@pytest.fixture
def in_use(folder: Path) -> Iterator[Path]:
    """The same cache with a server on it: another process, as a real one would be."""
    script = (
        "import sys; from pathlib import Path; from forebay.fabric.disk_store import DiskStore;"
        "from forebay.fabric.metrics import Metrics; s = DiskStore(Path(sys.argv[1]), 8 << 20, Metrics(), 1.9e9);"
        "print('open', flush=True); sys.stdin.read(); s.close()"
    )
    command = [sys.executable, "-c", script, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "open\n"
        yield folder
        server.communicate("")


def test_stats_as_json(run: Run, folder: Path) -> None:
    found = json.loads(run("cache", "stats", "--cache-dir", str(folder), "--json").out)
    assert (found["pages"], found["bytes"], found["server_running"]) == (7, 7 * PAGE, False)
    assert found["disk_bytes"] >= 7 * PAGE
    assert [(g["tenant"], g["class"], g["pages"], g["oldest_s"]) for g in found["groups"]] == [
        ("alice", "chat", 4, 3600.0),
        ("bob", "archive", 3, 172800.0),
    ]
    assert found["hit_rates"] == {"host": 0.5, "disk": 0.25}


def test_stats_for_people(run: Run, folder: Path) -> None:
    out = run("cache", "stats", "--cache-dir", str(folder)).out
    assert "pages: 7, 28 KiB" in out
    assert "tenant bob, class archive: 3 pages, 12 KiB, oldest 2.0 d, last used 2.0 d ago" in out
    assert "hits disk: 25.0%" in out


def test_ls_lists_what_was_used_last_first(run: Run, folder: Path) -> None:
    found = json.loads(run("cache", "ls", "--cache-dir", str(folder), "--limit", "5", "--json").out)
    assert found["total"] == 7
    assert [page["tenant"] for page in found["pages"]] == ["alice"] * 4 + ["bob"]
    assert found["pages"][0]["bytes"] == PAGE
    out = run("cache", "ls", "--cache-dir", str(folder), "--tenant", "bob").out
    assert out.endswith("3 of 3 pages\n")
    assert name(0, "bob").hex()[:16] in out


def test_verify_exits_1_on_a_bad_page_and_names_it(run: Run, folder: Path) -> None:
    outcome = run("cache", "verify", "--cache-dir", str(folder))
    assert outcome.code == 0
    assert "7 pages, 28 KiB: none bad" in outcome.out
    (extent,) = folder.rglob("*.kv")
    damage_file(extent, 2 * PAGE + 5)
    outcome = run("cache", "verify", "--cache-dir", str(folder), "--json")
    assert outcome.code == 1
    assert json.loads(outcome.out)["bad"] == [name(2, "alice").hex()]


@pytest.mark.parametrize("command", ["stats", "ls", "verify", "prune", "clear"])
def test_where_there_is_no_cache_nothing_is_made(run: Run, tmp_path: Path, command: str) -> None:
    more = ("--to", "1MiB") if command == "prune" else ()
    assert run("cache", command, "--cache-dir", str(tmp_path), *more).code == 2
    assert not list(tmp_path.iterdir())


def test_lost_extents_are_bad_pages_and_not_counted(run: Run, folder: Path) -> None:
    shutil.rmtree(folder / "extents")
    found = json.loads(run("cache", "stats", "--cache-dir", str(folder), "--json").out)
    assert found["pages"] == 7
    assert 0 < found["disk_bytes"] < 100_000
    outcome = run("cache", "verify", "--cache-dir", str(folder), "--json")
    assert outcome.code == 1
    assert len(json.loads(outcome.out)["bad"]) == 7


def test_verify_finds_damage_of_the_index(run: Run, folder: Path) -> None:
    """Also where no page is named wrongly for it."""
    with sqlite3.connect(folder / "index.sqlite") as index:
        (root,) = index.execute("SELECT rootpage FROM sqlite_master WHERE name = 'pages'").fetchone()
    index.close()
    with (folder / "index.sqlite").open("r+b") as file:
        file.seek((root - 1) * 4096 + 1)
        file.write(b"\x0f\xf0")  # where the page's first free block lies
    outcome = run("cache", "verify", "--cache-dir", str(folder), "--json")
    assert outcome.code == 1
    found = json.loads(outcome.out)
    assert not found["bad"]
    assert found["index"]


def test_an_index_that_is_none_is_said(run: Run, folder: Path) -> None:
    (folder / "index.sqlite").write_bytes(b"no database" * 500)
    for command in ("stats", "ls", "verify"):
        outcome = run("cache", command, "--cache-dir", str(folder))
        assert outcome.code == 1
        assert "can't be read" in outcome.message


def test_looking_works_beside_a_server_and_changing_does_not(run: Run, in_use: Path) -> None:
    found = json.loads(run("cache", "stats", "--cache-dir", str(in_use), "--json").out)
    assert (found["pages"], found["server_running"]) == (7, True)
    assert run("cache", "verify", "--cache-dir", str(in_use)).code == 0
    assert run("cache", "ls", "--cache-dir", str(in_use)).code == 0
    for command in ("prune", "clear"):
        outcome = run("cache", command, "--cache-dir", str(in_use))
        assert outcome.code == 1
        assert "in use by another server" in outcome.message


def test_prune_by_tenant_age_and_size(run: Run, folder: Path) -> None:
    place = ("--cache-dir", str(folder))
    assert "dropped 0 pages; 7 left" in run("cache", "prune", *place, "--unused-for", "3d").out
    assert "dropped 3 pages; 4 left" in run("cache", "prune", *place, "--unused-for", "1d").out
    assert "dropped 4 pages; 0 left" in run("cache", "prune", *place, "--tenant", "alice").out
    assert run("cache", "prune", *place, "--unused-for", "soon").code == 2


def test_prune_to_a_size(run: Run, folder: Path) -> None:
    assert run("cache", "prune", "--cache-dir", str(folder), "--to", "1KiB").code == 0
    assert json.loads(run("cache", "stats", "--cache-dir", str(folder), "--json").out)["pages"] == 0


def test_clear(run: Run, folder: Path) -> None:
    assert "dropped 7 pages" in run("cache", "clear", "--cache-dir", str(folder)).out
    assert json.loads(run("cache", "stats", "--cache-dir", str(folder), "--json").out)["groups"] == []


def test_the_default_folder_follows_the_environment(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FOREBAY_CACHE", str(tmp_path / "nothing"))
    outcome = run("cache", "stats")
    assert outcome.code == 2, "which is not what a bad page gives"
    assert f"There is no KV cache in {tmp_path / 'nothing' / 'kv'}." in outcome.message
    folder.rename(tmp_path / "kv")
    monkeypatch.setenv("FOREBAY_CACHE", str(tmp_path))
    assert run("cache", "stats").code == 0


def test_looking_into_a_cache_loads_no_torch(folder: Path) -> None:
    script = (
        "import sys; from forebay.cli.main import main; code = main(sys.argv[1:]);"
        "sys.exit(code or 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", script, "cache", "verify", "--cache-dir", str(folder)]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
