"""Bundles: entries and their blobs in one tar file, to be carried to another host.

The blobs come first, then the manifests that name them. Names inside the tar file are never used as paths: taking a
bundle computes paths from checked digests and labels, and accepts only regular files with known names.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, cast

from msgspec import Struct, field

from gearcache.cache.admin.joining import LOCK_SECONDS, Join, join_entry
from gearcache.cache.admin.packed.archive import MAX_MEMBERS, BoundedReads, add_file, pieces
from gearcache.cache.admin.packed.packing import Packed, packing
from gearcache.cache.admin.row import EntryRow, Identity
from gearcache.cache.blob_folder import prepare_folder
from gearcache.cache.files.atomic import open_atomic, write_pieces_atomic
from gearcache.cache.files.parent_folders import TRUSTED_VARIABLE, is_trusted_by_name
from gearcache.cache.files.trust import open_regular, others_wrote
from gearcache.cache.keys.key import FORMAT_VERSION
from gearcache.cache.layout import MANIFEST_NAME, Layout, is_digest
from gearcache.cache.locks.lock import key_lock
from gearcache.cache.manifest import MAX_MANIFEST_SIZE, Manifest, decode_manifest
from gearcache.cache.remote.trust import Trust
from gearcache.cache.signatures.trusted_keys import HMAC_NAME
from gearcache.cache.store import DiskStore
from gearcache.errors import BundleError, CacheError, CorruptEntry, UnsafePath, UnsignedEntry

HEADER_NAME = "gearcache-bundle.json"
_MAX_HEADER_SIZE = 4096


class TakenBundle(Struct):
    """What was taken, by name; `skipped` entries were present already. `size` is bytes of blobs.

    `failed` maps entries that could not be taken to the reason.
    """

    entries: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    blobs: int = 0
    size: int = 0


def write_bundle(layout: Layout, entries: Iterable[EntryRow], target: Path) -> Packed:
    """Write a bundle of entries, which stay in use meanwhile; every byte is verified while it is copied.

    Raises `CacheError` when an entry or a blob is missing, damaged or untrusted, or the target cannot be written. The
    target is then absent or unchanged.
    """
    with (
        packing(layout, entries) as packed,
        open_atomic(target) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        counts = {"entries": len(packed.manifests), "blobs": len(packed.sizes)}
        _add(tar, HEADER_NAME, json.dumps({"bundle": 1, "format": FORMAT_VERSION, **counts}).encode())
        for digest, size in packed.sizes.items():
            with packed.blob(digest) as blob:
                add_file(tar, f"blobs/{digest}", blob, size)
        for entry, data, _ in packed.manifests:
            _add(tar, "/".join(filter(None, ("entries", *entry.identity, MANIFEST_NAME))), data)
    return packed.summary()


def take_bundle(
    layout: Layout, source: Path, join: Join, *, trust: Trust | None = None, max_size: int | None = None
) -> TakenBundle:
    """Add the entries of a bundle to the cache; an entry that is already present loses nothing, and `join` adds what it
    lacks.

    Blobs are verified while they are written, manifests before. Raises `BundleError` for a file that is not a sound
    bundle of this format, that is larger than `max_size`, or, where `trust` has keys, for an entry that none of them
    has signed. Without keys, raises `UnsafePath` for a file that other users could have written. Entries taken before
    an error stay whole; blobs that no entry names are collected later. Raises other `CacheError`s when the cache cannot
    be written at all.
    """
    return _Taking(layout, source, trust or Trust(), max_size).run(join)


def bundle_manifests(source: Path) -> Iterator[tuple[Identity, Manifest]]:
    """Return the entries of a bundle, without taking anything; `BundleError` for a file that is not a sound bundle.

    Raises `UnsafePath` for a file that other users could have written. The blobs are skipped, not verified.
    """
    return _Taking(Layout(source.parent), source, Trust(), None).manifests()


class _Taking:
    def __init__(self, layout: Layout, source: Path, trust: Trust, max_size: int | None) -> None:
        self._layout = layout
        self._source = source
        self._trust = trust
        self._max_size = max_size
        self._summary = TakenBundle()
        self._blob_sizes: dict[str, int] = {}

    def run(self, join: Join) -> TakenBundle:
        store = DiskStore(self._layout)
        with self._open_tar() as tar, store.writing():
            members = self._members(tar)
            self._check_header(next(members, None))
            for name, size, file in members:
                folder, _, rest = name.partition("/")
                if folder == "blobs" and is_digest(rest):
                    self._take_blob(rest, size, file)
                elif folder == "entries" and size <= MAX_MANIFEST_SIZE:
                    self._take_entry(name, b"".join(pieces(file)), join)
                else:
                    raise self._wrong(f"it holds `{name}`, which is no part of a bundle")
        return self._summary

    def manifests(self) -> Iterator[tuple[Identity, Manifest]]:
        with self._open_tar() as tar:
            members = self._members(tar)
            self._check_header(next(members, None))
            for name, size, file in members:
                if name.startswith("entries/") and size <= MAX_MANIFEST_SIZE:
                    try:
                        manifest = decode_manifest(b"".join(pieces(file)), Path(name))
                    except CorruptEntry as error:
                        raise self._wrong(str(error)) from error
                    yield self._identity(name, manifest), manifest

    @contextmanager
    def _open_tar(self) -> Iterator[tarfile.TarFile]:
        try:
            with (
                os.fdopen(self._open(), "rb") as file,
                tarfile.open(fileobj=cast(BinaryIO, BoundedReads(file)), mode="r:") as tar,
            ):
                yield tar
        except OSError as error:
            raise self._wrong(error.strerror or str(error)) from error
        except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as error:
            raise self._wrong(f"it is damaged, or no bundle: {error}") from error

    def _open(self) -> int:
        """Open the bundle as a descriptor. It holds code, so without signatures only this user and root may write
        it.
        """
        descriptor = open_regular(self._source, os.O_RDONLY, follow=True)
        reason = others_wrote(self._source, os.fstat(descriptor)) if not self._trust.asks else ""
        if not reason or is_trusted_by_name(self._source.absolute().parent):
            return descriptor
        os.close(descriptor)
        remedy = f"if you trust what it holds, take a copy of your own, or name its folder in `{TRUSTED_VARIABLE}`"
        raise UnsafePath(self._source, reason, f"{remedy}; entries signed by a key that this host trusts need neither")

    def _members(self, tar: tarfile.TarFile) -> Iterator[tuple[str, int, BinaryIO]]:
        total = 0
        names: set[str] = set()
        for member in tar:
            name = member.name
            if not member.isreg() or member.issparse() or member.size < 0:
                raise self._wrong(f"`{name}` is not a regular file")
            if name in names or len(names) >= MAX_MEMBERS:
                raise self._wrong(f"it holds `{name}` twice, or more than {MAX_MEMBERS} files")
            names.add(name)
            total += member.size
            if self._max_size is not None and total > self._max_size:
                raise self._wrong(f"it holds more than {self._max_size} bytes")
            yield name, member.size, cast(BinaryIO, tar.extractfile(member))

    def _check_header(self, first_member: tuple[str, int, BinaryIO] | None) -> None:
        if first_member is None or first_member[0] != HEADER_NAME or first_member[1] > _MAX_HEADER_SIZE:
            raise self._wrong(f"it does not begin with `{HEADER_NAME}`")
        header = json.loads(first_member[2].read(_MAX_HEADER_SIZE))
        if not isinstance(header, dict) or header.get("bundle") != 1:
            raise self._wrong("it is a bundle of another kind")
        if header.get("format") != FORMAT_VERSION:
            raise self._wrong(f"it holds entries of format {header.get('format')}, this is format {FORMAT_VERSION}")

    def _take_blob(self, digest: str, size: int, file: BinaryIO) -> None:
        path = self._layout.blob(digest)
        prepare_folder(self._layout, path.parent)
        self._blob_sizes[digest] = size
        write_pieces_atomic(path, self._verified_pieces(digest, file))
        self._summary.blobs += 1
        self._summary.size += size

    def _take_entry(self, name: str, data: bytes, join: Join) -> None:
        try:
            manifest = decode_manifest(data, Path(name))
        except CorruptEntry as error:
            raise self._wrong(str(error)) from error
        identity = self._identity(name, manifest)
        if self._trust.asks:
            data = self._signed(name, data)
        for digest, size in manifest.blobs.items():
            if self._blob_sizes.get(digest) != size:
                raise self._wrong(f"`{name}` needs the blob {digest} of {size} bytes, which it does not hold")
        try:
            with key_lock(self._layout.lock(manifest.name), LOCK_SECONDS):
                _, is_new = join_entry(self._layout, identity, [(manifest, data)], self._trust, join)
        except CacheError as error:
            self._summary.failed[manifest.name] = str(error)
            return
        (self._summary.entries if is_new else self._summary.skipped).append(manifest.name)

    def _signed(self, name: str, data: bytes) -> bytes:
        """Return a manifest that a trusted key has signed, as this host stores it: lookups ask for its own HMAC."""
        try:
            signed_by = self._trust.check(data, name)
        except UnsignedEntry as error:
            raise self._wrong(f"`{name}` is refused: {error.reason}") from error
        return data if signed_by == HMAC_NAME or self._trust.hmac is None else self._trust.signed(data)

    def _identity(self, name: str, manifest: Manifest) -> Identity:
        """Return label, digest and ranks, on which the manifest and its name inside the bundle must agree."""
        parts = name.split("/")
        ranks = parts[3] if len(parts) == 5 else ""
        label = manifest.name.removesuffix(f"-{manifest.key_digest}")
        expected = "/".join(filter(None, ("entries", label, manifest.key_digest, ranks, MANIFEST_NAME)))
        try:
            self._layout.entry(label, manifest.key_digest, ranks)
        except ValueError as error:
            raise self._wrong(str(error)) from error
        if name != expected or manifest.name != f"{label}-{manifest.key_digest}":
            raise self._wrong(f"`{name}` holds the entry {manifest.name}")
        return label, manifest.key_digest, ranks

    def _verified_pieces(self, digest: str, file: BinaryIO) -> Iterator[bytes]:
        state = sha256()
        for piece in pieces(file):
            state.update(piece)
            yield piece
        if state.hexdigest() != digest:
            raise self._wrong(f"the blob {digest} has the sha256 {state.hexdigest()}")

    def _wrong(self, reason: str) -> BundleError:
        return BundleError(self._source, reason)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    add_file(tar, name, io.BytesIO(data), len(data))
