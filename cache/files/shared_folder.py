"""Detect processes that share one folder, on one host or several, by a mark that the first of them makes."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress

from gearcache.cache.blob_folder import prepare_folder
from gearcache.cache.files.atomic import write_new
from gearcache.cache.files.trust import read_trusted
from gearcache.cache.layout import Layout

_SIZE = 64


def mark_folder(layout: Layout, name: str) -> tuple[str, bool]:
    """Return the text of a mark, and whether this process made it: processes that share the folder get the same text.

    Raises `CacheError` or `OSError` where the folder cannot be used.
    """
    prepare_folder(layout, layout.locks_folder)
    text, path = secrets.token_hex(8), layout.locks_folder / name
    own_path = path.with_name(f"{name}-{text}")
    write_new(own_path, text.encode())
    try:
        os.link(own_path, path)  # the link has its text at once, and only one process can make it
        return text, True
    except FileExistsError:
        return read_trusted(path, _SIZE).decode(), False
    finally:
        own_path.unlink()


def unmark_folder(layout: Layout, name: str) -> None:
    """Remove a mark, once all have seen it."""
    with suppress(OSError):
        (layout.locks_folder / name).unlink()
