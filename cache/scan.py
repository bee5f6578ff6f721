"""Finding all entries: rows of the index where they still hold, manifests where they do not."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gearcache.cache.collection import paused_collection
from gearcache.cache.journal import read_journal
from gearcache.cache.layout import MANIFEST_NAME, USE_NAME, Layout
from gearcache.cache.reading import read_manifest
from gearcache.cache.row import Identity, Row, manifest_state, row_of, use_state
from gearcache.cache.signature import Signer
from gearcache.cache.trust import check_folders
from gearcache.errors import CacheError, CorruptEntry

MANY_ENTRIES = 10_000


@dataclass
class Scan:
    """The rows of all readable entries, and what is wrong with the others."""

    rows: list[Row] = field(default_factory=list)
    faults: list[CacheError] = field(default_factory=list)


def scan(layout: Layout, *, exact: bool = False) -> Scan:
    """Look at every entry; the index is brought up to date where that can be done. Never raises.

    Every manifest is looked at, and read when it has changed. Without `exact`, in a large cache, a row holds while
    nobody used or published its entry since, as the use file tells: one look at the disk for each entry.
    """
    # Imported here: the command line does more than list, and this brings SQLite.
    from gearcache.cache.index import open_index

    # Rows of 100,000 entries are a million objects, none of them garbage.
    with paused_collection(), open_index(layout) as index:
        known = index.rows if index is not None else _journal_rows(layout)
        found = Scan()
        changed = _look_at_all(layout, known, exact or len(known) <= MANY_ENTRIES, found)
        if index is not None:
            index.save(found.rows, changed)
    return found


def read_entry(layout: Layout, path: Path, signer: Signer | None = None) -> Row:
    """The row of one manifest, read in full; `CacheError` or `FileNotFoundError`."""
    label, digest, scope = layout.identify(path)
    try:
        check_folders(layout.root, path.parent)
        manifest = read_manifest(path, digest, signer)
        if manifest.name != f"{label}-{digest}":
            raise CorruptEntry(path, f"it belongs to the entry {manifest.name}")
        return row_of(manifest, (label, digest, scope), path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CacheError(f"`{path}` cannot be read: {error.strerror}") from error


def _look_at_all(layout: Layout, known: dict[Identity, Row], exact: bool, found: Scan) -> set[Identity]:
    """Fill in what is found, and return the identities whose row is new, another one or gone."""
    scoped: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for identity, row in known.items():
        if identity[2]:
            scoped[identity[:2]].append(row)
    changed: set[Identity] = set()
    present = 0
    entries = str(layout.entries_folder)
    # Texts instead of paths, and no more than is needed: these lines run for each of maybe 100,000 entries.
    try:
        for name in layout.names():
            plain = known.get((*name, ""))
            rows = [plain] if plain is not None else []
            if scoped:
                rows += scoped.get(name, ())
            folder = f"{entries}/{name[0]}/{name[1]}"
            unread = []
            for row in rows:
                scope = row.entry.scope
                place = f"{folder}/{scope}" if scope else folder
                use = use_state(f"{place}/{USE_NAME}")
                if (exact or use != row.use) and manifest_state(f"{place}/{MANIFEST_NAME}") != row.manifest:
                    unread.append(layout.entry(*name, scope) / MANIFEST_NAME)
                    continue
                present += 1
                if use == row.use:
                    found.rows.append(row)
                else:
                    found.rows.append(row.with_use(use))
                    changed.add((*name, scope))
            if not rows or (exact and not _has_scopes(folder, rows)):
                seen = {layout.entry(*row.entry.identity) / MANIFEST_NAME for row in rows}
                unread += [path for path in layout.manifests_of(*name) if path not in seen]
            if unread:
                changed |= _read(layout, unread, found)
    except OSError as error:
        found.faults.append(CacheError(f"`{error.filename}` cannot be read: {error.strerror}"))
    if present != len(known):
        changed |= known.keys() - {row.entry.identity for row in found.rows}
    return changed


def _read(layout: Layout, paths: Iterable[Path], found: Scan) -> set[Identity]:
    identities = set()
    for path in paths:
        try:
            row = read_entry(layout, path)
        except FileNotFoundError:
            continue
        except CacheError as error:
            found.faults.append(error)
        else:
            found.rows.append(row)
            identities.add(row.entry.identity)
    return identities


def _has_scopes(folder: str, rows: list[Row]) -> bool:
    """Whether the folder of a key holds as many folders as there are rows with a rank scope; links tell, mostly."""
    try:
        inside = os.lstat(folder).st_nlink - 2
    except FileNotFoundError:  # removed since it was listed: looked at closely, it holds nothing
        return False
    return inside == sum(1 for row in rows if row.entry.scope)


def _journal_rows(layout: Layout) -> dict[Identity, Row]:
    rows, _ = read_journal(layout.index_folder)
    return {row.entry.identity: row for row in rows}
