"""Names of objects in a tier: the same as the names of files in a cache, so that a copy of a cache is a tier.

    v<format>/blobs/<2 hex>/<sha256>
    v<format>/entries/<Class.method>/<key digest>/[<ranks>/]<sha256 of the manifest>-<family>.msgpack
    v<format>/leases/<key digest>-<digest of the work>      the only objects that change
    v<format>/probes/<random>

Manifests are named by their content, so that no host replaces a manifest of another one. The family is equal for the
entries of one method whose keys differ in the module alone. Names without it are read as well, and `manifest.msgpack`
of a copied cache.
"""

from __future__ import annotations

import re
from hashlib import sha256

from msgspec import Struct

from gearcache.cache.keys.key import FORMAT_VERSION
from gearcache.cache.layout import MANIFEST_NAME, is_digest, is_label, is_ranks_folder

TOP = f"v{FORMAT_VERSION}"
ENTRIES = f"{TOP}/entries/"
BLOBS = f"{TOP}/blobs/"
LEASES = f"{TOP}/leases/"
PROBES = f"{TOP}/probes/"
_END = ".msgpack"
_NAME = re.compile(rf"[0-9a-f]{{64}}(-[0-9a-f]{{16}})?{re.escape(_END)}")


def blob_name(digest: str) -> str:
    """Return the name of a blob."""
    return f"{BLOBS}{digest[:2]}/{digest}"


def lease_name(key_digest: str, work: str) -> str:
    """Return the name of the lease of some work for a key."""
    return f"{LEASES}{key_digest}-{sha256(work.encode()).hexdigest()[:16]}"


class EntryName(Struct, frozen=True):
    """An entry, by the parts of its folder name."""

    label: str
    digest: str
    ranks: str = ""

    @property
    def prefix(self) -> str:
        """Return the common prefix of the names of its manifests."""
        return f"{ENTRIES}{self.label}/{self.digest}/{f'{self.ranks}/' if self.ranks else ''}"

    @property
    def method_prefix(self) -> str:
        """Return the common prefix of the names of all manifests of its method."""
        return f"{ENTRIES}{self.label}/"

    def manifest(self, data: bytes, family: str) -> str:
        """Return the name of a manifest of it, see `gearcache.cache.keys.siblings.family_of`."""
        return f"{self.prefix}{sha256(data).hexdigest()}-{family}{_END}"

    def has(self, name: str) -> bool:
        """Return whether a name is that of a manifest of this entry with these ranks."""
        return parse_name(name) == self

    def sibling(self, name: str, family: str) -> EntryName | None:
        """Return the entry whose manifest has a name, if it is another one of this family and these ranks."""
        other = parse_name(name)
        if other is None or other == self or (other.label, other.ranks) != (self.label, self.ranks):
            return None
        return other if name.endswith(f"-{family}{_END}") else None


def parse_name(name: str) -> EntryName | None:
    """Return the entry whose manifest has a name; None for any other name; names come from outside."""
    rest = name.removeprefix(ENTRIES)
    parts = rest.split("/")
    if rest == name or len(parts) not in (3, 4):
        return None
    label, digest, ranks, file = parts[0], parts[1], parts[2] if len(parts) == 4 else "", parts[-1]
    if not is_label(label) or not is_digest(digest) or (ranks and not is_ranks_folder(ranks)):
        return None
    return EntryName(label, digest, ranks) if file == MANIFEST_NAME or _NAME.fullmatch(file) else None


def expected_digest(name: str) -> str | None:
    """Return the sha256 that the name of a manifest requires; None where it requires none."""
    file = name.rpartition("/")[2]
    return None if file == MANIFEST_NAME else file.removesuffix(_END).partition("-")[0]
