"""From the command line's options to those of a worker. It starts nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from forebay.cli.cache_options import CacheOptions, HostPool, parse_quotas
from forebay.cli.options import EngineOptions, SchedulingOptions, UsageError
from forebay.cluster import WorkerOptions
from forebay.core.location import cache_folder
from forebay.engine.options import spare_memory
from forebay.kv.retention import RetentionPolicy, parse_class
from forebay.models import ModelSource

if TYPE_CHECKING:
    from forebay.api.auth import ApiKey
    from forebay.kv.quota import Quotas


def worker_options(
    source: ModelSource,
    name: str,
    engine: EngineOptions,
    scheduling: SchedulingOptions,
    cache: CacheOptions | None = None,
    *,
    keys: Sequence[ApiKey] = (),
) -> WorkerOptions:
    """`name` is what clients call the model. The worker gets the resolved path, so it downloads nothing again.

    Without `cache` there is no tier below the device. `keys` may name retention classes, and quotas of their tenants,
    which those of `cache` override. Raises UsageError for an unknown retention class or a quota that is no size.
    """
    made = WorkerOptions(
        **({} if cache is None else _cache_options(cache, keys)),
        model=str(source.path),
        served_name=name,
        dtype=engine.dtype,
        quantize=engine.quantize,
        activations=engine.activations,
        kv_dtype=engine.kv_dtype,
        kv_memory=engine.kv_memory,
        max_model_len=engine.max_model_len,
        threads=engine.threads,
        kernels=engine.kernels,
        target_itl_s=scheduling.target_itl / 1000,
        max_running=scheduling.max_running,
        max_waiting=scheduling.max_waiting,
        prefix_cache=scheduling.prefix_cache,
    )
    return spare_memory(made) if engine.low_memory else made


def _cache_options(cache: CacheOptions, keys: Sequence[ApiKey]) -> dict[str, Any]:
    pool = cache.host_pool or HostPool()
    policy = RetentionPolicy(dict(map(parse_class, cache.retention_class)))
    for name in (cache.retention, *(key.identity.retention for key in keys)):
        if name is not None and name not in policy.classes:
            known = ", ".join(sorted(policy.classes))
            raise UsageError(f"There is no retention class {name!r}; the classes are {known}.")
    return {
        "host_pool": pool.size,
        "host_pool_path": None if pool.path is None else str(pool.path),
        "host_pool_numa": pool.numa,
        "cache_dir": str(cache.cache_dir or cache_folder("kv")),
        "cache_disk": cache.cache_disk,
        "cache_required": cache.cache_dir is not None,
        "verify_kv": cache.verify_kv,
        "retention": cache.retention,
        "retention_classes": dict(map(parse_class, cache.retention_class)),
        "host_quotas": _quotas(cache.host_quota, [(key.identity.tenant, key.host_quota) for key in keys]),
        "disk_quotas": _quotas(cache.disk_quota, [(key.identity.tenant, key.disk_quota) for key in keys]),
        "host_half_life_s": cache.host_half_life,
        "disk_half_life_s": cache.disk_half_life,
    }


def _quotas(given: Iterable[str], of_keys: Iterable[tuple[str, str]]) -> Quotas:
    """The quotas of the options, over those (tenant, size) that keys name for their tenants."""
    named: dict[str, str] = {}
    for tenant, size in of_keys:
        if size and named.setdefault(tenant, size) != size:
            raise UsageError(f"The keys of the tenant {tenant} name different quotas: {named[tenant]} and {size}.")
    try:
        return parse_quotas([*(f"{tenant}={size}" for tenant, size in named.items()), *given])
    except ValueError as error:
        raise UsageError(f"A quota in the API key file is wrong: {error}") from error
