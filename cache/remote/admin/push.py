"""Push entries to a tier in the foreground."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from gearcache.cache.files.trust import read_trusted
from gearcache.cache.layout import MANIFEST_NAME, Layout
from gearcache.cache.manifest import MAX_MANIFEST_SIZE, Manifest, is_signed
from gearcache.cache.remote.admin.holdings import MOST_FAULTS
from gearcache.cache.remote.names import EntryName
from gearcache.cache.remote.tier import Tier
from gearcache.cache.remote.trust import Trust
from gearcache.cache.remote.upload import Uploaded, upload_entry
from gearcache.errors import CacheError, RemoteError

#: Why an entry is not sent to a tier whose hosts would refuse it.
UNSIGNED = (
    "nobody signed it, so hosts would refuse it: set `GEARCACHE_SIGNING_KEY_FILE`, or write `?unsigned=1` behind the "
    "URL if all who can write there may run code on the hosts"
)


class Pushed(Struct):
    """Results at one tier by entry name; `failed` says why."""

    tier: str
    sent: list[str] = field(default_factory=list)
    had: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    blobs: int = 0
    bytes: int = 0


def push_entries(
    tier: Tier,
    layout: Layout,
    entries: Sequence[EntryName],
    trust: Trust,
    covers: Callable[[Sequence[Manifest], Manifest], bool],
    done: Callable[[], object] = lambda: None,
) -> Pushed:
    """Send the missing parts of some entries to a tier; an entry that cannot be sent is reported, and the others go on.

    An unsigned entry is not sent where hosts would refuse it. `done` is called after each entry.
    """
    outcome = Pushed(tier.label)
    faults = 0
    for entry in entries:
        name = name_of(entry)
        if faults >= MOST_FAULTS:
            outcome.failed[name] = "not tried, as the tier took none of those before"
            done()
            continue
        if not tier.url.unsigned and not is_signed_there(layout, entry, trust):
            outcome.failed[name] = UNSIGNED
            done()
            continue
        try:
            upload = upload_entry(tier, layout, entry, trust, covers)
        except CacheError as error:
            outcome.failed[name] = error.problem if isinstance(error, RemoteError) else str(error)
            faults = faults + 1 if isinstance(error, RemoteError) else 0
        else:
            faults = 0
            _record(outcome, name, upload)
        done()
    return outcome


def name_of(entry: EntryName) -> str:
    """Return the name of an entry for people: method, key and ranks."""
    return f"{entry.label}-{entry.digest}{f'/{entry.ranks}' if entry.ranks else ''}"


def _record(outcome: Pushed, name: str, upload: Uploaded) -> None:
    (outcome.sent if upload.manifest else outcome.had).append(name)
    outcome.blobs += upload.blobs
    outcome.bytes += upload.bytes


def is_signed_there(layout: Layout, entry: EntryName, trust: Trust) -> bool:
    """Return whether an entry will carry a signature in the tier; not whether hosts trust that signature."""
    if trust.signs:
        return True
    try:
        data = read_trusted(layout.entry(entry.label, entry.digest, entry.ranks) / MANIFEST_NAME, MAX_MANIFEST_SIZE)
        return is_signed(data)
    except (OSError, CacheError, struct.error):
        return True  # the upload reports the fault
