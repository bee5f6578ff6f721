"""Folders of other versions of gearcache below the same root: they can be counted, not read."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from gearcache.cache.admin.folder_marks import is_bucket, version_of
from gearcache.cache.keys.key import FORMAT_VERSION
from gearcache.cache.layout import MANIFEST_NAME, Layout


class OtherFormatFolder(Struct, frozen=True):
    """The folder of another format version, older or newer; `size` is in bytes."""

    path: Path
    version: int
    entries: int
    size: int


def other_formats(layout: Layout) -> list[OtherFormatFolder]:
    """Return the folders of other format versions, the oldest first, without a user's own `v1`. Never raises."""
    folders = []
    with suppress(OSError):
        for path in layout.root.iterdir():
            version = version_of(path.name)
            with suppress(OSError):
                if version is not None and version != FORMAT_VERSION and is_bucket(path):
                    folders.append(_measure(path, version))
    return sorted(folders, key=lambda folder: folder.version)


def _measure(path: Path, version: int) -> OtherFormatFolder:
    entries = size = 0
    for inner, _, names in os.walk(path):
        for name in names:
            entries += name == MANIFEST_NAME
            try:
                size += os.lstat(os.path.join(inner, name)).st_size  # noqa: PTH118 - there may be very many
            except OSError:
                continue
    return OtherFormatFolder(path, version, entries, size)
