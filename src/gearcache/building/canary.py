"""Traces a small method on an untested release of torch, to check that Dynamo still calls our probes.

A function of Dynamo may keep its name and parameters although Dynamo no longer calls it; the probe there would then
see nothing. `Canary` uses a little of everything that probes watch; its graphs are discarded.
"""

from __future__ import annotations

import collections
import copy
import functools
import importlib.util
import itertools
import logging
import math
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from gearcache.errors import CaptureError, UncalledProbes
from gearcache.ge_cache.capture.capture import capture_method
from gearcache.ge_cache.capture.number_choice import NumberChoice
from gearcache.ge_cache.capture.turns import turn
from gearcache.ge_cache.graphs.static import lift_attributes, trace_gear
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.private_torch import fake as private_fake
from gearcache.ge_cache.private_torch.probe_calls import ProbeCalls, watched_probes
from gearcache.interrupts import raise_interrupt
from gearcache.torch_release import NEWEST, TESTED_TEXT

logger = logging.getLogger("gearcache")
#: Classes of torch whose probes `Canary` does not reach: of process groups, which a process may not have.
_UNREACHED = ("TorchScriptObjectVariable", "CustomClassObjectVariable")
#: Those of arrays; left out if NumPy is not installed.
_OF_NUMPY = ("NumpyNdarrayVariable",)
#: How errors of an unfinished Dynamo trace begin; other errors are refusals of gearcache.
_FAILURES = ("Dynamo ", "its trace ends")
_FACTOR = 2.0


def check_probes(version: str) -> None:
    """Raise `UncalledProbes` if Dynamo or the recording of graphs does not call a probe.

    Meant for an untested release; the check runs once per process.
    """
    if private_core.torch_function_modes() > 0:  # nothing is traced under such a mode
        return
    uncalled, cause = uncalled_probes()
    if uncalled:
        raise UncalledProbes(version, TESTED_TEXT, NEWEST, uncalled, cause)


@functools.cache
def uncalled_probes() -> tuple[tuple[str, ...], str]:
    """Return the functions of torch whose probes are not called when `Canary` is traced.

    Also returns the reason if a trace fails that should succeed.
    """
    cause = ""
    with watched_probes() as calls, private_fake.normal_modes():
        for method, arguments in _calls(Canary()):
            try:
                with turn():
                    _record(method, arguments)
            except CaptureError as error:  # some of the watched operations are refused
                raise_interrupt(error)
                cause = cause or (error.cause if error.cause.startswith(_FAILURES) else "")
            except Exception as error:
                raise_interrupt(error)
                cause = cause or f"{type(error).__name__}: {error}"
    return _reachable(calls), cause


def _reachable(calls: ProbeCalls) -> tuple[str, ...]:
    left_out = _UNREACHED if importlib.util.find_spec("numpy") else (*_UNREACHED, *_OF_NUMPY)
    return tuple(sorted({place for place in calls.uncalled if not any(name in place for name in left_out)}))


def _calls(canary: Canary) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield the functions to trace, with their arguments."""
    from gearcache.ge_cache.private_torch.corrections.containers import deque_variable  # imports Dynamo

    x = torch.ones(3, 2, device="cpu")
    yield canary.watched, (x, 5, importlib.util.find_spec("numpy") is not None)
    yield canary.refused_at_once, (x,)
    yield canary.of_storage, (x,)
    if deque_variable() is not None:
        yield canary.copied, (x,)
    yield canary.recorded, (x,)


def _record(method: Any, arguments: tuple[Any, ...]) -> None:
    numbers = NumberChoice(arguments=True)
    name = f"{Canary.__name__}.{method.__name__}"
    capture = capture_method(method, arguments, {}, method=name, dynamic=bool(arguments[1:]), numbers=numbers)
    try:
        trace_gear(capture, lift_attributes(capture), None, {})
    finally:
        capture.drop_references()


class Kind:
    """A class whose objects and attributes the trace uses."""

    size = 2

    def __init__(self, name: str) -> None:
        self.name = name

    def __contains__(self, item: object) -> bool:
        return item == self.name


class Slotted:
    """A class whose objects have a slot."""

    __slots__ = ("part",)
    part: int

    def __init__(self, part: int) -> None:
        self.part = part


class Table(dict[str, int]):
    """A dictionary of a user-defined class."""


class Queue(collections.deque[int]):
    """A deque of a user-defined class."""


class Ordered(collections.OrderedDict[str, int]):
    """An ordered dictionary of a user-defined class."""


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _constant() -> int:
    return 3


# Dynamo unwraps it as it does a `functools.lru_cache`, of which it would warn.
@torch.jit.script_if_tracing  # type: ignore[untyped-decorator]
def _unwrapped(number: int) -> int:
    return number * 2


def _generated(n: int) -> Iterator[int]:
    for each in range(n):  # noqa: UP028  # with Python 3.10 Dynamo cannot trace `yield from`
        yield each


class Canary(torch.nn.Module):
    """Uses a little of everything that probes watch; each line reaches probes that no other line reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.kind: Any = Kind("a")
        self.slotted, self.own = Slotted(2), Table(a=1)
        self.table, self.names = {"a": 1, "b": 2}, {"a", "b"}
        self.ordered, self.subclass = collections.OrderedDict(a=1), Ordered(a=1)
        self.queue, self.own_queue = collections.deque([1, 2], maxlen=2), Queue([1, 2], 2)

    def watched(self, x: Any, n: int, has_numpy: bool) -> Any:
        """Return a reference to every result; what is refused here is refused at the end of the trace."""
        instance = Kind("b")
        iterator = iter([1, 2])
        total = x * _FACTOR * _constant() + next(iterator)
        total = total + self._objects(instance) + self._containers() + self._ordered() + self._iterated(n)
        total = total + self._raised() + self._numbers(n, instance) + self._tensors(x, n)
        if has_numpy:
            total = total + x.numpy().ndim
        logger.debug("said by a canary")
        return total, _generated(2), vars(instance), map(str, [1]), iterator, weakref.ref(instance)

    def _objects(self, instance: Any) -> Any:
        instance.more = 1
        slots: Any = Slotted
        copied = copy.copy(self.kind)
        total = hasattr(Kind, "size") + hasattr(math, "pi") + hasattr(self.kind, "other") + isinstance(copied, Kind)
        total += issubclass(Kind, Slotted) + ("a" in self.kind) + (type(self.kind) is Kind) + Kind.size
        total += slots.part.__get__(self.slotted) + len(Kind.__name__) + (self.kind == self.slotted)
        total += importlib.util.find_spec("torch") is None
        total += ("name" in self.kind.__dict__) + len(list(self.kind.__dict__)) + ("more" in vars(instance))
        return total + len([*vars(instance)])

    def _containers(self) -> Any:
        items, some, pair = [1], {1, 2}, (self.kind, 1)
        items.extend({3, 4})
        some.add(3)
        total = self.table["a"] + self.table.get("b", 0) + ("c" in self.table) + self.own["a"] + bool(self.table)
        for name in self.table:
            total += len(name)
        total += ("a" in self.table.keys()) + len(list(self.table.keys()))  # noqa: SIM118
        total += len(str(self.table)) + (1 in [2, 1]) + len(sorted(self.names)) + len(dict.fromkeys(self.names))
        return total + len(items) + len(pair[0].name) + len(dict(self.own)) + len(self.table | self.own)

    def _ordered(self) -> Any:
        queue = collections.deque([1, 2], maxlen=2)
        queue.append(3)
        self.queue.append(3)
        self.ordered.move_to_end("a")
        copied, joined = self.subclass.copy(), self.subclass | self.subclass
        return len(queue * 2) + len(repr(self.ordered)) + len(repr(self.subclass)) + len(copied) + len(joined)

    def _iterated(self, n: int) -> Any:
        total = (
            sum(_generated(2))
            + sum({1, 2})
            + _unwrapped(2)
            + (2 in range(3))
            + max(1, 2)
            + all([1, n])
            + len(repr([{1, 2}]) + repr({1, 2}))
        )
        for _, group in itertools.groupby([1, 1, 2]):
            total += len(list(group))
        return total

    def _raised(self) -> Any:
        try:
            return self.table["c"]
        except KeyError as error:
            return len(error.args) + len(repr(error))

    def _numbers(self, n: Any, instance: Any) -> Any:
        if n > 3:
            n = round(n) + max(n, 3)
        text = f"{self.kind.name}" + "{}".format(self.kind.size)  # noqa: UP032
        total = hash("a") % 2 + instance.__hash__() % 2 + len(object.__repr__(instance))
        return n * 0.5 + ([n] < [4]) + total + len({id(instance): 1}) + len(text)

    def _tensors(self, x: Any, n: int) -> Any:
        y = x + n
        y.transpose_(0, 1)
        total = x.shape[0] + x.size(0) + x.is_contiguous() + (x is y) + x.ndim + hasattr(x, "tag")
        (x + 1).requires_grad_()
        with torch.no_grad():
            total = total + x.real
        torch.set_grad_enabled(False)
        return total + y.T

    def refused_at_once(self, x: Any) -> Any:
        """Do something that ends a trace."""
        return x * len(f"{x}")

    def of_storage(self, x: Any) -> Any:
        """Ask the storage of a tensor, which ends a trace too."""
        return x * x.untyped_storage().size()

    def copied(self, x: Any) -> Any:
        """Copy a deque of a user-defined class."""
        return x * len(self.own_queue.copy()) * len(self.own_queue * 2) * len(self.own_queue + self.own_queue)

    def recorded(self, x: Any) -> Any:
        """Compute something that is recorded as operators of a gear."""
        return torch.nn.functional.dropout(x.view(3, 1, 2), 0.5, False)
