"""Threads and forks in a process of their own: `main` runs the scenario that its arguments name and reports."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import gearcache

METHODS = 4


class Table(dict[str, float]):
    """A dictionary of a user's class: Dynamo is watched while it looks keys up."""


class Block(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
        self.table = Table(factor=factor, other=1.0)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.linear(x))) * self.table["factor"]


class Model(nn.Module):
    def __init__(self, root: Path, number: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(number + 1.0) for _ in range(2))
        self.calls = 0
        config = gearcache.CompilerConfig(backend="eager", strict=True)
        gears = {"gears": {"x": {0: [2, 3]}}} if number % 2 else {}
        # A folder of its own: another key, so that no lock of a key puts the threads in line.
        self.cached = gearcache.cache_compile(self.decode, config=config, cache_dir=root / str(number), **gears)

    def decode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        for block in self.blocks:
            x = block(x)
        return x, x.sum(0)


def is_right(model: Model, size: int) -> bool:
    x = torch.randn(size, 4)
    with torch.no_grad():
        return all(torch.equal(*pair) for pair in zip(model.cached(x), model.decode(x), strict=True))


def mixed(root: Path) -> dict[str, Any]:
    """First calls of many methods, in a process that has not imported Dynamo, beside eager code and `torch.compile`."""
    models = [Model(root, number) for number in range(METHODS)]
    net, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(3, 4)
    compiled = torch.compile(net, backend="eager")
    with torch.no_grad():
        expected = net(x)
    done, beside, errors = threading.Event(), [0, 0, 0], list[str]()
    begin = threading.Barrier(METHODS + len(beside))

    def first(number: int) -> None:
        assert is_right(models[number], 2 + number % 2)

    def eager() -> None:
        while not done.wait(0.002):
            with torch.no_grad():
                assert torch.equal(nn.Sequential(net)(x), expected)
            repr(x)
            beside[0] += 1

    def call() -> None:
        while not done.wait(0.002):
            with torch.no_grad():
                assert torch.equal(compiled(x), expected)
            beside[1] += 1

    def compile_anew() -> None:
        while not done.is_set() and beside[2] < 4:
            block = Block(beside[2])
            with torch.no_grad():
                assert torch.equal(torch.compile(block, backend="eager")(x), block(x))
            beside[2] += 1

    def run(task: Callable[..., None], *arguments: int) -> None:
        try:
            begin.wait(60)
            task(*arguments)
        except BaseException:
            errors.append(traceback.format_exc()[-2000:])

    firsts = [threading.Thread(target=run, args=(first, number)) for number in range(METHODS)]
    others = [threading.Thread(target=run, args=(task,)) for task in (eager, call, compile_anew)]
    for thread in (*firsts, *others):
        thread.start()
    for thread in firsts:
        thread.join()
    done.set()
    for thread in others:
        thread.join()
    return {"errors": errors, "misses": [model.cached.stats.misses for model in models], "beside": beside}


def forked(root: Path) -> dict[str, str]:
    """A fork while another thread traces: what the child and the parent can do after it."""
    from gearcache.ge_cache.capture.hook import GraphHook

    # A forked child has not the threads of its parent's OpenMP pool: eager's own operators wait for them for ever.
    torch.set_num_threads(1)
    loaded, traced = Model(root, 1), Model(root, 2)
    assert is_right(loaded, 2)
    inside, go_on = threading.Event(), threading.Event()
    compile_graph, results = GraphHook.__call__, list[bool]()

    def hold(self: GraphHook, *arguments: Any) -> Any:
        inside.set()
        if not go_on.is_set():
            go_on.wait(120)
        return compile_graph(self, *arguments)

    GraphHook.__call__ = hold  # type: ignore[method-assign]
    thread = threading.Thread(target=lambda: results.append(is_right(traced, 3)))
    thread.start()
    assert inside.wait(60)
    children = {
        "loaded": lambda: is_right(loaded, 2) and is_right(loaded, 3),
        "new": lambda: is_right(Model(root, 3), 2),
        "compile": lambda: bool(torch.compile(nn.ReLU(), backend="eager")(torch.ones(2)).sum() == 2),
    }
    report = {name: outcome(fork(child, go_on)) for name, child in children.items()}
    # This one needs the key that the parent's thread holds: it waits until that is done, and loads.
    pid = fork(lambda: is_right(traced, 3) and traced.cached.stats.traces == 0, go_on)
    go_on.set()
    report["same"] = outcome(pid)
    thread.join(60)
    return report | {"parent": "right" if results == [True] and is_right(Model(root, 4), 2) else "wrong"}


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def run(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x)) * 2 if x.size(0) > 3 else self.linear(x) - 1


def interrupted(root: Path) -> dict[str, Any]:
    """Ctrl-C at many moments of a compile: later calls are right, at sizes on both sides of a branch."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    def cached(number: int) -> tuple[Branching, Any]:
        net, config = Branching(), gearcache.CompilerConfig(backend="eager", strict=True)
        gears = {"x": {0: [2, 5]}}
        return net, gearcache.cache_compile(net.run, config=config, cache_dir=root / str(number), gears=gears)

    def wrong(net: Branching, method: Any) -> bool:
        tensors = [torch.randn(rows, 4) for rows in (2, 5)]
        with torch.no_grad():
            return any(not torch.equal(method(x), net.run(x)) for x in tensors)

    assert not wrong(*cached(0))  # imports Dynamo
    signal.signal(signal.SIGALRM, stop)
    moments = 12 if os.environ.get("THOROUGH") else 8
    duration, report = 0.0, {"interrupted": 0, "wrong": 0, "graphs": 0}
    for number in range(moments + 1):
        net, method = cached(number + 1)
        begin = time.monotonic()
        try:
            signal.setitimer(signal.ITIMER_REAL, duration * number / moments)
            method(torch.randn(2, 4))
        except (KeyboardInterrupt, gearcache.GearcacheError):  # Dynamo makes a refusal of one within an operator
            report["interrupted"] += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        duration = duration or time.monotonic() - begin
        report["wrong"] += wrong(net, method)
        report["graphs"] += sum(method.stats.gears.values()) >= 2
    return report | {"moments": moments}


def fork(task: Callable[[], bool], go_on: threading.Event) -> int:
    """Do something in a forked child, which ends itself when it takes too long."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(100)
        code = 1
        try:
            go_on.set()
            code = 0 if task() else 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def outcome(pid: int) -> str:
    """Return how a child ended."""
    _, status = os.waitpid(pid, 0)
    return "right" if status == 0 else f"status {status}"


def main() -> None:
    """Run the scenario that the command line names."""
    root, scenario = Path(sys.argv[-2]), sys.argv[-1]
    print(json.dumps({"mixed": mixed, "forked": forked, "interrupted": interrupted}[scenario](root)))
