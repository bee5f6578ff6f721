"""Repair an entry that lacks blobs: keep the gears that can be served without them, remove the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from gearcache.cache.admin.row import EntryRow
from gearcache.cache.blob_folder import prepare_folder
from gearcache.cache.files.atomic import write_atomic
from gearcache.cache.files.trust import check_digest, read_trusted
from gearcache.cache.layout import Layout
from gearcache.cache.locks.lock import key_lock
from gearcache.cache.manifest import MAX_MANIFEST_SIZE, Manifest, decode_manifest, encode_manifest, read_manifest
from gearcache.cache.quarantine import quarantine
from gearcache.cache.remote.trust import Trust
from gearcache.cache.remove import PATIENCE_SECONDS, deleting
from gearcache.errors import CorruptEntry, GearcacheError


class EntryPart(Protocol):
    """A part of an entry that can be used or removed by itself: a gear."""

    @property
    def text(self) -> str:
        """Return its name for people."""

    @property
    def blobs(self) -> frozenset[str]:
        """The digests that it needs."""


class Parts(Struct, frozen=True):
    """The functions that understand the payload of an entry, since the store itself does not.

    `of` returns the parts of an entry. `without` returns the entry without the parts that need one of some blobs, or
    None where no part is left.
    """

    of: Callable[[Manifest], Collection[EntryPart]]
    without: Callable[[Manifest, frozenset[str]], Manifest | None]


#: Understands no payload: an entry stays whole or is removed.
NO_PARTS = Parts(lambda manifest: (), lambda manifest, lost: None)


class Repair(Struct, frozen=True):
    """The result of a repair: the texts of the removed and of the kept parts; `problem` says why nothing was done.

    An entry without `kept` went to the quarantine.
    """

    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    problem: str = ""


def lost_blobs(layout: Layout, entry: EntryRow, damaged: Collection[str]) -> dict[str, str]:
    """Return the unusable blobs that an entry names, each with the reason; `damaged` have failed before."""
    reasons = {}
    for digest, size in entry.blob_sizes().items():
        try:
            stored_size = layout.blob(digest).lstat().st_size
        except OSError:
            reasons[digest] = f"its blob {digest} is missing"
            continue
        if stored_size != size:
            reasons[digest] = f"its blob {digest} has {stored_size} bytes instead of {size}"
        elif digest in damaged:
            reasons[digest] = f"its blob {digest} is damaged"
    return reasons


def split(manifest: Manifest, lost: Collection[str], parts: Parts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The texts of the parts that need one of the lost blobs, and of the others, as far as they are known."""
    entry_parts = list(parts.of(manifest))
    lost_texts = tuple(part.text for part in entry_parts if part.blobs & frozenset(lost))
    return lost_texts, tuple(part.text for part in entry_parts if not part.blobs & frozenset(lost))


def repair_entry(layout: Layout, path: Path, damaged: Collection[str], parts: Parts, trust: Trust) -> Repair:
    """Publish an entry anew without the parts that need a lost blob, or quarantine it where none is left. Never raises.

    Holds the lock of the key, so that no compile publishes an entry read before the repair, and the lock of the store
    alone, so that no blob is added or removed. Readers see the old manifest or the new one; processes that have loaded
    the entry keep what they have. An entry stays where this host cannot sign the rest as the entry was signed.
    """
    label, digest, _ = layout.identify(path)
    try:
        prepare_folder(layout, layout.locks_folder)
        with (
            key_lock(layout.lock(f"{label}-{digest}"), PATIENCE_SECONDS),
            deleting(layout, PATIENCE_SECONDS),
        ):
            data = read_trusted(path, MAX_MANIFEST_SIZE)
            manifest = read_manifest(path, digest, trust.hmac)
            lost_digests = frozenset(_lost_digests(layout, manifest, damaged))
            removed_parts, kept_parts = split(manifest, lost_digests, parts)
            if not lost_digests:
                return Repair(kept=kept_parts)  # another process has put them back
            rest = parts.without(manifest, lost_digests)
            if rest is None:
                fault = CorruptEntry(path, f"its blob {min(lost_digests)} is lost, and nothing is left without it")
                quarantine(layout, fault, f"{label}-{digest}.manifest", lambda: _raise(fault))
                is_gone = not path.exists()
                return Repair(
                    removed_parts or kept_parts, (), "" if is_gone else "it cannot be moved to the quarantine"
                )
            if missing := " and ".join(f"`{variable}`" for variable in trust.missing_keys(data)):
                problem = f"it is signed; set {missing} to sign the rest of it, or remove it with `gearcache clear`"
                return Repair(removed_parts, kept_parts, problem)
            new_data = encode_manifest(rest)
            decode_manifest(new_data, path)  # check that the new manifest can be read
            write_atomic(path, trust.signed(new_data))
            return Repair(removed_parts, kept_parts)
    except (GearcacheError, TypeError, ValueError) as error:
        return Repair(problem=str(error))
    except OSError as error:
        return Repair(problem=f"`{error.filename}` cannot be changed: {error.strerror}")


def _lost_digests(layout: Layout, manifest: Manifest, damaged: Collection[str]) -> list[str]:
    """Return the blobs that are missing or damaged now; raises for an untrusted or unreadable one, which may be
    sound.
    """
    digests = []
    for digest, size in manifest.blobs.items():
        path = layout.blob(digest)
        try:
            is_odd = path.lstat().st_size != size
            if is_odd or digest in damaged:
                check_digest(path, digest)
        except (CorruptEntry, FileNotFoundError, NotADirectoryError):
            is_odd = True
        if is_odd:
            digests.append(digest)
    return digests


def _raise(fault: CorruptEntry) -> None:
    raise fault
