"""Options: help for each, where values come from and which wins, and what wrong ones lead to."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forebay import __version__
from forebay.api.auth import ApiKey, Identity
from forebay.cli import bench, chat, main, serve
from forebay.cli.bench import EngineBenchOptions, LoadOptions, PromptOptions, ReportOptions, TargetOptions
from forebay.cli.cache_options import CacheOptions, parse_pool
from forebay.cli.chat import ChatOptions, ServerOptions
from forebay.cli.options import EngineOptions, SchedulingOptions, UsageError, parse_size
from forebay.cli.serve import HttpOptions
from forebay.cli.worker import worker_options
from forebay.kv.quota import Quotas
from forebay.models import ModelSource

Run = Callable[..., Any]
ENGINE, SCHEDULING = EngineOptions(), SchedulingOptions()

COMMANDS: dict[str, tuple[type, ...]] = {
    "serve": (HttpOptions, EngineOptions, SchedulingOptions, CacheOptions),
    "chat": (ChatOptions, ServerOptions, EngineOptions),
    "bench serve": (TargetOptions, PromptOptions, LoadOptions, ReportOptions),
    "bench engine": (EngineBenchOptions,),
}


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """`forebay serve` that only notes what it was called with."""
    calls: list[dict[str, Any]] = []

    def note(
        model: str, http: HttpOptions, engine: EngineOptions, scheduling: SchedulingOptions, cache: CacheOptions
    ) -> int:
        calls.append(
            {"model": model, "cache": cache}
            | dataclasses.asdict(http)
            | dataclasses.asdict(engine)
            | dataclasses.asdict(scheduling)
        )
        return 0

    monkeypatch.setattr("forebay.cli.serving.run_server", note)
    return calls


@pytest.mark.parametrize("command", COMMANDS)
def test_help_lists_every_option_with_its_words_and_its_variable(run: Run, command: str) -> None:
    outcome = run(*command.split(), "--help")
    assert outcome.code == 0
    prefix = "FOREBAY_" + command.replace(" ", "_").upper()
    page = " ".join(outcome.out.replace("│", " ").split())
    for kind in COMMANDS[command]:
        for field in dataclasses.fields(kind):
            assert f"--{field.name.replace('_', '-')} " in page
            assert (
                f"{prefix}_{field.name.upper()}]" in page.replace(" ", "") or f"{prefix}_{field.name.upper()}" in page
            )
    assert "--config" in page


def test_every_option_has_a_sentence() -> None:
    for name, app in (("serve", main.app["serve"]), ("chat", main.app["chat"]), ("engine", main.bench["engine"])):
        for argument in app.assemble_argument_collection(parse_docstring=True):
            assert argument.children or argument.parameter.help, f"{name} {argument.name} has no help"
    assert {serve.serve, chat.chat, bench.engine} == {main.app[n].default_command for n in ("serve", "chat")} | {
        main.bench["engine"].default_command
    }


def test_help_and_version_of_the_whole(run: Run) -> None:
    assert all(name in run("--help").out for name in ("serve", "chat", "bench", "doctor"))
    assert run("--version").out.strip() == __version__
    assert run("bench", "--help").code == 0


def test_help_loads_nothing_heavy() -> None:
    code = "import sys; from forebay.cli.main import main; main(['serve', '--help']); print([m for m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = done.stdout.splitlines()[-1]
    for heavy in ("torch", "fastapi", "numpy", "uvicorn", "httpx2", "forebay.engine", "forebay.models"):
        assert f"'{heavy}'" not in modules


def test_serve_starts_the_engine_before_it_imports_what_only_http_needs(tmp_path: Path) -> None:
    """What is imported before the engine's process is started is waited for twice."""
    code = """
import asyncio, sys
from forebay.cli.main import main
def run(server):
    server.close()
    print([m for m in sys.modules])
    return 0
asyncio.run = run
sys.exit(main(["serve", sys.argv[1], "--port", "0"]))
"""
    (tmp_path / "config.json").touch()
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    modules = done.stdout.splitlines()[-1]
    assert "'forebay.cluster.local'" in modules
    for heavy in ("torch", "fastapi", "numpy", "uvicorn", "forebay.api", "forebay.recipe"):
        assert f"'{heavy}'" not in modules


def test_the_apis_process_reads_a_gguf_model_and_its_tokenizer_without_numpy_or_torch() -> None:
    code = """
import sys
from forebay.cli.http_server import prepare
from forebay.cli.serve import HttpOptions
from forebay.models import resolve
prepare(resolve("smollm2"), HttpOptions(), [])
print([m for m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = done.stdout.splitlines()[-1]
    assert "'tokenizers'" in modules
    for heavy in ("torch", "numpy"):
        assert f"'{heavy}'" not in modules


def test_python_dash_m_is_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "forebay", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == __version__


def test_command_line_wins_over_environment_over_file_over_default(
    run: Run, served: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "forebay.toml"
    file.write_text(
        '[serve]\nmodel = "m.gguf"\nport = 1\nhost = "::1"\nmax-running = 3\nkv-memory = "1GiB"\napi-key = ["a", "b"]\n'
    )
    monkeypatch.setenv("FOREBAY_SERVE_PORT", "2")
    monkeypatch.setenv("FOREBAY_SERVE_MAX_RUNNING", "4")
    assert run("serve", "--config", str(file), "--max-running", "5", "--no-prefix-cache").code == 0
    (call,) = served
    assert (call["max_running"], call["port"], call["host"], call["target_itl"]) == (5, 2, "::1", 100.0)
    assert (call["kv_memory"], call["api_key"], call["prefix_cache"], call["model"]) == (
        1 << 30,
        ("a", "b"),
        False,
        "m.gguf",
    )


def test_the_environment_can_name_the_file_and_hold_lists(
    run: Run, served: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "forebay.toml"
    file.write_text("[serve]\nport = 1\n")
    monkeypatch.setenv("FOREBAY_CONFIG", str(file))
    monkeypatch.setenv("FOREBAY_SERVE_API_KEY", "one two")
    assert run("serve", "model.gguf").code == 0
    assert (served[0]["port"], served[0]["api_key"], served[0]["model"]) == (1, ("one", "two"), "model.gguf")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[serve]\nprot = 1\n", "prot"),
        ("[srve]\nport = 1\n", "srve"),
        ("serve = 1\n", "[serve]"),
        ("[serve\n", "not TOML"),
        ('[serve]\nport = "x"\n', "port"),
    ],
)
def test_a_wrong_file_is_refused_with_what_is_wrong(
    run: Run, served: list[dict[str, Any]], tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "forebay.toml"
    file.write_text(text)
    outcome = run("serve", "--config", str(file))
    assert outcome.code == 2
    assert words in outcome.message
    assert not served


def test_a_missing_file_is_refused(run: Run, tmp_path: Path) -> None:
    outcome = run("serve", "--config", str(tmp_path / "none.toml"))
    assert (outcome.code, "can't be read" in outcome.message) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("srve", "Did you mean"),
        ("serve --prot 1", "Did you mean --port"),
        ("serve --port 70000", "65535"),
        ("serve --port http", "--port"),
        ("serve --dtype int4", "bf16"),
        ("serve --kv-memory lots", "512MiB"),
        ("serve --target-itl 0", "--target-itl"),
        ("serve a b", "b"),
        ("bench serve --goodput itl:3", "NAME:MILLISECONDS"),
        ("bench serve --metric-percentiles 50,101", "percentile"),
        ("bench serve --percentile-metrics ttft,speed", "speed"),
        ("bench serve --request-rate 0", "--request-rate"),
        ("bench engine --rows 0", "--rows"),
        ("chat --temperature 3", "--temperature"),
    ],
)
def test_wrong_usage_exits_2_with_a_helpful_sentence(run: Run, arguments: str, words: str) -> None:
    outcome = run(*arguments.split())
    assert outcome.code == 2
    assert words in outcome.message
    assert "--help" in outcome.message
    assert outcome.out == ""


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("2GiB", 2 << 30),
        ("512 MiB", 512 << 20),
        ("1.5g", 3 << 29),
        ("1KB", 1000),
        ("3 T", 3 << 40),
        ("10B", 10),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "GiB", "1PB", "1.5.2G", "0.1"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        parse_size(text)


def test_cache_options_reach_the_worker(run: Run, served: list[dict[str, Any]], tmp_path: Path) -> None:
    given = ("--host-pool", "1GiB,numa=1", "--cache-dir", str(tmp_path), "--cache-disk", "0", "--retention", "build")
    assert run("serve", "m.gguf", *given, "--retention-class", "build=12h").code == 0
    made = worker_options(ModelSource("m", Path("m.gguf"), "gguf"), "m", ENGINE, SCHEDULING, served[0]["cache"])
    assert (made.host_pool, made.host_pool_numa, made.host_pool_path) == (1 << 30, 1, None)
    assert (made.cache_dir, made.cache_disk, made.cache_required) == (str(tmp_path), 0, True)
    assert (made.retention, made.retention_classes) == ("build", {"build": 43200.0})


def test_quotas_and_half_lives_reach_the_worker(run: Run, served: list[dict[str, Any]]) -> None:
    given = ("--host-quota", "1GiB", "--host-quota", "team=a=2GiB", "--disk-quota", "b=3GiB", "--disk-half-life", "7")
    assert run("serve", "m.gguf", *given).code == 0
    made = worker_options(ModelSource("m", Path("m.gguf"), "gguf"), "m", ENGINE, SCHEDULING, served[0]["cache"])
    assert made.host_quotas == Quotas(1 << 30, {"team=a": 2 << 30})
    assert made.disk_quotas == Quotas(None, {"b": 3 << 30})
    assert (made.host_half_life_s, made.disk_half_life_s) == (60.0, 7.0)
    assert msgspec.json.decode(msgspec.json.encode(made), type=type(made)) == made
    for wrong in ("much", "=1GiB", "a="):
        assert run("serve", "m.gguf", "--host-quota", wrong).code == 2


def test_classes_and_quotas_of_keys_reach_the_worker() -> None:
    source = ModelSource("m", Path("m.gguf"), "gguf")
    key = ApiKey("k", Identity("a", retention="agent"), "1GiB", "2GiB")
    other = ApiKey("o", Identity("b"), disk_quota="3GiB")
    cache = CacheOptions(host_quota=("5GiB",), disk_quota=("b=4GiB",))
    made = worker_options(source, "m", ENGINE, SCHEDULING, cache, keys=[key, other])
    assert made.host_quotas == Quotas(5 << 30, {"a": 1 << 30})
    assert made.disk_quotas == Quotas(None, {"a": 2 << 30, "b": 4 << 30}), "what the command line says comes first"
    for wrong, said in (
        ([ApiKey("k", Identity(retention="forever"))], "no retention class 'forever'"),
        ([ApiKey("k", host_quota="much")], "API key file"),
        ([key, ApiKey("l", Identity("a"), "7GiB")], "different quotas"),
    ):
        with pytest.raises(UsageError, match=said):
            worker_options(source, "m", ENGINE, SCHEDULING, CacheOptions(), keys=wrong)


def test_cache_defaults_and_what_is_refused(run: Run, served: list[dict[str, Any]]) -> None:
    source = ModelSource("m", Path("m.gguf"), "gguf")
    made = worker_options(source, "m", ENGINE, SCHEDULING, CacheOptions())
    assert (made.host_pool, made.cache_disk, made.cache_required, made.retention) == (None, None, False, "chat")
    assert made.cache_dir is not None
    assert worker_options(source, "m", ENGINE, SCHEDULING).host_pool == 0
    with pytest.raises(UsageError, match="agent, chat, none"):
        worker_options(source, "m", ENGINE, SCHEDULING, CacheOptions(retention="forever"))
    for wrong in ("1GiB,node=1", "1GiB,numa=x", "1GiB,numa", "much"):
        outcome = run("serve", "m.gguf", "--host-pool", wrong)
        assert outcome.code == 2
    assert run("serve", "m.gguf", "--retention-class", "build").code == 2
    assert parse_pool("0").size == 0
    assert parse_pool("2GiB,path=/dev/hugepages").path == Path("/dev/hugepages")
    assert not served
