"""This boot of this host, which tells its processes from those of other hosts and of the time before."""

from __future__ import annotations

from pathlib import Path


def boot_id() -> str:
    """Return what the kernel calls this boot; empty where it does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
