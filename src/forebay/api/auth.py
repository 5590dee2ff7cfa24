"""Who is calling: API keys, the tenant and priorities that belong to each, and the rule for binding without keys.

A key is compared by its SHA-256 with every known one, in constant time and without stopping early. The tenant comes
from here only: no field of a request can name another.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from forebay.api.config import ApiConfig
from forebay.api.errors import FaultError, Kind, error_response, log_failure
from forebay.core.errors import ConfigError
from forebay.core.request import Priority

OPEN_PATHS = frozenset({"/health", "/ping", "/metrics", "/docs", "/openapi.json"})
"""Answered without a key: what probes and scrapers read. None of them shows anything of a request's content."""

_NO_KEY = "Missing or wrong API key. Send it as `Authorization: Bearer KEY` or `x-api-key: KEY`."

PRIORITY_NAMES = {
    "critical": Priority.CRITICAL_INTERACTIVE,
    "normal": Priority.NORMAL_INTERACTIVE,
    "draft": Priority.SPECULATIVE_DRAFT,
    "batch": Priority.BACKGROUND_BATCH,
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a request belongs to and how urgent it may be."""

    tenant: str = "default"
    priority: Priority = Priority.NORMAL_INTERACTIVE
    """Of requests that ask for none."""
    ceiling: Priority = Priority.CRITICAL_INTERACTIVE
    """The most urgent priority that the key may ask for."""
    strict_markers: bool = False
    """Refuse texts that hold a marker; of the key, or asked for by the request's header."""
    retention: str | None = None
    """Retention class of requests that ask for none; None takes the server's default."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key and whose it is."""

    key: str = field(repr=False)
    identity: Identity = Identity()
    host_quota: str = ""
    """Most memory of the host pool that its tenant may hold, such as 1GiB; empty for what all may."""
    disk_quota: str = ""
    """The same on disk."""


def priority_named(value: object) -> Priority:
    """0 to 3 or a name, upper or lower case, short or in full. Raises ValueError that lists what there is."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 3:
        return Priority(value)
    if isinstance(value, str):
        name = value.strip().upper()
        if name in Priority.__members__:
            return Priority[name]
        if name.lower() in PRIORITY_NAMES:
            return PRIORITY_NAMES[name.lower()]
    raise ValueError("a priority is 0 (served first) to 3, or one of critical, normal, draft, batch")


_TEXTS = ("retention", "host_quota", "disk_quota")
_FIELDS = ("key", "tenant", "priority", "ceiling", "strict_markers", *_TEXTS)
STRICT_HEADER = "x-forebay-strict-markers"
"""Asks for strict markers in any protocol; any value but 0 and false does. It can't switch off what a key has on."""


def _key_from_table(table: dict[str, Any], where: str) -> ApiKey:
    unknown = sorted(set(table) - set(_FIELDS))
    if unknown:
        raise ConfigError(f"{where} has the unknown field {unknown[0]!r}; known are {', '.join(_FIELDS)}.")
    key, tenant = table.get("key"), table.get("tenant", "default")
    if not isinstance(key, str) or not key.strip() or not isinstance(tenant, str) or not tenant.strip():
        raise ConfigError(f"{where} needs `key`, and `key` and `tenant` must be text that is not empty.")
    try:
        ceiling = priority_named(table.get("ceiling", Priority.CRITICAL_INTERACTIVE))
        priority = priority_named(table.get("priority", max(Priority.NORMAL_INTERACTIVE, ceiling)))
    except ValueError as error:
        raise ConfigError(f"{where}: {error}.") from error
    if priority < ceiling:
        raise ConfigError(f"{where}: its default priority {priority} is more urgent than its ceiling {ceiling}.")
    strict = table.get("strict_markers", False)
    if not isinstance(strict, bool):
        raise ConfigError(f"{where}: strict_markers is true or false.")
    texts = {name: table[name] for name in _TEXTS if name in table}
    wrong = [name for name, text in texts.items() if not isinstance(text, str) or not text.strip()]
    if wrong:
        raise ConfigError(f"{where}: {wrong[0]} must be text that is not empty.")
    identity = Identity(tenant.strip(), priority, ceiling, strict, texts.get("retention"))
    return ApiKey(key.strip(), identity, texts.get("host_quota", ""), texts.get("disk_quota", ""))


def load_key_file(path: Path) -> list[ApiKey]:
    """The keys of a TOML file of [[key]] tables. Raises ConfigError that names the file and the table."""
    try:
        tables = tomllib.loads(path.read_text()).get("key", [])
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"The API key file {path} can't be read: {error}") from error
    if not isinstance(tables, list) or not tables or not all(isinstance(t, dict) for t in tables):
        raise ConfigError(f"The API key file {path} holds no [[key]] table.")
    return [_key_from_table(table, f"{path}: [[key]] number {i}") for i, table in enumerate(tables, 1)]


def _key_from_option(text: str) -> ApiKey:
    """`TENANT:KEY`, or a key alone, which belongs to the tenant "default". A key with a colon needs the file."""
    tenant, colon, key = text.partition(":")
    return ApiKey(key.strip(), Identity(tenant.strip() or "default")) if colon else ApiKey(text)


def configured_keys(config: ApiConfig) -> list[ApiKey]:
    """All keys of the options. Raises ConfigError for an empty or repeated key."""
    keys = [_key_from_option(text.strip()) for text in config.api_keys]
    if config.api_key_file is not None:
        keys += load_key_file(config.api_key_file)
    if any(not key.key for key in keys):
        raise ConfigError("An API key is empty.")
    if len({key.key for key in keys}) < len(keys):
        raise ConfigError("An API key is given twice.")
    return keys


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_bind(config: ApiConfig) -> None:
    """Raise ConfigError when the options would open the model to the network without a key."""
    if is_loopback(config.host) or config.allow_unauthenticated or configured_keys(config):
        return
    raise ConfigError(
        f"Listening on {config.host} without an API key would let everyone who reaches it use the model. Give "
        f"--api-key or --api-key-file, listen on 127.0.0.1, or say --allow-unauthenticated if that is what you want."
    )


class KeyRing:
    """The known keys, as hashes."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self._known = [(_digest(key.key), key.identity) for key in keys]

    @property
    def empty(self) -> bool:
        """No keys: everyone is the default tenant."""
        return not self._known

    def identify(self, presented: str) -> Identity | None:
        """Whose key this is. Takes the same time whichever key matches, or none."""
        digest = _digest(presented)
        found = None
        for known, identity in self._known:
            if hmac.compare_digest(known, digest):
                found = identity
        return found


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def presented_key(headers: Headers) -> str | None:
    """The key in `authorization: Bearer …` or `x-api-key`."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return value.strip()
    return headers.get("x-api-key")


class AuthMiddleware:
    """Answers 401 before the body is read; else puts the caller's `Identity` into the request's state. Pure ASGI."""

    def __init__(self, app: ASGIApp, ring: KeyRing) -> None:
        self._app = app
        self._ring = ring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request in the name of its caller."""
        if scope["type"] == "http":
            identity = self._identity(scope)
            if identity is None:
                error = FaultError(Kind.KEY, _NO_KEY)
                log_failure(error, error.fault)
                await error_response(error.fault, scope["path"])(scope, receive, send)
                return
            if Headers(scope=scope).get(STRICT_HEADER, "0").strip().lower() not in ("0", "false", ""):
                identity = replace(identity, strict_markers=True)
            scope.setdefault("state", {})["identity"] = identity
        await self._app(scope, receive, send)

    def _identity(self, scope: Scope) -> Identity | None:
        if self._ring.empty or scope["path"] in OPEN_PATHS:
            return Identity()
        key = presented_key(Headers(scope=scope))
        return None if key is None else self._ring.identify(key)
