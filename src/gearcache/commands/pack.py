"""`gearcache pack`."""

from __future__ import annotations

from pathlib import Path

import click

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.remote.oci.image_folder import write_image
from gearcache.cache.remote.oci.layer import ROOT
from gearcache.commands.common import common_options, count, environment_trust, layout_at, note_faults, print_json
from gearcache.commands.named import entry_argument, find_all
from gearcache.commands.printing import tell


@click.command("pack")
@click.option(
    "--oci",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the image, in the OCI image layout; made where it is not there.",
)
@entry_argument("entries", nargs=-1)
@common_options
def command(folder: Path, entries: tuple[str, ...], cache_dir: Path | None, as_json: bool) -> None:
    """Write entries (all of them, or those named) as an image of containers, without docker and without a network.

    A container that mounts the image, or is made of it, has a cache at /var/cache/gearcache. The same entries give the
    same digest. Every byte is verified on the way. What nobody has signed is signed with the keys of this host, if any.
    """
    catalog = Catalog(layout_at(cache_dir))
    named = {entry.identity: entry for name in entries for entry in find_all(catalog, name)}
    chosen = list(named.values()) or catalog.entries()
    if not chosen:
        note_faults(catalog)
        raise click.UsageError(f"there is nothing to pack in `{catalog.layout.root}`")
    made = write_image(catalog.layout, chosen, folder, environment_trust().signed)
    if as_json:
        fields = {"entries": made.entries, "blobs": made.blobs, "size": made.size}
        print_json("pack", {"folder": str(folder), "digest": made.digest, "root": f"/{ROOT}", **fields})
    else:
        held = f"{count(len(made.entries), 'entry', 'entries')} with {count(made.blobs, 'blob')}"
        tell(f"packed {held} into `{folder}`", f"{made.digest}")
    note_faults(catalog)
