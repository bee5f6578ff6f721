"""`gearcache prewarm`: compiles what a function calls, without serving it."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gearcache.commands.checks.wrong_variables import told_of_threads
from gearcache.commands.common import (
    TARGET,
    Exit,
    common_options,
    count,
    dry_run_option,
    note,
    print_json,
    seconds_text,
    size_text,
    stop,
    tell,
    warn,
)
from gearcache.commands.deployments.target import find_target, print_failure
from gearcache.commands.output.listing import Column, Listing, number_of, or_dash
from gearcache.commands.output.printing import echo, shortened
from gearcache.commands.output.verbosity import is_quiet, is_verbose, show_log
from gearcache.errors import PublishError, UnsafePath
from gearcache.prewarming.launched import launched
from gearcache.prewarming.share import Shard
from gearcache.terminal import is_drawable

if TYPE_CHECKING:
    from gearcache.prewarming.prewarm import PrewarmReport

#: Width of the reason why no graph can be made of a call, in columns.
_CAUSE_WIDTH = 200


@click.command("prewarm")
@click.argument("target", type=TARGET)
@click.option(
    "--jobs", type=click.IntRange(1), help="Compile processes; else $GEARCACHE_JOBS, else the number of cores."
)
@click.option("--rank", "ranks", type=click.IntRange(0), multiple=True, help="Act as this rank. Repeatable.")
@click.option("--world-size", type=click.IntRange(1), help="Ranks of the job; without --rank, act as each of them.")
@click.option("--device", default="cpu", show_default=True, help="Where tensors on `meta` will be when it is served.")
@click.option("--threads", type=click.IntRange(1), help="Threads of the serving process, which are in the key.")
@click.option("--shard", metavar="I/N", help="Do share I of N alone, as 3/16; N such runs do all, each entry once.")
@dry_run_option
@common_options
def command(
    target: str,
    jobs: int | None,
    ranks: tuple[int, ...],
    world_size: int | None,
    device: str,
    threads: int | None,
    shard: str | None,
    dry_run: bool,
    cache_dir: Path | None,
    as_json: bool,
) -> None:
    """Compile and store every gear of every cached method that a function calls.

    TARGET is `package.module:function` or `file.py:function`. The function builds the model and calls its cached
    methods, once for each kind of call; or calls `.warm(...)` of them. Methods whose arguments are declared
    (input_signature, set_inputs) need no call. The model may be on the `meta` device or under
    fake tensors: shapes are enough, and a relaunch with the real weights hits.

    What is stored already is not compiled again. Ctrl-C leaves a valid cache with what was finished.

    Under `torchrun` each process compiles for its own rank. With --world-size the processes of a host divide the work
    instead, as with --shard.
    """
    if ranks and world_size is None:
        raise click.UsageError("--rank needs --world-size, which is part of the key")
    if any(rank >= (world_size or 0) for rank in ranks):
        raise click.UsageError(f"--rank is at most {(world_size or 0) - 1} with --world-size {world_size}")
    share = Shard.parse(shard) if shard is not None else None
    process = launched(os.environ)
    _show_progress()
    function = find_target(target)
    import torch

    from gearcache.prewarming.prewarm import run_prewarm

    try:
        target_device = torch.device(device)
    except RuntimeError as error:
        raise click.UsageError(f"--device: {str(error).splitlines()[0]}") from None
    if threads is not None:
        torch.set_num_threads(threads)
    elif advice := told_of_threads(os.environ, torch.get_num_threads()):
        warn(advice)
    if process is not None and world_size is None:
        world_size, ranks = process.world_size, (process.rank,)
    elif process is not None and process.local_size > 1 and share is None and not dry_run:
        share = Shard(process.local_rank + 1, process.local_size)
    if process is not None and jobs is None and not os.environ.get("GEARCACHE_JOBS"):
        jobs = max(1, (os.cpu_count() or 1) // process.local_size)
    # Output of the function is not output of the command.
    with contextlib.redirect_stdout(sys.stderr):
        report, failure = run_prewarm(
            function,
            cache_dir=cache_dir,
            jobs=jobs,
            ranks=ranks,
            world_size=world_size,
            device=target_device,
            dry_run=dry_run,
            shard=share,
        )
    is_unwritable = isinstance(failure, (PublishError, UnsafePath))
    if failure is not None and not report.interrupted and not is_unwritable:
        print_failure(failure)
    raised = None if failure is None else f"{type(failure).__name__}: {failure}"
    if as_json:
        print_json("prewarm", {**report.to_plain(), "error": raised})
    else:
        _print(report, target, failure)
    if report.interrupted:
        note("interrupted; what was finished is stored, and the next run goes on from there")
        stop(Exit.INTERRUPTED)
    if is_unwritable:
        echo(f"error: {failure}; nothing more is compiled, as it could not be stored", err=True)
        stop(Exit.CACHE)
    if failure is not None:
        echo(f"error: `{target}` raised {type(failure).__name__}", err=True)
    if failure is not None or not report.is_complete or not report.entries:
        stop(Exit.WRONG)


def _show_progress() -> None:
    """Show the log lines of the compile if there is no terminal for its bar."""
    if is_quiet():
        os.environ["GEARCACHE_PROGRESS"] = "0"  # read where the bar is made
    if not is_verbose():
        show_log(logging.WARNING if is_quiet() or is_drawable(sys.stderr) else logging.INFO)


def _print(report: PrewarmReport, target: str, failure: BaseException | None) -> None:
    for entry in report.entries:
        if report.dry_run and entry.missing:
            missing = "; ".join(name or "the graph" for name in entry.named(entry.missing))
            note(f"{entry.method}: missing {missing}{f', because: {entry.reason}' if entry.reason else ''}")
        for name, cause in zip(entry.named(entry.failed), entry.failed.values(), strict=True):
            if cause != str(failure):
                echo(*f"warning: {entry.method}, {name}: {cause}".splitlines(), err=True)
        for name, cause in zip(entry.named(entry.impossible), entry.impossible.values(), strict=True):
            note(f"{entry.method}, {name}: no graph can be made of such a call: {shortened(cause, _CAUSE_WIDTH)}")
    for name in report.never_called:
        note(f"`{name}` is a cached method that `{target}` never called, so nothing was done for it")
    if not report.entries:
        warn(f"`{target}` called no cached method")
        return
    if not is_quiet():
        _entries(report).print([entry.to_plain() for entry in report.entries if not entry.left_to])
    if report.left:
        others = count(report.left, "entry is", "entries are")
        tell(f"{others} left to {', '.join(dict.fromkeys(each.left_to for each in report.entries if each.left_to))}")
    if report.missing:
        tell(f"{report.missing} of {count(report.missing + report.present, 'graph')} missing")
    elif not report.compiled and report.is_complete and report.present:
        tell(f"all present: {count(report.present, 'graph')}, in {seconds_text(report.seconds)}")
    elif report.compiled:
        tell(f"compiled {count(report.compiled, 'graph')} in {seconds_text(report.seconds)}")


def _entries(report: PrewarmReport) -> Listing:
    last = Column("Missing", "missing", number_of, is_right=True)
    return Listing(
        (
            Column("Method", "method"),
            Column("Rank", "rank", or_dash, spare=2),
            Column("Compiled", "compiled", number_of, is_right=True),
            Column("Present", "present", number_of, is_right=True),
            last if report.dry_run else Column("Failed", "failed", number_of, is_right=True),
            Column("Compile time", "compiled", _seconds_in_all, is_right=True),
            Column("Size", "size", size_text, is_right=True, spare=1),
        )
    )


def _seconds_in_all(compiled: dict[str, float]) -> str:
    return seconds_text(sum(compiled.values())) if compiled else "-"


def looked_up(
    target: str,
    cache_dir: Path | None,
    *,
    reads: bool = False,
    fetches: bool = False,
    threads: int | None = None,
) -> tuple[PrewarmReport, BaseException | None]:
    """Look up what a function calls, without compiling; returns what is stored, and an exception of the function.

    The exception is printed. In a job, the lookup is for the rank of the environment. With `reads` every byte is read;
    with `fetches` missing entries are fetched from the tiers; `threads` is the thread count of the serving process, if
    it differs from this one. A usage error if the name does not refer to a function.
    """
    process = launched(os.environ)
    function = find_target(target)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    from gearcache.prewarming.prewarm import run_prewarm

    with contextlib.redirect_stdout(sys.stderr):
        report, error = run_prewarm(
            function,
            cache_dir=cache_dir,
            jobs=None,
            ranks=() if process is None else (process.rank,),
            world_size=None if process is None else process.world_size,
            device="cpu",
            dry_run=True,
            reads=reads,
            fetches=fetches,
        )
    if error is not None:
        print_failure(error)
    return report, error
