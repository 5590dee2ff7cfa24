"""Moves pages between the device, the host pool and disk: shared memory, files, and the threads that copy.

Not the decisions: what to save, load, pin or preempt comes from `kv` and `scheduling`. No tensors: pages are addresses
and bytes, so that nothing here loads torch. An engine needs `KvTiers` and nothing else.
"""

from forebay.fabric.common_memory import CommonMemory
from forebay.fabric.jobs import Completion, Loaded, Saved
from forebay.fabric.memory import HostMemory
from forebay.fabric.metrics import TierCounters
from forebay.fabric.pool_layout import slots_in
from forebay.fabric.tier_config import TierConfig, TierGauges
from forebay.fabric.tiers import KvTiers

__all__ = [
    "CommonMemory",
    "Completion",
    "HostMemory",
    "KvTiers",
    "Loaded",
    "Saved",
    "TierConfig",
    "TierCounters",
    "TierGauges",
    "slots_in",
]
