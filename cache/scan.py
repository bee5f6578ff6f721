"""Finding all entries: rows of the index where they still hold, manifests where they do not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

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

    with open_index(layout) as index:
        known = index.rows if index is not None else _journal_rows(layout)
        found = Scan()
        held = _look_at_all(layout, known, exact or len(known) <= MANY_ENTRIES, found)
        if index is not None:
            changed = {row.entry.identity for row in found.rows} | set(known)
            index.save(found.rows, changed - held)
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
    """Fill in what is found, and return the identities whose row held as it is."""
    by_name: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in known.values():
        by_name[row.entry.label, row.entry.digest].append(row)
    held: set[Identity] = set()
    folder = str(layout.entries_folder)
    try:
        for name in layout.names():
            rows = by_name.get(name, ())
            if rows and not exact:
                unread = []
                for row in rows:
                    if use_state(f"{folder}/{'/'.join(filter(None, row.entry.identity))}/{USE_NAME}") == row.use:
                        found.rows.append(row)
                        held.add(row.entry.identity)
                    else:
                        unread.append(layout.entry(*row.entry.identity) / MANIFEST_NAME)
            else:
                unread = list(layout.manifests_of(*name))
            _read_again(layout, unread, rows, found, held)
    except OSError as error:
        found.faults.append(CacheError(f"`{error.filename}` cannot be read: {error.strerror}"))
    return held


def _read_again(layout: Layout, paths: Iterable[Path], rows: Iterable[Row], found: Scan, held: set[Identity]) -> None:
    for path in paths:
        identity = layout.identify(path)
        try:
            row = next((row for row in rows if row.entry.identity == identity), None)
            if row is None or manifest_state(path) != row.manifest:
                found.rows.append(read_entry(layout, path))
                continue
            use = use_state(path.with_name(USE_NAME))
            if use == row.use:
                held.add(identity)
            found.rows.append(row if use == row.use else row.with_use(use))
        except FileNotFoundError:
            continue
        except CacheError as error:
            found.faults.append(error)
        except OSError as error:
            found.faults.append(CacheError(f"`{path}` cannot be read: {error.strerror}"))


def _journal_rows(layout: Layout) -> dict[Identity, Row]:
    rows, _ = read_journal(layout.index_folder)
    return {row.entry.identity: row for row in rows}
