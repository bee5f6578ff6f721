"""What a lookup answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gearcache.cache.key import Difference
from gearcache.cache.manifest import Manifest


class MissReason(Enum):
    """Why a lookup found nothing usable."""

    ABSENT = "absent"
    CORRUPT = "corrupt"
    UNREADABLE = "unreadable"
    OTHER_VERSION = "other version"
    UNSIGNED = "unsigned"


@dataclass(frozen=True)
class Hit:
    """A stored entry; its blobs are not verified yet."""

    manifest: Manifest


@dataclass(frozen=True)
class Miss:
    """No entry, and why; `difference` is to the nearest stored entry, where there is one."""

    reason: MissReason
    detail: str
    difference: Difference | None = None
