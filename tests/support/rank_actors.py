"""Ranks of small jobs that agree: real processes with gloo, forked from a server that has imported everything once.

A `Job` says what each rank does; `run_job` starts the ranks and returns their reports. A rank without a report was
killed.
"""

from __future__ import annotations

import importlib
import json
import logging
import multiprocessing
import os
import secrets
import signal
import socket
import threading
import time
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
from torch import Tensor, nn

import gearcache
import gearcache.building.build
import gearcache.serving.miss.unserved
from gearcache.errors import CaptureError, GearcacheError, RanksDisagree
from gearcache.ranks import job as meeting_job
from gearcache.ranks import meeting, seat, team
from tests.support import parallel_models

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.support.rank_server"])


@dataclass
class Job:
    """One start of a job: `task` is a function below, or one of `stray_ranks` or another helper.

    `faults` say what befalls which rank, and where.
    """

    folder: Path
    task: str = "decode"
    world: int = 2
    faults: Mapping[int, str] = field(default_factory=dict)
    timeout: float = 30.0
    options: Mapping[str, Any] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    #: Port of a store that others host; 0: rank 0 does.
    port: int = 0
    #: Folder of the cache of each rank; by default one for all.
    caches: Mapping[int, str] = field(default_factory=dict)
    #: Tiers of all ranks.
    remotes: str = ""
    #: Seconds until the ranks that are left are ended.
    limit: float = 60.0


def run_job(job: Job) -> list[dict[str, Any]]:
    """Run all ranks; return their reports in order, `{}` for a rank that was killed."""
    port, start = job.port or free_port(), secrets.token_hex(4)
    ranks = [FORKS.Process(target=_rank, args=(job, rank, port, start), daemon=True) for rank in range(job.world)]
    for process in ranks:
        process.start()
    end = time.monotonic() + job.limit
    for rank, process in enumerate(ranks):
        if "hang" in job.faults.get(rank, "") or "stop" in job.faults.get(rank, ""):
            continue
        process.join(max(0.1, end - time.monotonic()))
    for process in ranks:
        if process.is_alive():
            process.kill()
            process.join()
    return [_read(job, rank) for rank in range(job.world)]


def free_port() -> int:
    """Return a port of this host that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _report_path(job: Job, rank: int) -> Path:
    return job.folder / f"report-{rank}.json"


def _read(job: Job, rank: int) -> dict[str, Any]:
    path = _report_path(job, rank)
    try:
        return json.loads(path.read_text())  # type: ignore[no-any-return]
    except FileNotFoundError:
        return {}
    finally:
        path.unlink(missing_ok=True)


def _rank(job: Job, rank: int, port: int, start: str) -> None:
    logging.getLogger("gearcache").setLevel(logging.ERROR)
    os.environ.update(job.environ)
    os.environ["TORCHAIR_CACHE_HOME"] = str(job.folder / job.caches.get(rank, "cache"))
    os.environ["GEARCACHE_PROGRESS"] = "0"
    os.environ["GEARCACHE_REMOTES"] = job.remotes
    torch.set_num_threads(1)
    seat.GRACE = 1.0
    if job.port:
        store: Any = dist.TCPStore("127.0.0.1", port, is_master=False)
        fresh = dist.PrefixStore(start, store)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", rank=rank, world_size=job.world, store=fresh)
        # gloo cannot start twice in one store. What is agreed lies where an earlier start has left its votes.
        group: Any = dist.group.WORLD
        meeting_job._present[:] = [(group.get_group_store(), meeting_job._Connection(store))]
    else:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=job.world)
    fault = job.faults.get(rank, "")
    _arrange(fault)
    report: dict[str, Any] = {}
    begin = time.monotonic()
    try:
        module, _, name = job.task.replace(" ", "_").rpartition(".")
        task = globals().get(name) or getattr(importlib.import_module(f"tests.support.{module or 'stray_ranks'}"), name)
        task(job, rank, report)
    except RanksDisagree as error:
        report |= {"error": str(error), "rank": error.rank, "reason": error.reason}
    except GearcacheError as error:
        report |= {"error": f"{type(error).__name__}: {error}"}
    except Exception as error:
        report |= {"crash": f"{type(error).__name__}: {error}"}
    report["seconds"] = time.monotonic() - begin
    path = _report_path(job, rank)
    path.with_suffix(".new").write_text(json.dumps(report))
    path.with_suffix(".new").rename(path)
    os._exit(0)  # without the process group, whose end would wait for ranks that are gone


def _arrange(fault: str) -> None:
    """Let something befall this rank: `kill`, `hang`, `stop` (the whole process stands still) or `raise` at a phase."""
    kind, _, phase = fault.partition(" at ")
    if not kind:
        return
    owner, name = _PHASES[phase]
    before = getattr(owner, name)

    def befall(*args: Any, **kwargs: Any) -> Any:
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if kind == "hang":
            time.sleep(600)
        if kind == "raise":
            raise ZeroDivisionError("the rank's own fault")
        if kind == "interrupt":
            raise KeyboardInterrupt
        if kind == "interrupted":  # soon, while it waits
            signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs in the background
            threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        return before(*args, **kwargs)

    setattr(owner, name, befall)


_PHASES: dict[str, tuple[Any, str]] = {
    "arrival": (meeting.Meeting, "open"),
    "lookup": (team.Team, "look_up"),
    "compile": (team.PieceWork, "compile"),
    "adoption": (team.PieceWork, "adopt"),
    "load": (team.Team, "load"),
}


TWO_BY_FOUR = gearcache.TensorSpec((2, 4), torch.float32)


class Net(nn.Module):
    """One declared method with two gears."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(float(width)))

    def decode(self, x: Tensor) -> Tensor:
        return x * self.weight + 1


def config(**options: Any) -> Any:
    return gearcache.CompilerConfig(**{"backend": "eager", "strict": True} | options)


def cached(model: Any, name: str, *specs: Any, **options: Any) -> Any:
    """Cache one method with its arguments declared."""
    method = gearcache.cache_compile(
        getattr(model, name),
        config=config(**options),
        input_signature=specs or (gearcache.TensorSpec((2, 4), torch.float32),),
    )
    setattr(model, name, method)
    return method


def geared(model: Any) -> Any:
    method = gearcache.cache_compile(
        model.decode,
        config=config(),
        input_signature=(gearcache.TensorSpec((gearcache.Symbol("batch", gears=[2, 3]), 4), torch.float32),),
    )
    model.decode = method
    return method


def agree(model: Any, timeout: float, **options: Any) -> bool:
    """Agree; nothing but an error says that the ranks do not."""
    gearcache.agree(model, timeout, **options)
    return True


def counted(report: dict[str, Any], *methods: Any) -> None:
    """Note what the methods did."""
    stats = [method.stats for method in methods]
    report["compiled"] = sum(found.compiles for found in stats)
    report["traces"] = sum(found.traces for found in stats)


def decode(job: Job, rank: int, report: dict[str, Any]) -> None:
    """Agree on one model, then serve it."""
    model = Net()
    method = geared(model)
    try:
        report["agreed"] = agree(model, job.timeout)
        report["result"] = float(method(torch.ones(2, 4)).sum())
    finally:
        counted(report, method)
        report["eager"] = dict(method.stats.eager_reasons)


class OneRow(nn.Module):
    """A method of two rows and more, or of any: a trace that fails says nothing of the global that decides it."""

    def decode(self, x: Tensor) -> Tensor:
        if x.size(0) == 1 and not TAKES_ONE_ROW:
            raise ValueError("one row is too few")
        return x * 2


TAKES_ONE_ROW = False


def open_rows(job: Job, rank: int, report: dict[str, Any]) -> None:
    """Agree on a method with an open dim, of which no graph of size 1 can be made, unless the job says so."""
    global TAKES_ONE_ROW
    TAKES_ONE_ROW = bool(job.options.get("takes one row"))
    model = OneRow()
    method = cached(model, "decode", gearcache.TensorSpec((None, 4), torch.float32))
    report["agreed"] = agree(model, job.timeout)
    report["result"] = float(method(torch.ones(2, 4)).sum())
    counted(report, method)
    if TAKES_ONE_ROW:
        report["one row"] = float(method(torch.ones(1, 4)).sum())


def two_models(job: Job, rank: int, report: dict[str, Any]) -> None:
    """Agree on two models, one after the other, and on both at once; note what is warned of."""
    report["warnings"] = warnings_from_now_on()
    first, second = Net(), Net(6)
    methods = [geared(first), cached(second, "decode", gearcache.TensorSpec((2, 6), torch.float32))]
    report["agreed"] = [
        agree(first, job.timeout),
        agree(second, job.timeout),
        agree([first, {"b": second}], job.timeout),
    ]
    report["result"] = [float(methods[0](torch.ones(2, 4)).sum()), float(methods[1](torch.ones(2, 6)).sum())]
    counted(report, *methods)


def later_miss(job: Job, rank: int, report: dict[str, Any]) -> None:
    """After the agreement, for each `on_miss`: a call that nobody declared, then an agreement on it."""
    model, report["found"] = Net(), {}
    for rows, on_miss in enumerate(("compile", "eager", "background"), start=5):
        method = gearcache.cache_compile(model.decode, config=config(on_miss=on_miss), dynamic=False)
        call, found = torch.ones(rows, 4), {"wanted": 10.0 * rows}
        agree(method, job.timeout, warm=lambda method=method: method.warm(torch.ones(2, 4)))
        before = method.stats.compiles
        try:
            found["later"] = float(method(call).sum())
        except GearcacheError as error:
            found["later"] = f"{type(error).__name__}: {error}"
        found |= {"compiled when called": method.stats.compiles - before, "eager": dict(method.stats.eager_reasons)}
        agree(method, job.timeout, warm=lambda method=method, call=call: method.warm(call))
        found["again"] = float(method(call).sum())
        report["found"][on_miss] = found


class Stages(nn.Module):
    """The stages of a pipeline: each rank has its own work, and calls it by itself."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(Net(4) for _ in range(1 + rank % 2))

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part.decode(x)  # type: ignore[operator]
        return x


def stages(job: Job, rank: int, report: dict[str, Any]) -> None:
    """Three ranks: a stage of two tensor-parallel ranks, and one of a single rank."""
    groups = [dist.new_group([0, 2]), dist.new_group([1])]
    model = Stages(rank)
    method = cached(model, "forward")
    report["agreed"] = agree(model, job.timeout)
    found = method(torch.ones(2, 4))
    dist.all_reduce(found, group=groups[rank % 2])
    report["result"] = float(found.sum())
    counted(report, method)


def undeclared(job: Job, rank: int, report: dict[str, Any]) -> None:
    """A method whose calls nobody declared on rank 1; `warm` names one, where the job says so."""
    model = Net()
    method = gearcache.cache_compile(
        model.decode, config=config(), input_signature=(TWO_BY_FOUR,) if rank == 0 else None
    )
    model.decode = method  # type: ignore[assignment]
    warm = (lambda: method.warm(torch.ones(2, 4))) if job.options.get("warm") else None
    report["agreed"] = agree(model, job.timeout, warm=warm)
    report["result"] = float(method(torch.ones(2, 4)).sum())
    counted(report, method)


def parallel(job: Job, rank: int, report: dict[str, Any]) -> None:
    """Decode in tensor parallel, over all ranks or in pairs, with a cached method and without."""
    group, size = dist.group.WORLD, job.world
    for _ in range(job.options.get("groups before", 0)):  # those that follow have other names
        dist.new_group()
    if job.options.get("pairs"):
        group, size = [dist.new_group([start, start + 1]) for start in range(0, job.world, 2)][rank // 2], 2
    model = parallel_models.ParallelDecoder(group, rank, size)
    plain = model.decode
    specs = [gearcache.TensorSpec((2, *sizes), torch.float32) for sizes in ((8,), (8 // size,), (8 // size,))]
    method = cached(model, "decode", *specs, backend=job.options.get("backend", "eager"))
    report["agreed"] = agree(model, job.timeout)
    torch.manual_seed(0)
    x, keys, values = torch.randn(2, 8), torch.randn(2, 8 // size), torch.randn(2, 8 // size)
    with torch.no_grad():
        wanted = plain(x, keys, values)
    found = method(x, keys, values)
    report["equal"] = all(torch.allclose(one, other) for one, other in zip(found, wanted, strict=True))
    if rank % 2:
        time.sleep(0.5)
    report["turns"] = _turns_during(lambda: method(x, keys, values))
    counted(report, method)
    if job.options.get("exports"):
        try:
            gearcache.export(method, job.folder / f"package-{rank}")
        except CaptureError as error:
            report["exported"] = str(error)


def _turns_during(call: Callable[[], Any]) -> int:
    """Return how often another thread had its turn in a call: as long as that keeps Python's lock, never."""
    turns, ended = 0, threading.Event()

    def count() -> None:
        nonlocal turns
        while not ended.wait(0.01):
            turns += 1

    thread = threading.Thread(target=count)
    thread.start()
    call()
    ended.set()
    thread.join()
    return turns


def bound(job: Job, rank: int, report: dict[str, Any]) -> None:
    """Serve methods that know their rank, and some that do not."""
    starts = range(0, job.world, 2)
    pairs = [dist.new_group([start, start + 1]) for start in starts]
    across = [dist.new_group(list(range(place, job.world, 2))) for place in range(2)]
    again = [dist.new_group([start, start + 1]) for start in starts]
    model = parallel_models.RankBound(rank, job.world, pairs[rank // 2], across[rank % 2], again[rank // 2])
    uneven = parallel_models.Uneven(rank)
    owners = {name: model if hasattr(model, name) else uneven for name in job.options["names"]}
    plain = {name: getattr(owner, name) for name, owner in owners.items()}
    methods = {name: cached(owner, name) for name, owner in owners.items()}
    report["agreed"] = agree([model, uneven], job.timeout)
    x = torch.arange(8.0).reshape(2, 4)
    report["wrong"] = []
    for name, method in methods.items():
        with torch.no_grad():
            wanted = plain[name](x)
        if not torch.equal(method(x), wanted):
            report["wrong"].append(name)
    report["compiles"] = {name: method.stats.compiles for name, method in methods.items()}
    report["all_traces"] = sum(method.stats.traces for method in methods.values())


class Decorated(nn.Module):
    """A method that is cached in its class, in a part of a model."""

    @gearcache.cache_compile(config=config(), input_signature=(TWO_BY_FOUR,))
    def encode(self, x: Tensor) -> Tensor:
        return x * 3


def _plus_one(self: nn.Module, input: Tensor) -> Tensor:
    return input + 1


def attached(job: Job, rank: int, report: dict[str, Any]) -> None:
    """Agree on a model with an attached part and a decorated one; then exchange the forward of the first."""
    model = nn.ModuleDict({"head": nn.Identity(), "encoder": Decorated()})
    head = gearcache.attach(model["head"], config=config(), input_signature=(TWO_BY_FOUR,))
    report["agreed"] = agree(model, job.timeout)
    encoder: Any = model["encoder"]
    x = torch.ones(2, 4)
    report["result"] = [float(model["head"](x).sum()), float(encoder.encode(x).sum())]
    counted(report, head, encoder.encode)
    model["head"].forward = types.MethodType(_plus_one, model["head"])
    try:
        report["exchanged"] = float(model["head"](x).sum())
    except GearcacheError as error:
        report["exchanged"] = type(error).__name__


def without(job: Job, rank: int, report: dict[str, Any]) -> None:
    """Serve two methods without agreeing first."""
    model, other = Net(), Net(6)
    methods = [geared(model), cached(other, "decode", gearcache.TensorSpec((2, 6), torch.float32))]
    report["warnings"] = warnings_from_now_on()
    methods[0](torch.ones(2, 4))
    methods[1](torch.ones(2, 6))


def warnings_from_now_on() -> list[str]:
    """Return a list that takes the warnings of gearcache."""
    warnings: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("gearcache").addHandler(handler)
    logging.getLogger("gearcache").setLevel(logging.WARNING)
    return warnings
