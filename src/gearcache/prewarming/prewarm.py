"""Prewarming: compiles and stores every gear of every cached method that a function calls, without serving it.

    def build():                           # in a module of the deployment, `deploy.py`
        with torch.device("meta"):         # shapes are enough: neither weights nor their memory are needed
            model = Model()
        model.cached_decode(torch.empty(1, 1, dtype=torch.long, device="meta"))

    report = gearcache.prewarm(build)      # or `gearcache prewarm deploy:build`

Each call compiles what is missing and then runs the original method, so that you can pass on its results; `.warm(...)`
compiles without running. A method with declared arguments (`input_signature=`, `.set_inputs(...)`) needs no call: the
function only creates it, or returns the model if the method is decorated. A relaunch with real weights on the target
device hits entries that were made from `meta` or fake tensors.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence

import torch

from gearcache.guards.evidence.names import a_type
from gearcache.prewarming.job import acting_as
from gearcache.prewarming.report import Prewarmed as Prewarmed
from gearcache.prewarming.report import PrewarmInterrupted as PrewarmInterrupted
from gearcache.prewarming.report import PrewarmReport as PrewarmReport
from gearcache.prewarming.session import PrewarmSession
from gearcache.prewarming.share import LeftTo, Shard
from gearcache.serving.call import session


def prewarm(
    function: Callable[[], object],
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    ranks: Sequence[int] = (),
    world_size: int | None = None,
    device: str | torch.device = "cpu",
    dry_run: bool = False,
    shard: tuple[int, int] | None = None,
) -> PrewarmReport:
    """Call `function`; compile and store what its calls of cached methods need, and the declared gears of others.

    - `cache_dir`: root of the cache; overrides that of the methods.
    - `jobs`: compile processes.
    - `ranks`, `world_size`: simulate these ranks of a distributed job, one after the other: `function` runs once for
      each, with `RANK`, `LOCAL_RANK` and `WORLD_SIZE` set, and with a process group of torch's backend `fake` if the
      process has none. Without `ranks`, all of `world_size`.
    - `device`: where tensors on `meta` will be when the model is served.
    - `dry_run`: only look up; the report lists what is missing.
    - `shard`: `(3, 16)` does the third of 16 shares; each entry is in one of them. `function` runs twice.

    The report lists gears and calls that fail, and the others continue; an exception of the function itself is raised.
    A full disk, or a cache that cannot be written, ends it at once with `PublishError` or `UnsafePath`.
    Ctrl-C raises `PrewarmInterrupted` (a `KeyboardInterrupt`). A process runs one prewarm at a time.
    """
    report, error = run_prewarm(
        function,
        cache_dir=cache_dir,
        jobs=jobs,
        ranks=ranks,
        world_size=world_size,
        device=device,
        dry_run=dry_run,
        shard=None if shard is None else Shard(*shard),
    )
    if isinstance(error, KeyboardInterrupt):
        raise PrewarmInterrupted(report) from None
    if error is not None:
        raise error
    return report


def run_prewarm(
    function: Callable[[], object],
    *,
    cache_dir: str | os.PathLike[str] | None,
    jobs: int | None,
    ranks: Sequence[int],
    world_size: int | None,
    device: str | torch.device,
    dry_run: bool,
    shard: Shard | None = None,
    left_to: LeftTo | None = None,
    reads: bool = False,
    fetches: bool = False,
) -> tuple[PrewarmReport, BaseException | None]:
    """Like `prewarm`, but returns the report and the exception that the function raised, if any.

    With `reads` a dry run reads stored entries to the last byte, as a load does. With `shard` the function runs twice:
    the first run compiles nothing and counts the work that is to be divided. `left_to` is a division made elsewhere.
    """
    _check(function, jobs, ranks, world_size)
    all_ranks: list[int | None] = list(ranks) or (list(range(world_size)) if world_size else [None])

    def run(*, only_looks: bool, left_to: LeftTo | None) -> tuple[PrewarmSession, BaseException | None]:
        open_session = PrewarmSession(
            cache_dir=os.fspath(cache_dir) if cache_dir is not None else None,
            jobs=jobs,
            world_size=world_size,
            device=torch.device(device),
            dry_run=only_looks,
            left_to=left_to,
            reads=reads,
            fetches=fetches,
        )
        session.enter(open_session)
        try:
            for rank in all_ranks:
                open_session.begin(rank)
                with acting_as(rank, world_size), _with_temporary_name() if only_looks else contextlib.nullcontext():
                    open_session.warm_declared(function())
        except (Exception, KeyboardInterrupt, SystemExit) as error:  # `sys.exit` is not a success: work may be left
            return open_session, error
        finally:
            session.leave()
            open_session.close()
        return open_session, open_session.unwritable

    if shard is not None:
        look, error = run(only_looks=True, left_to=None)
        if error is not None:
            return _report(look, error), error
        left_to = shard.divide(look.work)
    prewarmed, error = run(only_looks=dry_run, left_to=left_to)
    return _report(prewarmed, error), error


def _report(closed_session: PrewarmSession, error: BaseException | None) -> PrewarmReport:
    report = closed_session.report()
    report.interrupted = isinstance(error, KeyboardInterrupt)
    return report


def _check(function: object, jobs: int | None, ranks: Sequence[int], world_size: int | None) -> None:
    if not callable(function):
        raise TypeError(f"prewarm takes a function without arguments, not {a_type(function)}")
    for name, value, least in (("jobs", jobs, 1), ("world_size", world_size, 1)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise ValueError(f"prewarm: {name} is {value!r}; it must be an int of at least {least}")
    if ranks and world_size is None:
        raise ValueError("prewarm: ranks need a world_size, as it is part of the key")
    for rank in ranks:
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < (world_size or 0):
            raise ValueError(f"prewarm: rank is {rank!r}; with world_size={world_size} it is 0 to {world_size - 1}")  # type: ignore[operator]


@contextlib.contextmanager
def _with_temporary_name() -> Iterator[None]:
    """Name a temporary folder even if none can be written, as with a read-only root without a volume at /tmp.

    Imports of torch ask for the name. Code that writes there gets the error of the disk; other code only needs the
    name.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        tempfile.tempdir = os.environ.get("TMPDIR") or "/tmp"
        try:
            yield
        finally:
            tempfile.tempdir = None  # a volume may be mounted later
    else:
        yield
