"""The command line: prints, decides nothing; data on stdout, the rest on stderr."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from gearcache.cache.layout import Layout, resolve_root
from gearcache.cache.manifest import MAX_MANIFEST_SIZE, Manifest, decode_manifest
from gearcache.cache.trust import read_trusted
from gearcache.errors import CacheError


@dataclass(frozen=True)
class Row:
    """One readable manifest and where it lies; `scope` is its rank scope, or empty."""

    manifest: Manifest
    scope: str


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gearcache", prog_name="gearcache", message="%(prog)s %(version)s")
def main() -> None:
    """Look into a cache of compiled PyTorch methods."""


@main.command("list")
@click.option(
    "--cache-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Root of the cache; else $TORCHAIR_CACHE_HOME, else ./.torchair_cache.",
)
def list_entries(cache_dir: Path | None) -> None:
    """List the entries of a cache."""
    layout = Layout(resolve_root(cache_dir, os.environ))
    rows = sorted(_readable(layout), key=lambda row: (row.manifest.name, row.scope))
    if not rows:
        click.echo(f"no entries in `{layout.root}`", err=True)
        return
    table = Table(box=None, pad_edge=False)
    for title in ("Method", "Key", "Ranks", "Blobs", "Size", "Created"):
        table.add_column(title, no_wrap=True, justify="right" if title in ("Blobs", "Size") else "left")
    for row in rows:
        label, _, digest = row.manifest.name.rpartition("-")
        table.add_row(
            label,
            digest[:12],
            row.scope or "-",
            str(len(row.manifest.blobs)),
            decimal(sum(row.manifest.blobs.values())),
            datetime.fromtimestamp(row.manifest.created).isoformat(" ", "seconds"),
        )
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = 1000  # a file or a pipe has no width to cut lines to
    console.print(table)


def _readable(layout: Layout) -> Iterator[Row]:
    """Yield the entries that can be read, and name the others on stderr; changes nothing."""
    for path in layout.entries():
        try:
            manifest = decode_manifest(read_trusted(path, MAX_MANIFEST_SIZE), path)
        except (CacheError, OSError) as error:
            click.echo(f"warning: {error}", err=True)
        else:
            yield Row(manifest, layout.identify(path)[2])
