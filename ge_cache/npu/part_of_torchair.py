"""Import the modules of torchair that a relaunch needs, without the rest of the package, Dynamo and Inductor.

`import torchair` imports its converters, and with them Dynamo and Inductor: two seconds for modules that a relaunch
does not use. The needed modules are torchair's own and stay the only copies. While they are imported, empty packages
replace `torchair` and `torchair._utils`, whose code runs in full at a later import of these.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import logging
import os
import sys
import threading
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gearcache.import_hooks import ImportHook
from gearcache.threads import freed_in_forks

#: The packages that are replaced while the parts are imported: their own code imports the compilers.
_STOOD_IN = ("torchair", "torchair._utils")
#: `1` imports all of torchair, without this module.
WHOLE = "GEARCACHE_WHOLE_TORCHAIR"
_lock = freed_in_forks(threading.RLock())
logger = logging.getLogger("gearcache")


def import_part(names: Sequence[str]) -> bool:
    """Import modules of torchair; False where the whole package must be imported for them.

    That is the case where another import of the package has begun, where torch_npu provides it in an unknown way, and
    where a module reads more of its package than its name.
    """
    with _lock:
        if all(name in sys.modules for name in names):
            return True
        if os.environ.get(WHOLE) == "1" or _STOOD_IN[1] in sys.modules:
            return False
        lazy = sys.modules.get("torchair")
        folder = _folder(lazy)
        if folder is None:
            return False
        packages = [_StandIn("torchair", folder), _StandIn("torchair._utils", folder / "_utils")]
        sys.modules.update({package.__name__: package for package in packages})
        try:
            for name in names:
                importlib.import_module(name)
        except Exception as error:
            logger.debug("torchair is imported whole: %s: %s", type(error).__name__, error)
            return False
        finally:
            _settle()
            for name in _STOOD_IN:
                del sys.modules[name]
            if lazy is not None:
                sys.modules["torchair"] = lazy
            if _binder not in sys.meta_path:
                sys.meta_path.insert(0, _binder)
            for package in packages:
                package.is_done.set()
        return True


def _settle() -> None:
    """Make the packages among the parts independent of their parent package, which is gone.

    A package without an `__init__` would look up the parent's path again, and `from . import name` of a module that is
    not an attribute yet imports the top package.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("torchair.") and name not in _STOOD_IN and hasattr(module, "__path__"):
            module.__path__ = list(module.__path__)
            _bind(module)


def _bind(package: types.ModuleType) -> None:
    """Set the imported modules of a package as its attributes."""
    prefix = f"{package.__name__}."
    for place, module in list(sys.modules.items()):
        if place.startswith(prefix) and "." not in place[len(prefix) :]:
            setattr(package, place[len(prefix) :], module)


def _folder(lazy: Any) -> Path | None:
    """Return the folder of torchair where it is not imported; `lazy` is torch_npu's placeholder for it."""
    if lazy is None:
        spec = importlib.machinery.PathFinder.find_spec("torchair")
        places = spec.submodule_search_locations if spec is not None else None
        return Path(next(iter(places))) if places else None
    # torch_npu's placeholder imports torchair when the import system reads its `__spec__`: look past it.
    if type(lazy).__name__ != "_LazyTorchair":
        return None
    attributes = vars(lazy)
    if attributes.get("_torchair", lazy) is not None or attributes.get("_exception", lazy) is not None:
        return None
    package = sys.modules.get("torch_npu.dynamo")
    if package is None or "torch_npu.dynamo.torchair" in sys.modules:
        return None
    folder = Path(next(iter(package.__path__))) / "torchair"
    return folder if folder.is_dir() else None


class _StandIn(types.ModuleType):
    """An empty package that temporarily replaces another; code that kept a reference is led to the real one later."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name)
        self.__path__ = [str(folder)]
        self.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        self.__spec__.submodule_search_locations = self.__path__
        self.is_done = threading.Event()
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or (threading.get_ident() == self._thread and not self.is_done.is_set()):
            raise AttributeError(f"module `{self.__name__}` has no attribute `{name}`")
        self.is_done.wait()
        return getattr(importlib.import_module(self.__name__), name)


def _executed(module: types.ModuleType, execute: Callable[[types.ModuleType], None]) -> None:
    """Execute a package itself, with its previously imported modules as its attributes."""
    _bind(module)
    execute(module)


def _has_parts(name: str) -> bool:
    """Whether modules of a package of torchair are imported, and maybe the package itself is not."""
    return name.partition(".")[0] == "torchair" and any(other.startswith(f"{name}.") for other in sys.modules)


_binder = ImportHook(_has_parts, _executed)
