"""A forked child that runs one action."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable


def run_in_fork(action: Callable[[], object]) -> int:
    """Run an action in a forked child, and return its exit code: 0 unless the action raised."""
    child = os.fork()
    if not child:
        code = 1
        try:
            action()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
