"""The engine: carries out step plans on one machine's processor, in a process of its own.

Importing this package loads no torch: the API's process only needs `WorkerOptions` to start a worker. The heavy parts
are `engine.engine` (the step loop's body), `engine.runner` (model and pages) and `engine.worker` (the process).
"""

from forebay.core.cpus import AT_START  # noqa: F401  (read before torch is imported, which may pin this thread)
from forebay.engine.options import WorkerOptions

__all__ = ["WorkerOptions"]
