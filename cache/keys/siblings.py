"""Find the siblings of an entry: entries whose key differs only in the module, in parts that may not matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256

from gearcache.cache.files.trust import read_trusted
from gearcache.cache.keys.key import CacheKey, Plain, encode, first_difference
from gearcache.cache.keys.nearest import newest_first
from gearcache.cache.layout import Layout
from gearcache.cache.manifest import MAX_MANIFEST_SIZE, decode_manifest
from gearcache.errors import CacheError

MODULE = "module"
#: How many entries of a method are read at most, the newest first: each costs about as much as a load of it.
MAX_READ = 64


def sibling_keys(layout: Layout, key: CacheKey) -> Iterator[CacheKey]:
    """Yield the keys of the stored entries of a method and of these ranks that differ from a key only in the module.

    Only a hint: whoever uses an entry looks it up by its key, which verifies it. Faulty entries are skipped.
    """
    components = key.lowered()
    for path in newest_first(layout, key, MAX_READ):
        with suppress(CacheError, OSError, ValueError):
            _, digest, ranks = layout.identify(path)
            if digest == key.digest or ranks != layout.ranks:
                continue
            stored_components = decode_manifest(read_trusted(path, MAX_MANIFEST_SIZE), path).components
            if are_siblings(components, stored_components):
                yield CacheKey.of_stored(key.label, digest, stored_components)


def are_siblings(components: Mapping[str, Plain], others: Mapping[str, Plain]) -> bool:
    """Whether the lowered components of two keys differ in nothing but the module."""
    return first_difference(_without_module(components), _without_module(others)) is None


def family_of(components: Mapping[str, Plain]) -> str:
    """Return a name that siblings of one method share, from the lowered components of a key: 16 hexadecimal digits."""
    parts = [encode(name, value) for name, value in sorted(_without_module(components).items())]
    return sha256(b"".join(parts)).hexdigest()[:16]


def _without_module(components: Mapping[str, Plain]) -> dict[str, Plain]:
    return {name: value for name, value in components.items() if name != MODULE}
