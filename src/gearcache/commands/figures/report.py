"""`gearcache report`: writes an HTML file about the cache."""

from __future__ import annotations

import os
from pathlib import Path

import click

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.files.atomic import regular_target, write_atomic
from gearcache.collection import paused_collection
from gearcache.commands.common import common_options, layout_at, note_other_formats, print_json, size_text, tell, warn
from gearcache.errors import PublishError
from gearcache.reporting.document import report_document
from gearcache.reporting.page import page

_DEFAULT = Path("cache.html")
_STDOUT = Path("-")
_FAULTS = 20


@click.command("report")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="File to write, cache.html by default, `-` for stdout; with --json nothing is written without it.",
)
@click.option(
    "--trace",
    "traces",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="File that a process with GEARCACHE_TRACE has written: its calls, and why they missed. Repeatable.",
)
@click.option(
    "--details",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    help="Read the gears and variants of so many entries, the last used first.",
)
@common_options
def command(
    output: Path | None,
    traces: tuple[Path, ...],
    details: int,
    cache_dir: Path | None,
    as_json: bool,
) -> None:
    """Write one HTML file that shows the cache: what it saved, each method, why calls missed.

    The file needs no network and no other file, and opens from disk. `--json` prints the same data.
    """
    if as_json and output == _STDOUT:
        raise click.UsageError("--output - and --json would both be stdout")
    layout = layout_at(cache_dir)
    with paused_collection():
        document = report_document(Catalog(layout), os.environ, traces=traces, details=details)
    if output is not None or not as_json:
        try:
            text = page(document)
        except ImportError as error:
            raise click.UsageError(str(error)) from error
        _write(output or _DEFAULT, text, as_json)
    if as_json:
        print_json("report", document)
    for fault in document["faults"][:_FAULTS]:
        warn(fault)
    if len(document["faults"]) > _FAULTS:
        warn(f"{len(document['faults']) - _FAULTS} more could not be read; --json has them all")
    note_other_formats(layout)


def _write(target: Path, text: str, as_json: bool) -> None:
    if target == _STDOUT:
        click.echo(text, nl=False)
        return
    try:
        write_atomic(regular_target(target), text.encode())
    except PublishError as error:
        raise click.UsageError(f"--output: {error}") from error
    if not as_json:
        tell(f"wrote `{target}`, {size_text(len(text.encode()))}")
