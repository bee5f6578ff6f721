"""Replaces functions of other packages by ours, in modules imported now or later, and restores them.

Nothing is imported for this. A function is recognised by its identity: a name that other code has set is not changed.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Mapping
from typing import Any

from gearcache.compat.entrances import is_being_reexported, is_owned
from gearcache.import_hooks import ImportHook
from gearcache.threads import freed_in_forks


class Replacement:
    """Puts our functions in place of others, also in modules that are imported later.

    `wanted` is module -> name -> function, each its own function object; `seen` is called after every such import.
    """

    def __init__(self, wanted: Mapping[str, Mapping[str, types.FunctionType]], seen: Callable[[], None]) -> None:
        self._functions = wanted
        self._on_import = seen
        self._lock = freed_in_forks(threading.RLock())
        self._replaced: dict[tuple[types.ModuleType, str], tuple[Any, types.FunctionType]] = {}
        self._is_active = False
        self._hook = ImportHook(wanted.__contains__, self._execute)

    def begin(self) -> None:
        """Replace in imported modules, and from now on in modules at their import. Names bound earlier follow.

        Class attributes and partials that hold a replaced function are not changed.
        """
        with self._lock:
            if self._is_active:
                return
            self._is_active = True
            sys.meta_path.insert(0, self._hook)
            self._replace_loaded()
            self._follow()

    def end(self) -> None:
        """Restore every name that still holds one of our functions, in any module; no other name is changed."""
        with self._lock:
            if not self._is_active:
                return
            self._is_active = False
            sys.meta_path.remove(self._hook)
            originals = self._originals()
            replaced = dict.fromkeys(module for module, _ in self._replaced)
            for module in dict.fromkeys((*replaced, *_modules().values())):
                for name, value in list(vars(module).items()):
                    if id(value) in originals:
                        vars(module)[name] = originals[id(value)]
            self._replaced.clear()

    def _execute(self, module: types.ModuleType, execute: Callable[[types.ModuleType], None]) -> None:
        execute(module)
        with self._lock:
            if self._is_active:
                for key in [key for key in self._replaced if key[0] is module]:  # it was reloaded
                    del self._replaced[key]
                self._replace_loaded(module)
        self._on_import()

    def _replace_loaded(self, executed: types.ModuleType | None = None) -> None:
        """Replace in every module that has bound its names by now; `executed` is one that has just run."""
        for name, functions in self._functions.items():
            module = sys.modules.get(name)
            if not isinstance(module, types.ModuleType) or is_being_reexported(name, executed):
                continue
            for attribute, function in functions.items():
                original = vars(module).get(attribute)
                if original is not None and (module, attribute) not in self._replaced:
                    # A second module of the same file may have bound the function of another entrance.
                    self._replaced[module, attribute] = (self._originals().get(id(original), original), function)
                    vars(module)[attribute] = function

    def _originals(self) -> dict[int, Any]:
        """Return the original of each of our functions, by the id of ours."""
        return {id(function): original for original, function in self._replaced.values()}

    def _follow(self) -> None:
        """Replace names that programs bound earlier (`from torchair.inference import cache_compile`)."""
        functions = {id(original): function for original, function in self._replaced.values()}
        for place, module in _modules().items():
            if is_owned(place):
                continue
            for name, value in list(vars(module).items()):
                if id(value) in functions:
                    vars(module)[name] = functions[id(value)]


def _modules() -> dict[str, types.ModuleType]:
    return {name: module for name, module in list(sys.modules.items()) if isinstance(module, types.ModuleType)}
