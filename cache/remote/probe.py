"""Whether a store honours conditional writes (to be replaced by the helper's)."""

from __future__ import annotations

import secrets
from pathlib import Path

from gearcache.cache.remote.names import PROBES
from gearcache.cache.remote.protocol import Deadline, Remote


def honours_create(remote: Remote, deadline: Deadline, folder: Path) -> bool:
    """Whether of several that create an object only one succeeds."""
    if remote.creates != "perhaps":
        return remote.creates == "yes"
    name = f"{PROBES}{secrets.token_hex(16)}"
    first, second = (remote.put(name, b"probe", deadline, create=True) for _ in range(2))
    remote.delete(name, deadline)
    return first and not second
