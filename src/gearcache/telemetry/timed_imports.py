"""Notes how long the import of a package takes, without a change to what other code sees of it.

Nothing tells when an import ends but the loader that runs the module, so a loader has to be timed. Only those are that
Python's own `PathFinder` has made for one import: it makes a new one each time, of a class that is known. Finders and
loaders of others, which may serve many modules or be of another form (pytest's, editable installs, zip files), are
never asked or changed, and what they import has no span of its own. `builtins.__import__` stays too: each import
statement of the process would pay for it, and tracebacks and tools would meet it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder, SourceFileLoader, SourcelessFileLoader
from itertools import pairwise
from typing import Any

Note = Callable[[str, float, float], None]
#: Imports that take less say nothing.
_SHORTEST = 0.001
#: What takes the result; None when nothing is noted any more.
_note: Note | None = None


def time_imports(note: Note | None) -> None:
    """Call `note(name, begin, seconds)` after each import of a package or a module without a dot; None ends it."""
    global _note
    _note = note
    if note is not None and PathFinder in sys.meta_path:
        sys.meta_path.insert(sys.meta_path.index(PathFinder), TimedImports())


class TimedImports:
    """A finder that stands before `PathFinder` and returns what that finds, with a loader that is timed once."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a module; None wherever `PathFinder` would not be the next to be asked."""
        if _note is None or "." in name or not self._is_before_path_finder():
            return None
        found = PathFinder.find_spec(name, path, target)
        if found is not None and (timed := _TIMED.get(type(found.loader))) is not None:
            found.loader.__class__ = timed
        return found

    def _is_before_path_finder(self) -> bool:
        return any(here is self and after is PathFinder for here, after in pairwise(sys.meta_path))


def _timed_class(plain: type[Any]) -> type[Any]:
    """Return a class for loaders of another class that times one module, and is the other class by then."""

    def exec_module(self: Any, module: Any) -> None:
        self.__class__ = plain
        begin = time.perf_counter()
        try:
            self.exec_module(module)
        finally:
            seconds = time.perf_counter() - begin
            if _note is not None and seconds >= _SHORTEST:
                _note(module.__name__, begin, seconds)

    return type(plain.__name__, (plain,), {"exec_module": exec_module, "__module__": plain.__module__})


_TIMED: dict[type[Any], type[Any]] = {
    plain: _timed_class(plain) for plain in (SourceFileLoader, SourcelessFileLoader, ExtensionFileLoader)
}
