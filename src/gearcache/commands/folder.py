"""`gearcache dir`."""

from __future__ import annotations

from pathlib import Path

import click

from gearcache.commands.common import common_options, layout_at, print_json
from gearcache.commands.printing import echo


@click.command("dir")
@common_options
def command(cache_dir: Path | None, as_json: bool) -> None:
    """Print the folder of the cache, whether it exists or not."""
    root = layout_at(cache_dir, may_be_new=True).root
    if as_json:
        print_json("dir", {"root": str(root), "exists": root.exists()})
    else:
        echo(str(root))
