"""Entries as an image of containers in a registry, for `gearcache push`."""

from __future__ import annotations

from collections.abc import Sequence

from gearcache.cache.admin.row import EntryRow
from gearcache.cache.layout import Layout
from gearcache.cache.remote.names import EntryName
from gearcache.cache.remote.persistence import SECONDS, persistently
from gearcache.cache.remote.protocol import Deadline, RemoteError
from gearcache.cache.remote.push import UNSIGNED, Pushed, is_signed_there, name_of
from gearcache.cache.remote.trust import Trust
from gearcache.cache.remote.urls import TierURL
from gearcache.errors import CacheError

_BYTES_PER_SECOND = 1 << 20


def push_image(layout: Layout, entries: Sequence[EntryRow], url: TierURL, trust: Trust) -> Pushed:
    """Store entries as one image under a tag, which then names it; never raises for the registry.

    They are signed as this host signs. Where nobody signed one of them hosts would refuse it: nothing is sent then.
    """
    from gearcache.cache.remote.oci.push import push_image as push

    outcome = Pushed(url.label)
    insecure = dict(url.options).get("insecure")
    seconds = SECONDS + sum(entry.size for entry in entries) / _BYTES_PER_SECOND
    chosen = [EntryName(*entry.identity) for entry in entries]
    names = [name_of(entry) for entry in chosen]
    if not url.unsigned:
        refused = {name_of(entry) for entry in chosen if not is_signed_there(layout, entry, trust)}
        if refused:
            others = f"not sent, as the image is one whole, and nobody signed {len(refused)} of its entries"
            outcome.failed = {name: UNSIGNED if name in refused else others for name in names}
            return outcome
    try:
        made = persistently(
            lambda: push(
                layout,
                entries,
                url.url,
                Deadline.after(seconds),
                insecure=None if insecure is None else insecure == "1",
                sign=trust.signed,
            )
        )
    except CacheError as error:
        problem = error.problem if isinstance(error, RemoteError) else str(error)
        outcome.failed = dict.fromkeys(names, problem)
    else:
        if made.sent:
            outcome.sent, outcome.blobs, outcome.bytes = names, made.blobs, made.sent
        else:
            outcome.had = names
    return outcome
