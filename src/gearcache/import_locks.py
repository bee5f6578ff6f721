"""Which threads of this process import modules now."""

from __future__ import annotations

import _imp
import importlib
import threading
from typing import Any

#: For each module that is being imported, a weak reference to its lock (Python's `importlib._bootstrap`).
_module_locks: dict[Any, Any] = getattr(importlib._bootstrap, "_module_locks", {})


def importing_threads() -> set[int]:
    """Return the threads that hold the lock of a module; one that an exception has interrupted may hold it for good."""
    owners = {getattr(reference(), "owner", None) for reference in list(_module_locks.values())}
    return {owner for owner in owners if owner is not None}


def is_importing() -> bool:
    """Return whether this thread is within an import, so that another thread may wait for it in its own imports."""
    return threading.get_ident() in importing_threads() or _imp.lock_held()
