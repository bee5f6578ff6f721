"""The journal of entries published since the last update of the index: records appended to one file.

Writers append and never wait: only commands open the index, never a serving process. A missing or torn record makes the
next command read one manifest, and has no other effect.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from msgspec import msgpack

from gearcache.cache.admin.row import EntryRow
from gearcache.cache.files.trust import open_regular, open_trusted
from gearcache.errors import CacheError

JOURNAL_NAME = "published"
MAX_JOURNAL_SIZE = 64 << 20
_SUM_SIZE = 8


def append_entry(folder: Path, entry: EntryRow) -> None:
    """Append an entry to the journal in the folder of the index; raises `OSError` when that cannot be done now."""
    body = msgpack.encode(entry)
    record = len(body).to_bytes(4, "big") + sha256(body).digest()[:_SUM_SIZE] + body
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = open_regular(folder / JOURNAL_NAME, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_size < MAX_JOURNAL_SIZE:
            os.write(descriptor, record)  # one call, so that appends do not interleave
    finally:
        os.close(descriptor)


def read_journal(folder: Path) -> tuple[list[EntryRow], int]:
    """Return the entries of the journal, oldest first, and its size, for `cut_journal`; empty for an unreadable one."""
    try:
        with open_trusted(folder / JOURNAL_NAME) as descriptor, open(descriptor, "rb", closefd=False) as file:
            data = file.read(2 * MAX_JOURNAL_SIZE)
        return list(_entries(data)), len(data)
    except (OSError, CacheError, ValueError):
        return [], 0


def cut_journal(folder: Path, size: int) -> None:
    """Empty a journal that was read to its end at `size`; one that has grown since stays. Raises `OSError`."""
    descriptor = open_regular(folder / JOURNAL_NAME, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_size == size:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _entries(data: bytes) -> Iterator[EntryRow]:
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        start = at + 4 + _SUM_SIZE
        body = data[start : start + size]
        if len(body) != size or sha256(body).digest()[:_SUM_SIZE] != data[at + 4 : start]:
            return  # torn: the start of the next record is unknown
        yield msgpack.decode(body, type=EntryRow)
        at = start + size
