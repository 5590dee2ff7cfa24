"""Keys, tenants, priorities, the bind rule: the parts alone, and a server that uses them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anthropic
import openai
import pytest
from tests.api.live import Live

from forebay.api import ApiConfig, check_bind
from forebay.api.auth import Identity, KeyRing, configured_keys, is_loopback, load_key_file, priority_named
from forebay.api.errors import FaultError
from forebay.api.sampling import priority_of, tier_of
from forebay.core.errors import ConfigError, InvalidRequestError
from forebay.core.request import Priority

KEYS = """
[[key]]
key = "alpha-secret"
tenant = "alpha"

[[key]]
key = "nightly-secret"
tenant = "nightly"
priority = "batch"
ceiling = 1
"""
CHAT = {"model": "smollm2", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.toml"
    path.write_text(KEYS)
    return path


def test_key_file(key_file: Path) -> None:
    ring = KeyRing(load_key_file(key_file))
    assert ring.identify("alpha-secret") == Identity("alpha")
    batch = Identity("nightly", Priority.BACKGROUND_BATCH, Priority.NORMAL_INTERACTIVE)
    assert ring.identify("nightly-secret") == batch
    assert ring.identify("alpha-secre") is None
    assert ring.identify("") is None
    assert ring.identify("\ud800é") is None


def test_a_key_may_name_a_class_and_its_tenant_s_quotas(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text("[[key]]\nkey = 'k'\ntenant = 'a'\nretention = 'agent'\nhost_quota = '1GiB'\ndisk_quota = '2GiB'")
    (key,) = load_key_file(file)
    assert key.identity == Identity("a", retention="agent")
    assert (key.host_quota, key.disk_quota) == ("1GiB", "2GiB")
    for wrong in ("retention = ''", "host_quota = 5", "disk_quota = ' '"):
        file.write_text(f"[[key]]\nkey = 'k'\n{wrong}")
        with pytest.raises(ConfigError, match=wrong.split(maxsplit=1)[0]):
            load_key_file(file)


def test_keys_of_the_command_line_may_name_their_tenant() -> None:
    keys = configured_keys(ApiConfig(api_keys=("plain-secret", "team-a: its-secret", ":odd:secret")))
    assert [(key.key, key.identity.tenant) for key in keys] == [
        ("plain-secret", "default"),
        ("its-secret", "team-a"),
        ("odd:secret", "default"),
    ]
    with pytest.raises(ConfigError, match="empty"):
        configured_keys(ApiConfig(api_keys=("team-a:",)))


def test_keys_are_not_shown_by_repr(key_file: Path) -> None:
    assert "secret" not in repr(load_key_file(key_file))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "key = 3",
        "[[key]]",
        "[[key]]\nkey = ''",
        "[[key]]\nkey = 'a'\nrole = 'b'",
        "[[key]]\nkey = 'a'\npriority = 9",
        "[[key]]\nkey = 'a'\nceiling = 'batch'\npriority = 'normal'",
        "not toml",
    ],
)
def test_bad_key_files_name_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"keys\.toml"):
        load_key_file(path)


def test_missing_file_empty_and_repeated_keys(tmp_path: Path, key_file: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        load_key_file(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="empty"):
        configured_keys(ApiConfig(api_keys=(" ",)))
    with pytest.raises(ConfigError, match="twice"):
        configured_keys(ApiConfig(api_keys=("alpha-secret",), api_key_file=key_file))


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("example.org", False),
        ("10.0.0.1", False),
    ],
)
def test_without_keys_only_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    if loopback:
        check_bind(ApiConfig(host=host))
    else:
        with pytest.raises(ConfigError, match="--allow-unauthenticated"):
            check_bind(ApiConfig(host=host))
    check_bind(ApiConfig(host=host, allow_unauthenticated=True))
    check_bind(ApiConfig(host=host, api_keys=("k",)))


def test_priority_names() -> None:
    names = [0, "critical", "CRITICAL_INTERACTIVE", " Normal ", 3, "batch"]
    assert [int(priority_named(name)) for name in names] == [0, 0, 0, 1, 3, 3]
    for wrong in (4, -1, True, "urgent", None, 1.0):
        with pytest.raises(ValueError, match="0 "):
            priority_named(wrong)


def test_priority_then_tier_then_default_below_the_ceiling() -> None:
    free = Identity()
    bound = Identity("t", Priority.BACKGROUND_BATCH, Priority.NORMAL_INTERACTIVE)
    assert priority_of(None, None, free) == Priority.NORMAL_INTERACTIVE
    assert priority_of(None, None, bound) == Priority.BACKGROUND_BATCH
    assert priority_of(0, "flex", free) == Priority.CRITICAL_INTERACTIVE
    assert priority_of(None, "flex", free) == Priority.BACKGROUND_BATCH
    assert priority_of(None, "priority", free) == Priority.CRITICAL_INTERACTIVE
    assert priority_of(None, "priority", bound) == Priority.NORMAL_INTERACTIVE
    assert tier_of(priority_of(None, "priority", bound)) == "default"
    with pytest.raises(FaultError, match="not ask for a priority"):
        priority_of(0, None, bound)
    with pytest.raises(InvalidRequestError, match="priority"):
        priority_of(7, None, bound)


def test_server_with_keys(start: Callable[..., Live], key_file: Path) -> None:
    live = start(ApiConfig(api_keys=("plain",), api_key_file=key_file))
    for path in ("/health", "/ping", "/metrics", "/docs", "/openapi.json"):
        assert live.http.get(path).status_code == 200
    for path in ("/v1/models", "/version", "/integrity", "/nowhere"):
        answer = live.http.get(path, headers={"authorization": "Bearer wrong"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        assert answer.headers["www-authenticate"] == "Bearer"
    for headers in (
        {"authorization": "Bearer plain"},
        {"x-api-key": "alpha-secret"},
        {"authorization": "bearer plain"},
    ):
        assert live.http.get("/v1/models", headers=headers).status_code == 200
    for headers in ({}, {"authorization": "Basic plain"}, {"authorization": "plain"}, {"x-api-key": ""}):
        assert live.http.get("/v1/models", headers=headers).status_code == 401


def test_body_is_not_read_without_a_key(start: Callable[..., Live]) -> None:
    live = start(ApiConfig(api_keys=("k",), max_body_bytes=10))
    assert live.http.post("/v1/chat/completions", content=b"x" * 1000).status_code == 401


def test_official_clients_see_their_own_errors(start: Callable[..., Live]) -> None:
    live = start(ApiConfig(api_keys=("k",)))
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="wrong") as client, pytest.raises(openai.AuthenticationError):
        client.models.list()
    with (
        anthropic.Anthropic(base_url=live.url, api_key="wrong") as other,
        pytest.raises(anthropic.AuthenticationError, match="x-api-key"),
    ):
        other.messages.create(model="smollm2", max_tokens=1, messages=[{"role": "user", "content": "Hi"}])
    with anthropic.Anthropic(base_url=live.url, api_key="k") as right:
        assert right.messages.create(model="smollm2", max_tokens=1, messages=[{"role": "user", "content": "Hi"}]).id


def test_tenant_and_priority_come_from_the_key(start: Callable[..., Live], key_file: Path) -> None:
    live = start(ApiConfig(api_key_file=key_file))
    alpha, nightly = ({"x-api-key": f"{name}-secret"} for name in ("alpha", "nightly"))
    post = live.http.post
    assert post("/v1/chat/completions", json=CHAT, headers=alpha).status_code == 200
    assert post("/v1/chat/completions", json={**CHAT, "user": "alpha"}, headers=nightly).status_code == 200
    answer = post("/v1/chat/completions", json={**CHAT, "service_tier": "priority"}, headers=nightly)
    assert answer.json()["service_tier"] == "default"
    assert [(r.tenant, int(r.priority)) for r in live.router.requests] == [("alpha", 1), ("nightly", 3), ("nightly", 1)]
    denied = post("/v1/messages", json={**CHAT, "max_tokens": 1, "priority": "critical"}, headers=nightly)
    assert (denied.status_code, denied.json()["error"]["type"]) == (403, "permission_error")
