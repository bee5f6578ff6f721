"""`gearcache unbundle`."""

from __future__ import annotations

from pathlib import Path

import click

from gearcache.cache.admin.bundle import take_bundle
from gearcache.commands.bundle import bundle_plain, bundle_text
from gearcache.commands.common import (
    Exit,
    Size,
    common_options,
    count,
    environment_trust,
    layout_at,
    note,
    print_json,
    stop,
)
from gearcache.commands.printing import tell, warn
from gearcache.readable.joined import joined


@click.command("unbundle")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--max-size", type=Size(), help="Refuse a bundle that holds more than so many bytes, as `10GB`.")
@common_options
def command(file: Path, max_size: int | None, cache_dir: Path | None, as_json: bool) -> None:
    """Take over the entries of a bundle that `gearcache bundle` wrote.

    A bundle holds code that your process will run: take only what you trust. Each digest is verified, which tells
    damage but not who wrote it: a file that other users own or can write is refused. With $GEARCACHE_TRUSTED_KEYS or
    $GEARCACHE_HMAC_KEY_FILE set it may be anybody's, and entries that none of these keys has signed are refused. Of
    an entry that is present nothing is lost; what it lacks is added.
    """
    layout = layout_at(cache_dir, may_be_new=True)
    summary = take_bundle(layout, file, joined, trust=environment_trust(), max_size=max_size)
    if as_json:
        root = str(layout.root)
        print_json("unbundle", {"file": str(file), "root": root, **bundle_plain(summary), "failed": summary.failed})
    else:
        tell(f"took {bundle_text(summary)} into `{layout.root}`")
        if summary.skipped:
            note(f"{count(len(summary.skipped), 'entry', 'entries')} of the bundle were present already")
    for name, reason in summary.failed.items():
        warn(f"{name} was not taken: {reason}")
    if summary.failed:
        stop(Exit.WRONG)
