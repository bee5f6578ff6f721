"""Ranks that do not call `gearcache.agree` as the others of their job do: wrongly, late, too seldom, or forked."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import GearcacheError, RanksDisagree
from gearcache.ranks import team, whereabouts
from tests.support.rank_actors import Job, Net, agree, cached, counted, geared, warnings_from_now_on

Report = dict[str, Any]


class Pair(nn.Module):
    """Two declared methods."""

    def encode(self, x: Tensor) -> Tensor:
        return x * 2

    def decode(self, x: Tensor) -> Tensor:
        return x + 1


def told(work: Callable[[], object], report: Report, name: str) -> None:
    """Note how some work ended, and after how many seconds."""
    begin = time.monotonic()
    try:
        report[name] = work()
    except RanksDisagree as error:
        report[name] = [error.rank, error.reason]
    except (GearcacheError, TypeError) as error:
        report[name] = f"{type(error).__name__}: {error}"
    except KeyboardInterrupt:
        report[name] = "interrupted"
    report[f"{name}_seconds"] = time.monotonic() - begin


def served(method: Any, report: Report) -> None:
    """Note what a call gives, and what was compiled."""
    try:
        report["result"] = float(method(torch.ones(2, 4)).sum())
    except GearcacheError as error:
        report["result"] = type(error).__name__
    counted(report, method)


def wrongly(job: Job, rank: int, report: Report) -> None:
    """Agree, with something wrong on one rank, as often as the options have it; then all alike."""
    model = Net()
    method = geared(model)
    for number, (wrong_rank, wrong) in enumerate(job.options["calls"]):
        given = {"model": model, "timeout": job.timeout} | (wrong if rank == wrong_rank else {})
        if given["model"] == "empty":
            given["model"] = nn.Linear(2, 2)
        told(lambda given=given: agree(**given), report, f"wrong {number}")
    told(lambda: agree(model, job.timeout), report, "last")
    served(method, report)


def held(job: Job, rank: int, report: Report) -> None:
    """Agree while the lock of one rank's entry is held by somebody who does not end; in the end nobody holds one."""
    model = Net()
    method = geared(model)
    entry = method.binding_for(method.call_of((torch.ones(2, 4),), {})).entry
    for holder in range(job.world):
        with entry.store.exclusive(entry.key) if rank == holder else contextlib.nullcontext():
            told(lambda: agree(model, job.timeout), report, f"held by {holder}")
    told(lambda: agree(model, 30), report, "last")
    served(method, report)


def seldom(job: Job, rank: int, report: Report) -> None:
    """Agree twice; the last rank leaves the first one out."""
    model = Pair()
    encode, decode = cached(model, "encode"), cached(model, "decode")
    if rank < job.world - 1:
        told(lambda: agree(encode, job.timeout), report, "first")
    told(lambda: agree(decode, job.timeout), report, "second")


def late(job: Job, rank: int, report: Report) -> None:
    """Agree three times; to the first one rank comes, and to the second one another, when the others have given up."""
    model = Net()
    method = geared(model)
    for late_rank in (2, 0):
        if rank == late_rank:
            time.sleep(job.options["after"])
        told(lambda: agree(model, job.timeout), report, f"without {late_rank}")
    told(lambda: agree(model, 30), report, "last")
    served(method, report)


def gives_up(job: Job, rank: int, report: Report) -> None:
    """Agree three times; to the first two rank 0 comes when rank 1 has given up."""
    model = Net()
    method = geared(model)
    for how in ("interrupted", "early"):
        timeout = job.timeout
        if rank == 0:
            time.sleep(2)
        if rank == 1 and how == "interrupted":
            signal.signal(signal.SIGINT, signal.default_int_handler)
            threading.Timer(0.7, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        elif rank == 1:
            timeout = 0.7
        told(lambda timeout=timeout: agree(model, timeout), report, how)
    told(lambda: agree(model, 30), report, "last")
    served(method, report)


def forked(job: Job, rank: int, report: Report) -> None:
    """Agree, while rank 0 forks in `warm`, and that process goes on there; then fork, and what is forked agrees too."""
    model = Net()
    method = geared(model)
    owner, (reads, writes) = os.getpid(), os.pipe()

    def warm() -> None:
        method.warm(torch.ones(2, 4))
        if rank == 0 and os.getpid() == owner:
            os.fork()

    told(lambda: agree(model, job.timeout, warm=warm), report, "first")
    if os.getpid() != owner:
        os.write(writes, repr(report["first"]).encode())
        os._exit(0)
    if rank == 0:
        report["forked inside"] = os.read(reads, 4096).decode()
        os.wait()
    if os.fork() == 0:
        found: Report = {}
        told(lambda: agree(model, job.timeout), found, "forked")
        os.write(writes, repr([found["forked"], method.right.is_missing]).encode())
        os._exit(0)
    report["forked later"] = os.read(reads, 4096).decode()
    os.wait()
    told(lambda: agree(model, job.timeout), report, "second")
    served(method, report)


def slow(job: Job, rank: int, report: Report) -> None:
    """Agree, while each rank looks up for longer than the one before; note what each says while it waits."""
    whereabouts._SAYS_AFTER = 0.0
    look_up, delays = team.Team.look_up, [rank * 0.8]

    def slowly(self: team.Team) -> Any:
        time.sleep(delays.pop() if delays else 0)
        return look_up(self)

    team.Team.look_up = slowly  # type: ignore[method-assign]
    said = warnings_from_now_on()
    model = Net()
    geared(model)
    told(lambda: agree(model, job.timeout), report, "first")
    report["said"] = said


class Branches(nn.Module):
    """A method that a trace splits by the number of rows."""

    def decode(self, x: Tensor) -> Tensor:
        return x * 2 if x.size(0) > 4 else x * 3


def ranged(job: Job, rank: int, report: Report) -> None:
    """Agree on a declared range of rows; note what is said, and what becomes of a call in the part that is left out."""
    said = warnings_from_now_on()
    model = Branches()
    rows = gearcache.Symbol("rows", min=2, max=64)
    method = cached(model, "decode", gearcache.TensorSpec((rows, 4), torch.float32))
    told(lambda: agree(model, job.timeout), report, "first")
    report["said"] = [text for text in said if "declared sizes" in text]
    served(method, report)


def threads(job: Job, rank: int, report: Report) -> None:
    """Agree twice: in two threads at once on rank 0, one after the other on the others; then all once more."""
    model = Net()
    method = geared(model)

    def other() -> None:
        told(lambda: agree(model, job.timeout), report, "other")

    def warm() -> None:
        if rank == 0:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        method.warm(torch.ones(2, 4))

    told(lambda: agree(model, job.timeout, warm=warm), report, "first")
    if rank:
        other()
    told(lambda: agree(model, job.timeout), report, "second")
