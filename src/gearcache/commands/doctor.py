"""`gearcache doctor`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from gearcache.cache.admin.health import Check, check_health
from gearcache.commands.common import Exit, common_options, layout_at, print_json, stop
from gearcache.commands.host_checks import check_host, check_settings
from gearcache.commands.key_checks import check_keys
from gearcache.commands.printing import echo, printable, styled
from gearcache.commands.rank_checks import check_ranks
from gearcache.commands.target_names import complete_target
from gearcache.commands.tier_checks import check_tiers
from gearcache.commands.variant_checks import check_variants
from gearcache.commands.verbosity import is_quiet

_MARKS = {True: "ok", False: "FAIL", None: "-"}


@click.command("doctor")
@click.option(
    "--ready",
    "target",
    metavar="TARGET",
    shell_complete=complete_target,
    help="Check one thing only: that all gears which this function calls are here, whole, and would be hits.",
)
@common_options
def command(target: str | None, cache_dir: Path | None, as_json: bool) -> None:
    """Check what works on this host: torch, compiler, devices, torch_npu and CANN, the cache's folder, locks,
    space and tiers.

    `ok` works, `-` is worth knowing, `FAIL` does not work, with what to do; `-q` prints the last alone. Exit code 1
    when something fails.
    """
    if target is not None:
        from gearcache.commands.ready_checks import check_ready

        _tell(check_ready(target, cache_dir), as_json)
        return
    settings, key_file = check_settings(os.environ)
    layout = layout_at(cache_dir, may_be_new=True)
    checks = [*check_host(os.environ), *settings, *check_health(layout, key_file)]
    checks += [
        *check_variants(layout),
        check_keys(os.environ),
        *check_tiers(os.environ, layout),
        *check_ranks(os.environ, layout),
    ]
    _tell(checks, as_json)


def _tell(checks: list[Check], as_json: bool) -> None:
    if as_json:
        rows = [{"name": c.name, "ok": c.ok, "detail": c.detail, "remedy": c.remedy} for c in checks]
        print_json("doctor", {"checks": rows})
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            if is_quiet() and check.ok is not False:
                continue
            mark = styled(f"{_MARKS[check.ok]:<4}", fg="red" if check.ok is False else None)
            click.echo(f"{mark}  {check.name:<{width}}  {printable(check.detail)}")
            if check.remedy:
                echo(f"{'':<{width + 6}}  -> {check.remedy}")
    if any(check.ok is False for check in checks):
        stop(Exit.WRONG)
