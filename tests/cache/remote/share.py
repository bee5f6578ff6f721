"""Two hosts that share a folder which lies: two mounts of `lying_share.py`."""

from __future__ import annotations

import ctypes.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gearcache.cache.remote.engines.folder import FolderRemote
from tests.support.source_tree import ROOT

_START_SECONDS = 10.0


class Host:
    """A mount of the share, and its faults."""

    def __init__(self, backing: Path, mount: Path, library: str) -> None:
        program = str(Path(__file__).with_name("lying_share.py"))
        self._mount = mount
        mount.mkdir()
        self._process = subprocess.Popen(
            [sys.executable, program, str(backing), str(mount), library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.remote = FolderRemote(mount)

    def wait(self) -> str | None:
        """Wait until it is mounted; return why it is not."""
        end = time.monotonic() + _START_SECONDS
        while not self._mount.is_mount():
            if self._process.poll() is not None or time.monotonic() > end:
                return f"the kernel does not let it be mounted: {self.close()}"
            time.sleep(0.02)
        return None

    def lie(self, **faults: Any) -> None:
        """Set the faults, instead of those before."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(faults)}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "set\n"

    def close(self) -> str:
        """Unmount it; return the last line that it said."""
        _, said = self._process.communicate()
        return (said.strip().splitlines() or [""])[-1]


def fuse_library() -> str | None:
    """Return the path of libfuse, as `scripts/servers.sh` unpacks it or the system has it; None where there is none."""
    for path in (ROOT / ".servers").glob("lib/*/libfuse3.so.3"):
        return str(path)
    return ctypes.util.find_library("fuse3")


@contextmanager
def two_hosts(folder: Path) -> Iterator[tuple[Host, Host]]:
    """Two hosts with one share; skips where the system does not let them be."""
    if (library := fuse_library()) is None:
        pytest.skip("there is no libfuse: see scripts/servers.sh")
    if not os.access("/dev/fuse", os.W_OK):
        pytest.skip("/dev/fuse cannot be opened")
    (folder / "share").mkdir()
    hosts = [Host(folder / "share", folder / name, library) for name in ("first", "second")]
    try:
        for host in hosts:
            if reason := host.wait():
                pytest.skip(reason)
        yield hosts[0], hosts[1]
    finally:
        for host in hosts:
            host.close()
