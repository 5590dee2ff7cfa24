"""Between the API and the workers: admission, dispatch, health. It runs in the API's process and loads no torch.

Today there is one worker; placement over several and recovery of lost ones come on this interface.
"""

from forebay.router.link import WorkerLink
from forebay.router.router import Router

__all__ = ["Router", "WorkerLink"]
