"""The results of a lookup: a hit, or a miss with its reason."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from gearcache.cache.keys.key import Difference
from gearcache.cache.manifest import Manifest


class MissReason(Enum):
    """Why a lookup found nothing usable."""

    ABSENT = "absent"
    CORRUPT = "corrupt"
    UNREADABLE = "unreadable"
    OTHER_VERSION = "other version"
    UNSIGNED = "unsigned"


class Hit(Struct, frozen=True):
    """A stored entry; its blobs are not verified yet."""

    manifest: Manifest


class Miss(Struct, frozen=True):
    """No entry, and why; `difference` compares with the nearest stored entry, if any."""

    reason: MissReason
    detail: str
    difference: Difference | None = None
