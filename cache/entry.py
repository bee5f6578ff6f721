"""What lists, limits and totals need to know of an entry, without its payload."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from gearcache.cache.key import Plain
from gearcache.cache.manifest import Manifest

_BLOB = struct.Struct(">32sQ")


class Entry(NamedTuple):
    """One entry. Times are seconds since 1970, sizes bytes; `blobs` is for `Entry.blob_sizes`.

    `gears`, `variants`, `compile_seconds` and `torch` are what the manifest's producer says, as far as it does.
    """

    label: str
    digest: str
    scope: str
    size: int
    manifest_size: int
    gears: Sequence[str]
    variants: int
    compile_seconds: float
    torch: str
    created: float
    blobs: bytes
    last_use: float = 0.0
    hits: int = 0

    @property
    def name(self) -> str:
        """`<Class.method>-<key digest>`, as `CacheKey.name`."""
        return f"{self.label}-{self.digest}"

    @property
    def identity(self) -> tuple[str, str, str]:
        """Label, key digest and rank scope."""
        return self.label, self.digest, self.scope

    def blob_sizes(self) -> dict[str, int]:
        """The sizes of the blobs by their sha256."""
        return {digest.hex(): size for digest, size in _BLOB.iter_unpack(self.blobs)}


def entry_of(manifest: Manifest, identity: tuple[str, str, str], manifest_size: int) -> Entry:
    """The entry of a manifest; its use is not known yet."""
    producer = manifest.producer
    gears = producer.get("gears")
    return Entry(
        *identity,
        size=manifest_size + sum(manifest.blobs.values()),
        manifest_size=manifest_size,
        gears=tuple(map(str, gears)) if isinstance(gears, (list, tuple)) else (),
        variants=int(_number(producer.get("variants"))),
        compile_seconds=_number(producer.get("compile_seconds")),
        torch=str(producer.get("torch", "")),
        created=manifest.created,
        blobs=b"".join(_BLOB.pack(bytes.fromhex(digest), size) for digest, size in manifest.blobs.items()),
        last_use=manifest.created,
    )


def total_size(entries: Sequence[Entry]) -> int:
    """Bytes on disk; a blob that several entries share counts once."""
    blobs: dict[bytes, int] = {}
    for entry in entries:
        blobs.update(_BLOB.iter_unpack(entry.blobs))
    return sum(entry.manifest_size for entry in entries) + sum(blobs.values())


def _number(value: Plain) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
