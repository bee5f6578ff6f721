"""Recognises faults of the host that prevent a compile: no compiler, no space, no descriptors, no writable folder."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from gearcache.errors import BackendUnavailable, CompileError

_ERRORS = (
    errno.EDQUOT,
    errno.EFBIG,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ENOSPC,
    errno.EROFS,
)
#: Texts for them in errors of compilers, and of processes whose errors are returned as text.
_NO_TEMPORARY = "No usable temporary directory"
_ERROR_TEXTS = (*(os.strerror(number) for number in _ERRORS), _NO_TEMPORARY)
TEMPORARY_REMEDY = (
    "mount a folder that can be written at /tmp (in Kubernetes an `emptyDir`), or name one in `TMPDIR`; without one "
    "this host can load entries, not compile them"
)


def keeps_from_compiling(error: BaseException) -> bool:
    """Whether this host cannot compile any method: it has no compiler, or a fault of `is_host_fault`."""
    return isinstance(error, BackendUnavailable) or is_host_fault(error)


def is_host_fault(error: BaseException) -> bool:
    """Whether an error is caused by a full disk, a lack of descriptors or memory, or no place to write."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if isinstance(cause, OSError) and (cause.errno in _ERRORS or str(cause.strerror).startswith(_ERROR_TEXTS)):
            return True
        if isinstance(cause, CompileError) and any(text in cause.cause for text in _ERROR_TEXTS):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def host_remedy(error: BaseException) -> str:
    """Return the fault of the host that may have caused an error, and what to do; "" if there is none."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return (
            "The working folder of this process was removed, which imports of torch do not survive: start it elsewhere"
        )
    if not is_host_fault(error):
        return ""
    if _NO_TEMPORARY in str(error):
        return f"The host has no temporary folder: {TEMPORARY_REMEDY}"
    return "The host is short of disk, memory or descriptors"
