"""`gearcache prune --remote`: removes outdated manifests and unused blobs from tiers."""

from __future__ import annotations

from msgspec.structs import asdict

from gearcache.cache.layout import Layout
from gearcache.cache.remote.admin.prune import RemotePrune, RemotePruned
from gearcache.commands.common import Exit, count, note, print_json, size_text, stop, tell, warn
from gearcache.commands.output.verbosity import is_verbose
from gearcache.commands.tiers.chosen import tiers_at
from gearcache.errors import RemoteError


def prune_remote(
    layout: Layout, urls: tuple[str, ...], max_age: float | None, grace: float, *, dry_run: bool, as_json: bool
) -> None:
    """Prune tiers, one after the other, and end with the matching exit code."""
    tiers = tiers_at(layout, urls, "--remote", to_write=True)
    outcomes: list[RemotePruned] = []
    problems: dict[str, str] = {}
    for tier in tiers:
        pruning = RemotePrune(tier)
        try:
            pruning.run(max_age, grace, dry_run=dry_run)
        except RemoteError as error:
            problems[tier.label] = error.problem
        outcomes.append(pruning.outcome)
    if as_json:
        rows = [{**asdict(outcome), "problem": problems.get(outcome.tier, "")} for outcome in outcomes]
        print_json("prune", {"tiers": rows, "dry_run": dry_run})
    else:
        for outcome in outcomes:
            if outcome.tier not in problems:
                _print(outcome, dry_run)
    for label, problem in problems.items():
        warn(f"tier {label}: {problem}")
    for outcome in outcomes:
        for reason in outcome.unread.values():
            warn(f"{reason}; it stays, and so do all blobs, of which it may need some")
        if outcome.late:
            note(
                f"{outcome.tier}: {count(len(outcome.late), 'manifest')} came while their blobs went, and went too; "
                f"`gearcache push` on the hosts that made them sends them anew"
            )
    if problems or any(outcome.unread for outcome in outcomes):
        stop(Exit.WRONG)


def _print(outcome: RemotePruned, dry_run: bool) -> None:
    verb = "would remove" if dry_run else "removed"
    if is_verbose():
        for name in outcome.old:
            tell(f"{verb} {name}")
    removed = f"{count(len(outcome.old), 'old manifest')} and {count(len(outcome.blobs), 'blob')}"
    text = f"{verb} {removed}, {size_text(outcome.freed)}"
    if outcome.unfinished:
        text += f", and {count(outcome.unfinished, 'unfinished file')}"
    tell(f"{outcome.tier}: {text}; {outcome.left} left")
