"""Notes how long the import of a package takes, without a change to what other code sees of it.

Of gearcache, which is imported in parts, each part that no other one imports has a span, too.

Nothing tells when an import ends but the loader that runs the module, so a loader has to be timed. Only those are that
Python's own `PathFinder` has made for one import: it makes a new one each time, of a class that is known. Finders and
loaders of others, which may serve many modules or be of another form (pytest's, editable installs, zip files), are
never asked or changed, and what they import has no span of its own. `builtins.__import__` stays too: each import
statement of the process would pay for it, and tracebacks and tools would meet it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder, SourceFileLoader, SourcelessFileLoader
from itertools import pairwise
from typing import Any

Note = Callable[[str, float, float], None]
#: Imports that take less say nothing.
_SHORTEST = 0.001
#: As `importlib` has it, of which tracebacks have no frames.
_IMPORT_FILE = "<frozen importlib._bootstrap_external>"
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
        is_noted = "." not in name or name.startswith("gearcache.")
        if _note is None or not is_noted or not self._is_before_path_finder() or not _is_import():
            return None
        found = PathFinder.find_spec(name, path, target)
        if found is not None and (timed := _TIMED.get(type(found.loader))) is not None:
            found.loader.__class__ = timed
        return found

    def _is_before_path_finder(self) -> bool:
        return any(here is self and after is PathFinder for here, after in pairwise(sys.meta_path))


def _is_import() -> bool:
    """Whether a module is imported: whoever only looks for one keeps the loader, which nobody may see changed."""
    caller = sys._getframe(2)
    while caller is not None and caller.f_code.co_name in ("_find_spec", "_call_with_frames_removed"):
        caller = caller.f_back  # type: ignore[assignment]
    return caller is not None and caller.f_code.co_name in ("_find_and_load_unlocked", "reload")


class _Parts(threading.local):
    """Whether the present thread imports a part of gearcache."""

    is_open = False


_parts = _Parts()


def _timed_class(plain: type[Any]) -> type[Any]:
    """Return a class for loaders of another class that times one module, and is the other class by then."""

    def exec_module(self: Any, module: Any) -> None:
        self.__class__ = plain
        is_part = module.__name__.startswith("gearcache.")
        if is_part and _parts.is_open:
            self.exec_module(module)
            return
        _parts.is_open = _parts.is_open or is_part
        begin = time.perf_counter()
        try:
            self.exec_module(module)
        finally:
            seconds = time.perf_counter() - begin
            _parts.is_open = _parts.is_open and not is_part
            if _note is not None and seconds >= _SHORTEST:
                _note(module.__name__, begin, seconds)

    # Tracebacks, warnings and whoever looks for the importer leave out what is a part of Python's own import.
    exec_module.__code__ = exec_module.__code__.replace(co_filename=_IMPORT_FILE)
    return type(plain.__name__, (plain,), {"exec_module": exec_module, "__module__": plain.__module__})


_TIMED: dict[type[Any], type[Any]] = {
    plain: _timed_class(plain) for plain in (SourceFileLoader, SourcelessFileLoader, ExtensionFileLoader)
}
