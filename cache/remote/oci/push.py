"""Storing an image in a registry; what it has already is not sent again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gearcache.cache.admin.packing import Sign, as_it_is
from gearcache.cache.admin.row import EntryRow
from gearcache.cache.layout import Layout
from gearcache.cache.remote.oci.image_folder import StoredImage, read_image, write_image
from gearcache.cache.remote.oci.reference import Reference, parse_reference
from gearcache.cache.remote.oci.registry import Registry
from gearcache.cache.remote.oci.session import with_registry
from gearcache.cache.remote.protocol import Deadline, RemoteError

#: Seconds to connect: a user waits for it, no call does.
_CONNECT_SECONDS = 10.0


@dataclass
class PushedImage:
    """What was pushed: where, digest, names of entries, blobs of entries and their bytes, and bytes that were sent."""

    reference: str
    digest: str
    sent: int
    entries: list[str] = field(default_factory=list)
    blobs: int = 0
    size: int = 0


def push_image(
    layout: Layout,
    entries: Iterable[EntryRow],
    url: str,
    deadline: Deadline,
    *,
    insecure: bool | None = None,
    sign: Sign = as_it_is,
) -> PushedImage:
    """Store entries as an image under a tag, `oci://registry/repository:tag`, which then names it.

    `sign` may sign manifests, and what it raises comes out.

    Every byte is verified on the way. `ValueError` for what is no such tag; `RemoteError` where the registry does not
    take it: the tag is as it was then; other `CacheError`s as for `write_image`.
    """
    reference = _tagged(url, insecure)
    with tempfile.TemporaryDirectory(prefix="gearcache-image-") as folder:
        made = write_image(layout, entries, Path(folder), sign)
        sent = _send(read_image(Path(folder)), reference, deadline)
    return PushedImage(reference.label, made.digest, sent, made.entries, made.blobs, made.size)


def push_folder(folder: Path, url: str, deadline: Deadline, *, insecure: bool | None = None) -> PushedImage:
    """Store the image of a folder that `write_image` wrote; errors as for `push_image`."""
    reference = _tagged(url, insecure)
    image = read_image(folder)
    return PushedImage(reference.label, image.manifest.digest, _send(image, reference, deadline))


def _tagged(url: str, insecure: bool | None) -> Reference:
    reference = parse_reference(url, insecure)
    if reference.is_digest:
        raise ValueError(f"`{url}` names an image by its digest; one is pushed under a tag")
    return reference


def _send(image: StoredImage, reference: Reference, deadline: Deadline) -> int:
    def send(registry: Registry) -> int:
        # The manifest last: it alone makes the image exist.
        for part in (image.layer, image.config):
            if not registry.has_blob(part):
                with image.open(part) as file:
                    registry.put_blob(part, file)
        with image.open(image.manifest) as file:
            data = file.read()
        stored = registry.manifest(reference.name)
        if stored != data:
            registry.put_manifest(reference.name, data, image.manifest.media_type)
            # By its digest: another host may have moved the tag meanwhile.
            if registry.manifest(image.manifest.digest) != data:
                raise RemoteError(reference.label, "it does not give the image that it took")
        return registry.sent

    return with_registry(reference, deadline, send, actions="pull,push", connect_seconds=_CONNECT_SECONDS)
