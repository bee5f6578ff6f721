"""`gearcache doctor`: checks whether this host can compile and load graphs."""

from __future__ import annotations

import os
from pathlib import Path

import click
from msgspec.structs import asdict

from gearcache.cache.admin.health import HealthCheck, check_health, guarded_all
from gearcache.commands.checks.cache_checks import check_keys, check_ranks, check_tiers, check_variants
from gearcache.commands.checks.host_checks import check_host, check_settings
from gearcache.commands.common import TARGET, Exit, common_options, layout_at, print_json, stop
from gearcache.commands.output.listing import between_words
from gearcache.commands.output.printing import printable, styled
from gearcache.commands.output.verbosity import is_quiet

#: A longer name, such as that of a method, would leave no room for the message.
_NAME_WIDTH = 24
_MARKS = {True: "ok", False: "FAIL", None: "-"}


@click.command("doctor")
@click.option(
    "--ready",
    "target",
    metavar="TARGET",
    type=TARGET,
    help="Check one thing only: that all gears which this function calls are here, whole, and would be hits.",
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    help="With --ready: threads of the process that serves, where this host has another number of cores.",
)
@click.option("--settings", is_flag=True, help="Show every setting instead: its value, and where that is from.")
@click.option(
    "--tiers",
    is_flag=True,
    help="Look at the tiers instead, those of $GEARCACHE_REMOTES or the URLs: reach, times, leases, signatures.",
)
@click.argument("urls", nargs=-1, metavar="[URL]...")
@common_options
def command(
    target: str | None,
    threads: int | None,
    settings: bool,
    tiers: bool,
    urls: tuple[str, ...],
    cache_dir: Path | None,
    as_json: bool,
) -> None:
    """Check what works on this host: torch, compiler, devices, torch_npu and CANN, the cache's folder, locks,
    space and tiers.

    `ok` works, `-` is worth knowing, `FAIL` does not work, with what to do; `-q` prints the last alone. Exit code 1
    when something fails.
    """
    if threads is not None and target is None:
        raise click.UsageError("--threads needs --ready TARGET")
    if urls and not tiers:
        raise click.UsageError(f"`{urls[0]}` is a tier to look at: say --tiers")
    if (target is not None) + settings + tiers > 1:
        raise click.UsageError("--ready, --settings and --tiers exclude each other")
    if settings:
        from gearcache.commands.settings import show_settings

        show_settings(cache_dir, as_json)
        return
    if tiers:
        from gearcache.commands.tiers.tier_survey import show_tiers

        show_tiers(urls, cache_dir, as_json)
        return
    if target is not None:
        from gearcache.commands.checks.ready_checks import check_ready

        _report(check_ready(target, cache_dir, threads), as_json)
        return
    of_settings, key_file = check_settings(os.environ)
    layout = layout_at(cache_dir, may_be_new=True)
    checks = [*check_host(os.environ), *of_settings, *check_health(layout, key_file)]
    checks += [
        *guarded_all("traces", lambda: check_variants(layout)),
        check_keys(os.environ),
        *guarded_all("tiers", lambda: check_tiers(os.environ, layout)),
        *guarded_all("ranks", lambda: check_ranks(os.environ, layout)),
    ]
    _report(checks, as_json)


def _report(checks: list[HealthCheck], as_json: bool) -> None:
    if as_json:
        print_json("doctor", {"checks": list(map(asdict, checks))})
    else:
        width = min(_NAME_WIDTH, max(len(check.name) for check in checks))
        for check in checks:
            if not is_quiet() or check.ok is False:
                _print(check, width)
    if any(check.ok is False for check in checks):
        stop(Exit.WRONG)


def _print(check: HealthCheck, width: int) -> None:
    """Print a check; on a terminal, lines break between words, and a long name has its own line."""
    mark = styled(f"{_MARKS[check.ok]:<4}", fg="red" if check.ok is False else None)
    indent, name = " " * (width + 8), printable(check.name)
    detail = between_words(printable(check.detail), len(indent))
    if len(name) > width:
        click.echo(f"{mark}  {name}")
        lines = detail
    else:
        click.echo(f"{mark}  {name:<{width}}  {detail[0]}")
        lines = detail[1:]
    if check.remedy:
        first, *rest = between_words(printable(check.remedy), len(indent) + 3)
        lines = [*lines, f"-> {first}", *(f"   {line}" for line in rest)]
    for line in lines:
        click.echo(f"{indent}{line}")
