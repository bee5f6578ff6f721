"""Finds which ranks of a job share a cache folder."""

from __future__ import annotations

import os
import socket

from gearcache.cache.files.shared_folder import mark_folder, unmark_folder
from gearcache.cache.layout import Layout
from gearcache.errors import CacheError


class Places:
    """The cache folders of one rank, for one meeting; `close` removes the marks that it has made there."""

    def __init__(self, meeting: str, rank: int) -> None:
        self._name = f"agree-{meeting}"
        self._own_identifier = f"{socket.gethostname()}-{os.getpid()}-{rank}"
        self._identifiers: dict[str, str] = {}
        self._marked: list[Layout] = []

    def of(self, layout: Layout, tiers: str = "") -> str:
        """Return an identifier of a cache folder: equal on all ranks that share the folder, and on no others.

        `tiers` name the tiers through which ranks with different folders exchange entries. A folder that cannot be
        written belongs to this rank alone.
        """
        if tiers and self._of_folder(layout) != self._own_identifier:
            return tiers
        return self._of_folder(layout)

    def _of_folder(self, layout: Layout) -> str:
        root = str(layout.root)
        if root not in self._identifiers:
            try:
                self._identifiers[root], is_own = mark_folder(layout, self._name)
            except (CacheError, OSError, UnicodeDecodeError):
                self._identifiers[root] = self._own_identifier
            else:
                self._marked += [layout] if is_own else []
        return self._identifiers[root]

    def close(self) -> None:
        """Remove the marks, once all ranks have seen them."""
        for layout in self._marked:
            unmark_folder(layout, self._name)
