"""`gearcache prune`: removes the least recently used entries until the cache is within its limits."""

from __future__ import annotations

from pathlib import Path

import click

from gearcache.cache.admin.catalog import Catalog
from gearcache.commands.common import AGE, SIZE, common_options, dry_run_option, layout_at
from gearcache.commands.entries.clear import report_removal


@click.command("prune")
@click.option("--max-size", type=SIZE, help="Keep the last used entries up to so many bytes, as `10GB`.")
@click.option("--older-than", type=AGE, help="Remove entries that nobody used for so long, as `30d`.")
@click.option("--remote", "remotes", multiple=True, metavar="URL", help="Prune this tier, not the cache. Repeatable.")
@click.option(
    "--grace",
    type=AGE,
    default="60s",
    show_default=True,
    help="With --remote: wait so long for uploads that are under way before blobs that no entry names go.",
)
@dry_run_option
@common_options
def command(
    max_size: int | None,
    older_than: float | None,
    remotes: tuple[str, ...],
    grace: float,
    dry_run: bool,
    cache_dir: Path | None,
    as_json: bool,
) -> None:
    """Remove the least recently used entries until the cache is within its limits.

    Blobs that entries share count once; the quarantine counts too, and goes first. An entry that a live process has
    loaded stays: where the limit cannot be met for that reason, the exit code is 4. What dead writers left is collected
    as well.

    With `--remote` a tier is pruned: manifests that were made longer ago than `--older-than`, those whose gears another
    manifest of the same entry has as well, and blobs that no manifest names.
    """
    if remotes:
        if max_size is not None:
            raise click.UsageError("--remote takes --older-than, not --max-size: nobody knows what hosts use")
        from gearcache.commands.tiers.prune_remote import prune_remote

        layout = layout_at(cache_dir, may_be_new=True)
        prune_remote(layout, remotes, older_than, grace, dry_run=dry_run, as_json=as_json)
        return
    if max_size is None and older_than is None:
        raise click.UsageError("give a limit: --max-size, --older-than or both")
    catalog = Catalog(layout_at(cache_dir))
    outcome = catalog.prune(max_size=max_size, max_age=older_than, dry_run=dry_run)
    outcome.add(catalog.collect(dry_run=dry_run))
    report_removal("prune", outcome, catalog, dry_run=dry_run, as_json=as_json)
