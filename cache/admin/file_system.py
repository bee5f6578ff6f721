"""Detect the kind of file system of a folder, as the kernel reports it."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

#: Magic numbers of `statfs(2)` of file systems that get their files from another host or process.
NETWORK = {
    0x6969: "NFS",
    0x00C36400: "Ceph",
    0x0BD00BD0: "Lustre",
    0x65735546: "FUSE",
    0x01021997: "9p",
    0xFF534D42: "CIFS",
    0xFE534D42: "SMB",
    0x47504653: "GPFS",
    0x5346414F: "AFS",
    0x19830326: "BeeGFS",
    0x7461636F: "OCFS2",
    0x01161970: "GFS2",
}


def network_file_system(folder: Path) -> str:
    """Return the name of the network file system, or of FUSE, that stores a folder; empty for others. Never raises."""
    return NETWORK.get(_magic(folder), "")


def _magic(folder: Path) -> int:
    """Return the type of a file system; 0 where it is unknown."""
    # Larger than this structure on any platform; it begins with the type.
    buffer = (ctypes.c_long * 64)()
    try:
        failed = ctypes.CDLL(None).statfs(os.fsencode(folder), buffer)
    except (OSError, AttributeError, ValueError):
        return 0
    return 0 if failed else int(buffer[0]) & 0xFFFFFFFF
