"""Calls under every pairing of modes, compared with eager: in the process that compiles and in a relaunched one."""

from __future__ import annotations

import copy
import itertools
import json
import random
import sys
from collections.abc import Container, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import gearcache
from tests.scenarios.modes import ASKING, METHODS, MODES, SIDES, Method, Net, made, without_recording
from tests.support.scenarios import COMPILERS, strict_config

ALL = METHODS | ASKING
#: Inputs that require grad are refused where autograd is on.
INPUTS = (*SIDES, "requires grad")


@dataclass(frozen=True)
class Case:
    """One entry: how it is compiled. Everything is served from it."""

    method: str
    mode: str
    weights: str
    inputs: str

    @property
    def folder(self) -> str:
        return f"{self.method}-{self.mode}-{self.weights}-{self.inputs}".replace(" ", "_")


def cases(methods: list[str], twice: Container[str] = ()) -> list[Case]:
    """One of the twelve ways to compile each method first, another for the next one; of some two of them."""
    ways = list(itertools.product(MODES, SIDES, SIDES))
    return [
        Case(method, *ways[(7 * number + more) % len(ways)])
        for number, method in enumerate(methods)
        for more in ((0, 6) if method in twice else (0,))
    ]


def serve(case: Case, root: str, *, relaunched: bool) -> dict[str, Any]:
    """Call one method under all modes; return what differed from eager, and what it cost."""
    shuffled = random.Random(case.folder)
    report: dict[str, Any] = {"differences": [], "refusals": 0, "right": 0}
    for weights in SIDES if relaunched else (case.weights,):
        method = ALL[case.method]
        net, reference = (made(weights, method.net) for _ in range(2))
        cached = gearcache.cache_compile(
            getattr(net, method.name),
            config=strict_config(**method.options),
            cache_dir=str(Path(root, case.folder)),
            **method.parameters,
        )
        calls = [call for call in itertools.product(MODES, INPUTS) if call != ("grad", "requires grad")]
        shuffled.shuffle(calls)
        if not relaunched:
            calls.insert(0, (case.mode, case.inputs))
        for number, (mode, side) in enumerate([*calls, *reversed(calls)]):
            for make in method.arguments:
                _compare(method, net, reference, cached, (mode, side, make), report)
            if number == 0:
                report["traces of the first call"] = cached.stats.traces
        stats = cached.stats
        report["traces"] = report.get("traces", 0) + stats.traces
        report["misses"] = report.get("misses", 0) + stats.misses
        checks = [len(graph._checks) for graph in _graphs(cached)]
        report["checks"] = max([report.get("checks", 0), *checks])
    report["entries"] = len(list(Path(root, case.folder).rglob("manifest*")))
    return report


def _graphs(cached: Any) -> Iterator[Any]:
    for binding in cached._bindings:
        for active in binding.loaded.variants:
            yield from active.graphs


def _compare(
    method: Method,
    net: Net,
    reference: Net,
    cached: Any,
    call: tuple[str, str, Any],
    report: dict[str, Any],
) -> None:
    mode, side, make = call
    arguments = made(side, make)
    theirs = made(side, lambda: copy.deepcopy(arguments))
    if side == "requires grad":
        arguments[0].requires_grad_()
        theirs[0].requires_grad_()
    recording = MODES[mode]() if method.name in ASKING else without_recording(mode)
    expected, after = _outcome(getattr(reference, method.name), theirs, recording)
    found, found_after = _outcome(cached, arguments, MODES[mode]())
    where = f"{mode}, inputs {side}"
    if isinstance(expected, Exception) or isinstance(found, Exception):
        # Eager has written by the time it raises.
        with torch.inference_mode():
            for ours, other in zip(net.buffers(), reference.buffers(), strict=True):
                ours.copy_(other)
        report["refusals"] += 1
        is_clear = isinstance(found, gearcache.GearcacheError) and "inference tensor" in str(found)
        is_declared = (
            isinstance(found, gearcache.GearcacheError) and bool(method.refusal) and method.refusal in str(found)
        )
        # Nothing is saved for a backward pass by a cached call.
        is_saved = "saved for backward" in str(expected) and not isinstance(found, Exception)
        if not ((isinstance(expected, RuntimeError) and is_clear) or is_declared or is_saved):
            report["differences"].append(f"{where}: eager {expected!r}, found {found!r}"[:600])
        return
    report["right"] += 1
    if after != found_after and method.name in ASKING:
        report["differences"].append(f"{where}: modes afterwards {after}, found {found_after}")
    ours = _described(found, arguments, net, mode)
    other = _described(expected, theirs, reference, mode)
    # The libraries sum the products of another number of rows in another order.
    tolerance = 1e-5 if method.options.get("on_miss") == "pad" else 0.0
    if not _same(ours, other, tolerance):
        report["differences"].append(f"{where}: eager {other}, found {ours}"[:1500])


def _outcome(function: Any, arguments: Any, mode: Any) -> tuple[Any, tuple[bool, bool]]:
    """Return what a call gives or raises, and the modes that it leaves."""
    with mode:
        try:
            result = function(*arguments)
        except Exception as error:
            result = error
        return result, (torch.is_grad_enabled(), torch.is_inference_mode_enabled())


def _same(ours: list[Any], other: list[Any], tolerance: float) -> bool:
    """Tell whether the two descriptions are equal, values within the tolerance (absolute and relative)."""
    if [facts for facts, _ in ours] != [facts for facts, _ in other]:
        return False
    return all(
        torch.allclose(torch.tensor(found), torch.tensor(expected), rtol=tolerance, atol=tolerance, equal_nan=True)
        for (_, found), (_, expected) in zip(ours, other, strict=True)
    )


def _described(result: Any, arguments: Any, net: Net, mode: str) -> list[Any]:
    """Return what can be told of a call: results, arguments, state of the module, and which of them share memory.

    Each tensor is a pair: what must be equal, and its values.
    """
    state = [*net.parameters(), *net.buffers(), *([net.seen] if hasattr(net, "seen") else [])]
    tensors = [*_tensors(result), *_tensors(arguments), *state]
    storages = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [
        (
            [
                str(tensor.dtype),
                list(tensor.shape),
                list(tensor.stride()),
                tensor.storage_offset(),
                tensor.is_inference(),
                tensor.requires_grad if mode != "grad" else None,
                storages.index(tensor.untyped_storage().data_ptr()),
                next(index for index, other in enumerate(tensors) if other is tensor),
            ],
            tensor.detach().double().flatten().tolist(),
        )
        for tensor in tensors
    ]


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    return [tensor for item in items for tensor in _tensors(item)]


def child() -> None:
    """The fresh process: serve the cases that the first argument orders, print the reports."""
    order = json.loads(sys.argv[1])
    reports = [serve(Case(**case), order["root"], relaunched=True) for case in order["cases"]]
    imported = [name for name in COMPILERS if name in sys.modules]
    print(json.dumps({"reports": reports, "imported": imported}))


def order_of(chosen: list[Case], root: Path) -> str:
    """What `child` takes."""
    return json.dumps({"cases": [asdict(case) for case in chosen], "root": str(root)})
