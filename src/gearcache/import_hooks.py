"""Runs code of ours when a module of another package is executed, whenever that is."""

from __future__ import annotations

import functools
import importlib.abc
import itertools
import sys
import types
from collections.abc import Callable
from typing import Any

Execute = Callable[[types.ModuleType], None]


class ImportHook(importlib.abc.MetaPathFinder):
    """A finder for the front of `sys.meta_path`: finds some modules as the others do, and has us execute each.

    `execute` gets the module and the function of its loader.
    """

    def __init__(self, is_wanted: Callable[[str], bool], execute: Callable[[types.ModuleType, Execute], None]) -> None:
        self._is_wanted, self._execute = is_wanted, execute

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """Return the spec of the finders behind this one; None for a module that is not wanted."""
        if not self._is_wanted(fullname):
            return None
        spec: Any = None
        finders = itertools.dropwhile(lambda finder: finder is not self, [*sys.meta_path])
        for finder in itertools.islice(finders, 1, None):
            find = getattr(finder, "find_spec", None)
            spec = find(fullname, path, target) if find is not None else None
            if spec is not None:
                break
        original = getattr(getattr(spec, "loader", None), "exec_module", None)
        if original is None:
            return spec

        @functools.wraps(original)
        def exec_module(module: types.ModuleType) -> None:
            vars(spec.loader).pop("exec_module", None)  # the loader may be used again
            self._execute(module, original)

        spec.loader.exec_module = exec_module
        return spec
