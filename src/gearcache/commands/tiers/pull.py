"""`gearcache pull`: brings entries of tiers or of a bundle to this host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from msgspec.structs import asdict

from gearcache.cache.admin.packed.bundle import take_bundle
from gearcache.cache.keys.key import short_name
from gearcache.cache.layout import REMOTES_VARIABLE, Layout
from gearcache.cache.remote.admin.holdings import SECONDS, Holdings, holdings
from gearcache.cache.remote.admin.pull import Pull, Pulled
from gearcache.cache.remote.engines.protocol import Deadline, RemoteError
from gearcache.cache.remote.names import EntryName
from gearcache.cache.remote.tier import Tier
from gearcache.commands.common import (
    SIZE,
    TARGET,
    Exit,
    common_options,
    count,
    environment_trust,
    layout_at,
    note,
    print_json,
    size_text,
    stop,
    tell,
    warn,
)
from gearcache.commands.output.printing import shortened
from gearcache.commands.output.verbosity import bar
from gearcache.commands.tiers.chosen import split_names, tiers_at
from gearcache.readable.joined import MOST_VARIANTS, joined

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
#: Width of the reason why gears are missing, in columns.
_WHY_WIDTH = 300


@click.command("pull")
@click.argument("names", nargs=-1, metavar="[ENTRY]...")
@click.option("--from", "urls", multiple=True, metavar="URL", help="A tier; else $GEARCACHE_REMOTES. Repeatable.")
@click.option(
    "--require",
    "target",
    metavar="TARGET",
    type=TARGET,
    help="Exit code 1 when gears are missing that this function calls, as `prewarm --dry-run TARGET` finds them.",
)
@click.option(
    "--file", "file", type=_FILE, help="Take all entries of a bundle that `gearcache pack --file` wrote, of no tier."
)
@click.option("--max-size", type=SIZE, help="With --file: refuse one that holds more than so many bytes, as `10GB`.")
@common_options
def command(
    names: tuple[str, ...],
    urls: tuple[str, ...],
    target: str | None,
    file: Path | None,
    max_size: int | None,
    cache_dir: Path | None,
    as_json: bool,
) -> None:
    """Bring entries of tiers, or of a file, to this host: all, or those named.

    ENTRY is a method, a pattern such as `Model.*`, a key or its start, or `<method>-<start of the key>`; URLs may stand
    there too, as with `--from`. Every byte and signature is verified; what several hosts have stored of one entry is
    joined with the entry here, and nothing is lost. Exit code 1 when an entry or a tier failed; with `--require` when
    gears are missing, and for nothing else.

    A bundle holds code that your process will run: take only what you trust. Each digest is verified, which shows
    damage but not who wrote it: a file that other users own or can write is refused. With $GEARCACHE_TRUSTED_KEYS or
    $GEARCACHE_HMAC_KEY_FILE set it may be anybody's, and entries that none of these keys has signed are refused.
    """
    layout = layout_at(cache_dir, may_be_new=True)
    entries, others = split_names(names)
    problems: list[str] = []
    if file is not None:
        if names or urls:
            raise click.UsageError("--file takes all entries of the file: name no entry and no tier")
        outcome = _import_bundle(layout, file, max_size)
    elif max_size is not None:
        raise click.UsageError("--max-size needs --file FILE")
    else:
        outcome, problems = _fetch_entries(layout, entries, tiers_at(layout, [*urls, *others], "--from"))
    required: dict[str, Any] | None = None
    missing: dict[str, list[str]] = {}
    if target is not None:
        required, missing = _required(target, cache_dir, [*urls, *others])
    if as_json:
        print_json("pull", {"root": str(layout.root), **asdict(outcome), "problems": problems, "required": required})
    else:
        tell(f"{_text(outcome)} into `{layout.root}`")
    _note_full(outcome)
    for problem in problems:
        warn(problem)
    for reason in outcome.refused.values():
        warn(reason)
    for name, reason in outcome.failed.items():
        warn(f"{short_name(name)}: {reason}")
    if required is not None:
        _warn_missing(required, missing, str(target))
        if not required["complete"]:
            stop(Exit.WRONG)
    elif problems or outcome.failed:
        stop(Exit.WRONG)


def _import_bundle(layout: Layout, file: Path, max_size: int | None) -> Pulled:
    """Import the entries of a bundle."""
    bundle = take_bundle(layout, file, joined, trust=environment_trust(), max_size=max_size)
    return Pulled(
        brought=[name for name in bundle.entries if name not in bundle.skipped],
        present=bundle.skipped,
        failed=bundle.failed,
        blobs=bundle.blobs,
        bytes=bundle.size,
    )


def _fetch_entries(layout: Layout, entries: list[str], tiers: list[Tier]) -> tuple[Pulled, list[str]]:
    """Fetch entries from tiers; also returns why some tiers could not be listed."""
    holdings_by_tier, problems = _list_tiers(tiers)
    selected = _select_entries(holdings_by_tier, entries, tiers, is_whole=not problems)
    pull = Pull(layout, environment_trust(), joined)
    with bar("pull") as progress:
        for number, entry in enumerate(selected, 1):
            pull.bring(
                entry,
                [
                    (tier, tier_holdings.manifests[entry])
                    for tier, tier_holdings in holdings_by_tier
                    if entry in tier_holdings.manifests
                ],
            )
            progress(number, len(selected))
    return pull.outcome, problems


def _note_full(outcome: Pulled) -> None:
    for name, traces in outcome.traces.items():
        if traces >= MOST_VARIANTS:
            note(
                f"{short_name(name)} has {traces} traces: others of other hosts may be left out; "
                "`--require TARGET` brings those that a function needs"
            )


def _list_tiers(tiers: list[Tier]) -> tuple[list[tuple[Tier, Holdings]], list[str]]:
    """Return the entries of each tier, and the reasons of tiers that could not be listed."""
    holdings_by_tier: list[tuple[Tier, Holdings]] = []
    problems: list[str] = []
    for tier in tiers:
        try:
            tier_holdings = holdings(tier, Deadline.after(SECONDS))
        except RemoteError as error:
            problems.append(str(error))
        else:
            holdings_by_tier.append((tier, tier_holdings))
    return holdings_by_tier, problems


def _select_entries(
    holdings_by_tier: list[tuple[Tier, Holdings]], names: list[str], tiers: list[Tier], *, is_whole: bool
) -> list[EntryName]:
    if not names:
        entries = [entry for _, tier_holdings in holdings_by_tier for entry in tier_holdings.manifests]
    else:
        entries = []
        for name in names:
            matches = [entry for _, tier_holdings in holdings_by_tier for entry in tier_holdings.called(name)]
            labels = ", ".join(tier.label for tier in tiers)
            if not matches and is_whole:
                raise click.UsageError(f"no entry is called `{name}` in {labels}")
            entries += matches
    return sorted(set(entries), key=lambda entry: (entry.label, entry.digest, entry.ranks))


def _required(target: str, cache_dir: Path | None, urls: list[str]) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Look up what a function calls, here and then in the tiers (those of the environment if none are given).

    Returns missing entries as JSON data, and the short names of the missing gears by method.

    Some traces of an entry that several hosts have stored may be missing here; the function shows which it needs.
    """
    from gearcache.commands.deployments.prewarm import looked_up
    from gearcache.prewarming.job import with_variables

    with with_variables({REMOTES_VARIABLE: " ".join(urls)} if urls else {}):
        report, error = looked_up(target, cache_dir, fetches=True)
    missing, names, reasons = dict[str, list[str]](), dict[str, list[str]](), dict[str, str]()
    for entry in report.entries:
        if entry.missing:  # several objects, or ranks, may have methods of one name
            missing.setdefault(entry.method, []).extend(entry.missing)
            names.setdefault(entry.method, []).extend(entry.named(entry.missing))
        if entry.missing and entry.reason:
            reasons.setdefault(entry.method, entry.reason)
    failed = {f"{entry.method}, {call}": cause for entry in report.entries for call, cause in entry.failed.items()}
    if error is not None:
        failed[target] = f"{type(error).__name__}: {error}"
    return {
        "target": target,
        "present": report.present,
        "missing": missing,
        "reasons": reasons,
        "failed": failed,
        "complete": error is None and report.is_complete and bool(report.entries) and not missing,
    }, names


def _warn_missing(required: dict[str, Any], names: dict[str, list[str]], target: str) -> None:
    for method, gears in names.items():
        reason = f" ({shortened(required['reasons'][method], _WHY_WIDTH)})" if method in required["reasons"] else ""
        warn(f"{method}: missing {'; '.join(name or 'the graph' for name in gears)}{reason}")
    for call, cause in required["failed"].items():
        warn(f"{call}: {cause}")
    if required["complete"]:
        note(f"all that `{target}` calls is here: {count(required['present'], 'graph')}")
    elif not required["missing"] and not required["failed"]:
        warn(f"`{target}` called no cached method")


def _text(outcome: Pulled) -> str:
    text = f"brought {count(len(outcome.brought), 'entry', 'entries')}"
    if outcome.blobs:
        text += f" with {count(outcome.blobs, 'blob')}, {size_text(outcome.bytes)},"
    others = [count(len(outcome.present), "was there", "were there")] if outcome.present else []
    others += [f"{len(outcome.failed)} failed"] if outcome.failed else []
    return f"{text} ({'; '.join(others)})" if others else text
