"""`gearcache pack`: writes entries as an image, a folder or one file for other hosts."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec.structs import asdict

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.packed.baked_folder import write_folder
from gearcache.cache.admin.packed.bundle import write_bundle
from gearcache.cache.admin.packed.image import ROOT, write_image
from gearcache.commands.common import (
    Exit,
    common_options,
    count,
    environment_trust,
    layout_at,
    note_faults,
    print_json,
    stop,
)
from gearcache.commands.entries.entry_names import entry_argument, find_all
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

    Exit code 1 when an entry of the cache could not be read; the others are written.

    Neither docker nor a network is needed. Every byte is verified on the way. A host uses an entry where its key fits:
    the same torch and Python, and for compiled code the same thread count, and the same instruction sets, or a CPU that
    has its target.

    A container that mounts the image, or is made of it, has a cache at /var/cache/gearcache. The same entries give the
    same digest. Unsigned entries are signed there with the signing key of this host, if any. A cache is for the user
    who made it alone; in an image, and in what --folder writes, any user may read it.
    """
    if sum(target is not None for target in (image, folder, file)) != 1:
        raise click.UsageError("name one of --oci DIR, --folder DIR and --file FILE")
    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise click.UsageError(f"`{folder}` is not empty; name a new folder")
    catalog = Catalog(layout_at(cache_dir))
    rows = find_all(catalog, entries) or catalog.entries()
    unreadable = [] if entries else list(map(str, catalog.faults))
    if not rows:
        note_faults(catalog)
        raise click.UsageError(f"there is nothing to pack in `{catalog.layout.root}`")
    root = ""
    if image is not None:
        packed = write_image(catalog.layout, rows, image, environment_trust().own_signed)
        root = f"/{ROOT}"
    elif folder is not None:
        packed = write_folder(catalog.layout, rows, folder, environment_trust().own_signed)
        root = str(folder.absolute())
    else:
        assert file is not None
        packed = write_bundle(catalog.layout, rows, file)
    target = image or folder or file
    if as_json:
        print_json("pack", {"target": str(target), "root": root, **asdict(packed), "unreadable": unreadable})
    else:
        contents = f"{count(len(packed.entries), 'entry', 'entries')} with {count(packed.blobs, 'blob')}"
        tell(f"packed {contents} into `{target}`", *filter(None, [packed.digest]))
    note_faults(catalog)
    if unreadable:
        stop(Exit.WRONG)
