"""Ranks that do not call `gearcache.agree` as the others of their job do: wrongly, late, too seldom, or forked."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import gearcache
from gearcache.errors import GearcacheError, RanksDisagree
from gearcache.ranks import job as meeting_job
from gearcache.ranks import team, whereabouts
from gearcache.ranks.agree import agree
from tests.support.rank_actors import Job, Net, cached, counted, geared

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


class BareStore(dist.Store):
    """A store in Python with the least that gloo needs, and nothing that agree asks for."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def set(self, key: str, value: Any) -> Any:
        return self.inner.set(key, value)

    def get(self, key: str) -> Any:
        return self.inner.get(key)


class PythonStore(BareStore):
    """One that can be asked, and has no `clone`."""

    def check(self, keys: list[str]) -> Any:
        return self.inner.check(keys)


def python_store(job: Job, rank: int, report: Report) -> None:
    """Agree over a store that is written in Python."""
    model = Net()
    method = geared(model)
    group: Any = dist.group.WORLD
    given = group.get_group_store()
    kind = BareStore if job.options["bare"] else PythonStore
    meeting_job._present[:] = [(given, meeting_job._Connection(kind(given.clone())))]
    told(lambda: agree(model, job.timeout), report, "first")
    served(method, report)


def wrongly(job: Job, rank: int, report: Report) -> None:
    """Agree, with `options["wrong"]` on one rank; then again, all alike."""
    model, options = Net(), job.options
    method = geared(model)
    wrong = dict(options["wrong"]) if rank == options["rank"] else {}
    given = {"model": model, "timeout": job.timeout, "on_disagree": options.get("on_disagree", "raise")} | wrong
    if given["model"] == "empty":
        given["model"] = nn.Linear(2, 2)
    told(lambda: agree(**given), report, "first")
    told(lambda: agree(model, job.timeout), report, "second")
    served(method, report)


def held(job: Job, rank: int, report: Report) -> None:
    """Agree twice; at first the lock of one rank's entry is held by somebody who does not end."""
    model = Net()
    method = geared(model)
    with contextlib.ExitStack() as stack:
        if rank == job.options["rank"]:
            entry = method.binding_for(method.call_of((torch.ones(2, 4),), {})).entry
            stack.enter_context(entry.store.exclusive(entry.key))
        told(lambda: agree(model, job.timeout), report, "first")
    told(lambda: agree(model, 30), report, "second")
    served(method, report)


def seldom(job: Job, rank: int, report: Report) -> None:
    """Agree twice; the last rank leaves the first one out."""
    model = Pair()
    encode, decode = cached(model, "encode"), cached(model, "decode")
    if rank < job.world - 1:
        told(lambda: agree(encode, job.timeout), report, "first")
    told(lambda: agree(decode, job.timeout), report, "second")


def late(job: Job, rank: int, report: Report) -> None:
    """Agree twice; the rank of the options comes when the others have given up."""
    model = Net()
    method = geared(model)
    if rank == job.options["rank"]:
        time.sleep(job.options["after"])
    told(lambda: agree(model, job.timeout), report, "first")
    told(lambda: agree(model, 30), report, "second")
    served(method, report)


def gives_up(job: Job, rank: int, report: Report) -> None:
    """Agree twice; rank 1 gives up before rank 0 comes for the first time."""
    model = Net()
    method = geared(model)
    timeout = job.timeout
    if rank == 0:
        time.sleep(2)
    if rank == 1 and job.options["how"] == "interrupted":
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(0.7, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    elif rank == 1:
        timeout = 0.7
    told(lambda: agree(model, timeout), report, "first")
    told(lambda: agree(model, 30), report, "second")
    served(method, report)


def forked(job: Job, rank: int, report: Report) -> None:
    """Agree, while rank 0 forks in `warm`: that process goes on there, or agrees anew."""
    model = Net()
    method = geared(model)
    owner, (reads, writes) = os.getpid(), os.pipe()

    def warm() -> None:
        method.warm(torch.ones(2, 4))
        if rank == 0 and os.fork() == 0 and job.options["again"]:
            found: Report = {}
            told(lambda: agree(model, job.timeout), found, "forked")
            os.write(writes, repr(found["forked"]).encode())
            os._exit(0)

    told(lambda: agree(model, job.timeout, warm=warm), report, "first")
    if os.getpid() != owner:
        os.write(writes, repr(report["first"]).encode())
        os._exit(0)
    if rank == 0:
        report["forked"] = os.read(reads, 4096).decode()
        os.wait()
    told(
        lambda: agree(model, job.timeout, warm=warm if rank else lambda: method.warm(torch.ones(2, 4))),
        report,
        "second",
    )
    served(method, report)


def forked_later(job: Job, rank: int, report: Report) -> None:
    """Agree, then fork; what is forked agrees too."""
    model = Net()
    method = geared(model)
    told(lambda: agree(model, job.timeout), report, "first")
    reads, writes = os.pipe()
    if os.fork() == 0:
        found: Report = {}
        told(lambda: agree(model, job.timeout), found, "forked")
        os.write(writes, repr([found["forked"], method.right.is_missing]).encode())
        os._exit(0)
    report["forked"] = os.read(reads, 4096).decode()
    os.wait()
    told(lambda: agree(model, job.timeout), report, "second")


def slow(job: Job, rank: int, report: Report) -> None:
    """Agree, while each rank looks up for longer than the one before; note what each says while it waits."""
    whereabouts._SAYS_AFTER = 0.0
    look_up, said, delays = team.Team.look_up, [], [rank * 0.8]

    def slowly(self: team.Team) -> Any:
        time.sleep(delays.pop() if delays else 0)
        return look_up(self)

    team.Team.look_up = slowly  # type: ignore[method-assign]
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("gearcache").addHandler(handler)
    logging.getLogger("gearcache").setLevel(logging.WARNING)
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
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("gearcache").addHandler(handler)
    logging.getLogger("gearcache").setLevel(logging.WARNING)
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
