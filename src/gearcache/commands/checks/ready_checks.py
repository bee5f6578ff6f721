"""Checks that everything that a deployment calls is stored here, for `gearcache doctor --ready`."""

from __future__ import annotations

import shlex
from pathlib import Path

from gearcache.cache.admin.health import HealthCheck
from gearcache.commands.common import count
from gearcache.commands.deployments.prewarm import looked_up
from gearcache.prewarming.report import Prewarmed
from gearcache.serving.miss.host_faults import host_remedy


def check_ready(target: str, cache_dir: Path | None, threads: int | None = None) -> list[HealthCheck]:
    """Look up what a function calls and read every byte of it, as the serving process will; compiles nothing."""
    report, error = looked_up(target, cache_dir, reads=True, threads=threads)
    checks = [_check(entry, target) for entry in report.entries]
    if error is not None:
        remedy = host_remedy(error) or "correct it"
        checks.append(HealthCheck("function", False, f"`{target}` raised {type(error).__name__}: {error}", remedy))
    elif not report.entries:
        checks.append(
            HealthCheck("function", False, f"`{target}` called no cached method", "let it call what is served")
        )
    checks += [
        HealthCheck(name, None, f"`{target}` never called it, so nothing is known of it")
        for name in report.never_called
    ]
    return checks


def _check(entry: Prewarmed, target: str) -> HealthCheck:
    argument = shlex.quote(target)
    name = entry.method if entry.rank is None else f"{entry.method}, rank {entry.rank}"
    if entry.failed:
        return HealthCheck(name, False, "; ".join(entry.failed.values()), f"see `gearcache prewarm {argument}`")
    if entry.missing:
        present = count(len(entry.present), "graph")
        text = f"{present} here, missing: {'; '.join(entry.named(entry.missing))}; because: {entry.reason}"
        remedy = entry.advice or f"`gearcache pull --require {argument}`, or `gearcache prewarm {argument}`"
        return HealthCheck(name, False, text, remedy)
    return HealthCheck(name, True, f"{count(len(entry.present), 'graph')} here")
