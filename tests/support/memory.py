"""The folders of tests in memory: each entry is synchronised with its disk a dozen times, and tests make thousands."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")
#: A run of all tests leaves less than one GiB.
_FREE = 4 * 2**30
#: Where pytest makes the folders of tests.
_ROOT = "PYTEST_DEBUG_TEMPROOT"


def settle_in_memory(config: pytest.Config) -> None:
    """Let them lie in memory where it is large enough and code may be run from it; with THOROUGH=1 on the disk."""
    if config.option.basetemp or os.environ.get("THOROUGH") or not os.access(_MEMORY, os.W_OK):
        return
    status = os.statvfs(_MEMORY)
    if not status.f_flag & os.ST_NOEXEC and status.f_bavail * status.f_frsize >= _FREE:
        os.environ.setdefault(_ROOT, str(_MEMORY))


def leave_memory(session: pytest.Session) -> None:
    """Remove what passing tests left there. What failing ones left stays until the next run."""
    folder: Path = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    if not session.config.option.basetemp and folder.is_relative_to(_MEMORY):
        shutil.rmtree(folder, ignore_errors=True)
