"""Identify this boot of this host, to distinguish its processes from those of other hosts and earlier boots."""

from __future__ import annotations

from pathlib import Path


def boot_id() -> str:
    """Return the kernel's id of this boot; empty where it is unavailable."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
