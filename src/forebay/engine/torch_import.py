"""Imports torch without the parts that inference on a processor never uses; those are imported when first asked for.

Half of `import torch` is spent on export, meta kernels, quantisation tools, higher-order operators and the like. Here a
module of that kind becomes an empty one that fills itself, in place, when an attribute or a submodule of it is first
asked for; then all others are filled as well, in torch's own order, for some do their work (such as registering meta
kernels) only by being imported. What the engine uses is none of them, and is not touched. Only the worker's process
starts this way.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import version
from threading import RLock
from types import ModuleType
from typing import Any

log = logging.getLogger(__name__)

PLAIN = "FOREBAY_PLAIN_TORCH"
"""Environment variable: when set (and not empty), torch is imported as usual."""
KNOWN_VERSIONS = ("2.13.",)
"""torch versions for which the list below was made and is tested; others are imported as usual."""
DEFERRED = (
    "torch.utils.data",
    "torch.distributions",
    "torch.nested",
    "torch.optim",
    "torch.profiler",
    "torch.ao",
    "torch.nn.intrinsic",
    "torch.nn.qat",
    "torch.nn.quantizable",
    "torch.nn.quantized",
    "torch._size_docs",
    "torch._storage_docs",
    "torch._tensor_docs",
    "torch.quantization",
    "torch.masked",
    "torch.export",
    "torch._higher_order_ops",
    "torch.func",
    "torch.distributed._meta_registrations",
    "torch._meta_registrations",
    "torch.compiler",
)
"""In the order in which torch imports them."""
_TAKEN = {"torch._higher_order_ops": ("cond", "while_loop"), "torch.func": ("vmap",)}
"""Functions that torch takes from a deferred module at once: it gets ones that call the real ones."""


def import_torch() -> None:
    """Import torch, for good. Where deferring fails, this process starts over (exec) and imports torch as usual."""
    if "torch" in sys.modules or os.environ.get(PLAIN) or not version("torch").startswith(KNOWN_VERSIONS):
        import torch  # noqa: PLC0415  (here and below: what comes before decides how)

        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        import torch  # noqa: PLC0415
    except Exception:
        log.debug("torch can't be imported in parts, so it is imported as a whole", exc_info=True)
        _start_over()
    finally:
        sys.meta_path.remove(finder)
    finder.parts.complete = torch


def deferred_modules() -> list[str]:
    """Those of `DEFERRED` that are still empty."""
    return [name for name in DEFERRED if isinstance(sys.modules.get(name), _Deferred)]


def _start_over() -> None:
    """torch can't be imported a second time within a process."""
    os.execve(sys.executable, sys.orig_argv, os.environ | {PLAIN: "1"})  # noqa: S606


class _Parts:
    """The deferred modules of one import of torch, and how each is filled."""

    def __init__(self) -> None:
        self.loaders: dict[str, Loader] = {}
        self.complete: ModuleType | None = None
        """torch, once its own import has ended. Before, a module that is asked for is filled alone."""
        self._lock = RLock()

    def attribute(self, module: _Deferred, name: str) -> Any:
        """Fill the module, and all others unless torch's own import is still going on, and look again."""
        if self.complete is None:
            if name == "__path__" and module.__name__ in _TAKEN:
                return _spec(module).submodule_search_locations
            if name in _TAKEN.get(module.__name__, ()):
                return _calling(module, name)
        with self._lock:
            torch, self.complete = self.complete, None
            if torch is not None:
                self._fill_all(torch)
            self._fill(module)
        return ModuleType.__getattribute__(module, name)

    def _fill_all(self, torch: ModuleType) -> None:
        for name in DEFERRED:
            module = sys.modules.get(name)
            if isinstance(module, _Deferred):
                self._fill(module)
        for source, names in _TAKEN.items():
            for name in names:
                setattr(torch, name, getattr(sys.modules[source], name))

    def _fill(self, module: _Deferred) -> None:
        loader = self.loaders.pop(module.__name__, None)
        if loader is None:  # it is filled already, or is being filled further up
            return
        spec = _spec(module)
        spec.loader = module.__loader__ = loader
        if spec.submodule_search_locations is not None:
            module.__path__ = spec.submodule_search_locations
        loader.exec_module(module)
        object.__setattr__(module, "__class__", ModuleType)


def _spec(module: ModuleType) -> ModuleSpec:
    if module.__spec__ is None:
        raise ImportError(f"{module.__name__} has no spec")
    return module.__spec__


def _calling(module: ModuleType, name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        return getattr(module, name)(*arguments, **named)

    return call


class _Deferred(ModuleType):
    """A module that is still empty. It has no `__path__`, so that importing a submodule fills it first."""

    def __init__(self, name: str, parts: _Parts) -> None:
        super().__init__(name)
        self.__dict__["_forebay_parts"] = parts

    def __getattr__(self, name: str) -> Any:
        parts: _Parts = self.__dict__["_forebay_parts"]
        return parts.attribute(self, name)


class _DeferringLoader(Loader):
    """Makes the module, and keeps for later how it is filled."""

    def __init__(self, loader: Loader, parts: _Parts) -> None:
        self._loader = loader
        self._parts = parts

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Deferred(spec.name, self._parts)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.pop("__path__", None)
        self._parts.loaders[module.__name__] = self._loader


class _Finder(MetaPathFinder):
    """Finds the modules to defer where Python's own finder does; all others are left to it."""

    def __init__(self) -> None:
        self.parts = _Parts()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `MetaPathFinder`."""
        if fullname not in DEFERRED:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _DeferringLoader(spec.loader, self.parts)
        return spec
