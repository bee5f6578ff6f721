"""`gearcache pack`: writes entries as an image, a folder or one file for other hosts."""

from __future__ import annotations

from pathlib import Path

import click

from gearcache.cache.admin.baked_folder import Baked, write_folder
from gearcache.cache.admin.bundle import BundleSummary, write_bundle
from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.image.image_folder import ImageSummary, write_image
from gearcache.cache.admin.image.layer import ROOT
from gearcache.commands.common import common_options, count, environment_trust, layout_at, note_faults, print_json
from gearcache.commands.entry_names import entry_argument, find_all
from gearcache.commands.output.printing import tell

_PATH = click.Path(file_okay=False, path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("pack")
@click.option(
    "--oci", "image", type=_PATH, help="Folder of the image, in the OCI image layout; made where it is not there."
)
@click.option("--folder", "folder", type=_PATH, help="New folder for the cache itself, to be copied by a Dockerfile.")
@click.option("--file", "file", type=_FILE, help="One file, a bundle, for `gearcache pull --file` on another host.")
@entry_argument("entries", nargs=-1)
@common_options
def command(
    image: Path | None,
    folder: Path | None,
    file: Path | None,
    entries: tuple[str, ...],
    cache_dir: Path | None,
    as_json: bool,
) -> None:
    """Write entries (all of them, or those named) for other hosts: as an image of containers, a folder or one file.

    Neither docker nor a network is needed. Every byte is verified on the way. A host uses an entry where its key fits:
    the same torch and Python, and for compiled code the same thread count, and the same instruction sets, or a CPU that
    has its target.

    A container that mounts the image, or is made of it, has a cache at /var/cache/gearcache. The same entries give the
    same digest. Unsigned entries are signed there with the keys of this host, if any. A cache is for the user who made
    it alone; in an image, and in what --folder writes, any user may read it.
    """
    if sum(target is not None for target in (image, folder, file)) != 1:
        raise click.UsageError("name one of --oci DIR, --folder DIR and --file FILE")
    catalog = Catalog(layout_at(cache_dir))
    named = {entry.identity: entry for name in entries for entry in find_all(catalog, name)}
    chosen = list(named.values()) or catalog.entries()
    if not chosen:
        note_faults(catalog)
        raise click.UsageError(f"there is nothing to pack in `{catalog.layout.root}`")
    digest = root = ""
    made: ImageSummary | Baked | BundleSummary
    if image is not None:
        made = written = write_image(catalog.layout, chosen, image, environment_trust().signed)
        root, digest = f"/{ROOT}", written.digest
    elif folder is not None:
        made = write_folder(catalog.layout, chosen, folder, environment_trust().signed)
        root = str(folder.absolute())
    else:
        assert file is not None
        made = write_bundle(catalog.layout, chosen, file)
    target = image or folder or file
    if as_json:
        fields = {"entries": made.entries, "blobs": made.blobs, "size": made.size}
        print_json("pack", {"target": str(target), "digest": digest, "root": root, **fields})
    else:
        held = f"{count(len(made.entries), 'entry', 'entries')} with {count(made.blobs, 'blob')}"
        tell(f"packed {held} into `{target}`", *filter(None, [digest]))
    note_faults(catalog)
