"""Probe whether an engine lets only one of several hosts create an object, where the engine itself does not know."""

from __future__ import annotations

import contextlib
import secrets
import time
from hashlib import sha256
from pathlib import Path

from gearcache.cache.files.atomic import write_atomic
from gearcache.cache.remote.engines.protocol import Deadline, Denied, Remote, RemoteError
from gearcache.cache.remote.names import PROBES
from gearcache.errors import CacheError

#: How long an answer is remembered: the software behind an address may change, and the rights of this host.
REMEMBERED_SECONDS = 3600.0
_LIFETIME_SECONDS = 60.0
#: Each answer as a file holds it.
_ANSWERS = {b"yes": True, b"no": False}


def honours_create(remote: Remote, deadline: Deadline, folder: Path) -> bool:
    """Return whether a tier honours `create` and lets this host create; raises `RemoteError`, which is not remembered.

    An engine that knows is believed. For others the probe puts an object of a random name twice. A file in `folder`
    keeps the answer for all processes of the host; an unreadable file counts as missing.
    """
    if remote.creates != "perhaps":
        return remote.creates == "yes"
    path = folder / f"creates-{sha256(remote.label.encode()).hexdigest()[:16]}"
    if (remembered_answer := _remembered_answer(path)) is not None:
        return remembered_answer
    try:
        answer = b"yes" if _try(remote, deadline) else b"no"
    except Denied:
        answer = b"no"
    with contextlib.suppress(OSError, CacheError):
        write_atomic(path, answer)
    return answer == b"yes"


def _try(remote: Remote, deadline: Deadline) -> bool:
    name = f"{PROBES}{secrets.token_hex(16)}"
    try:
        # A store that refuses the first put has no such condition (Alibaba's says so), or is read only.
        first = remote.put(name, b"first", deadline, create=True, lifetime=_LIFETIME_SECONDS)
        second = remote.put(name, b"second", deadline, create=True, lifetime=_LIFETIME_SECONDS)
    finally:
        with contextlib.suppress(RemoteError):
            remote.delete(name, deadline)
    return first and not second


def _remembered_answer(path: Path) -> bool | None:
    try:
        age = time.time() - path.stat().st_mtime
        with path.open("rb") as file:
            answer = _ANSWERS.get(file.read(8))
    except OSError:
        return None
    return answer if 0 <= age < REMEMBERED_SECONDS else None
