"""Starts and supervises workers. Today: one local process."""

from forebay.cluster.local import local_worker
from forebay.engine import WorkerOptions

__all__ = ["WorkerOptions", "local_worker"]
