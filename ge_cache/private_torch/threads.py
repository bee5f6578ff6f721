"""Private names of torch with process-wide state while one thread traces or records. Each has a test."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import torch

from gearcache.ge_cache.capture.exchanged import exchanged, here


def compile_lock() -> Any:
    """Return the lock under which Dynamo compiles for `torch.compile`; imports all that a trace needs."""
    from torch._dynamo import convert_frame

    return convert_frame.compile_lock


def free_compile_lock() -> None:
    """In a forked child: free Dynamo's lock if a thread that does not exist here holds it."""
    module = sys.modules.get("torch._dynamo.convert_frame")
    lock = getattr(module, "compile_lock", None)
    if lock is not None and not is_owned(lock):
        lock._at_fork_reinit()


def is_owned(lock: Any) -> bool:
    """Whether this thread holds an `RLock`."""
    return bool(lock._is_owned())


@contextlib.contextmanager
def own_recording() -> Iterator[None]:
    """Isolate `make_fx` of this thread from other threads, in both directions.

    `torch.fx` marks the whole process as being traced, so that functions under `torch.compile` refuse to run, and
    replaces `Module.__call__` and `Module.__getattr__`, though a recording of operators needs neither. And the modes
    before dispatch are in one global, from which printing a tensor in any thread takes them for a moment.
    """
    from torch import _ops as operators
    from torch.fx.experimental.proxy_tensor import PythonKeyTracer

    tracer: Any = PythonKeyTracer
    module: Any = operators
    modes = _OwnModes(module._mode_stack_state_for_pre_dispatch)
    with exchanged(
        [(tracer, "trace", here(_trace, tracer.trace)), (module, "_mode_stack_state_for_pre_dispatch", modes)]
    ):
        yield


@contextlib.contextmanager
def own_guards() -> Iterator[None]:
    """Let traces of this thread record guards on sizes, and restore the thread's state.

    `ShapeEnv.suppress_guards` keeps its state in a global of the thread. An interrupt at its start leaves it set, and
    then no later trace of the thread, under `torch.compile` or here, would have a guard on a size.
    """
    from torch.fx.experimental import symbolic_shapes

    state = vars(symbolic_shapes.TLS)
    saved_state = dict(state)
    try:
        state.clear()
        yield
    finally:
        state.clear()
        state.update(saved_state)


def _trace(tracer: Any, root: Any, concrete_args: Any = None) -> torch.fx.Graph:
    """Record a function, as `torch.fx.Tracer.trace` would, without replacing anything in the process."""
    tracer.root = torch.nn.Module()
    tracer.graph = torch.fx.Graph(tracer_cls=type(tracer))
    tracer.tensor_attrs = {}
    function, arguments = tracer.create_args_for_root(root, False, concrete_args)
    tracer.create_node("output", "output", (tracer.create_arg(function(*arguments)),), {})
    tracer.submodule_paths = None
    graph: torch.fx.Graph = tracer.graph
    return graph


class _OwnModes:
    """The state of torch's modes before dispatch: its own one for this thread, the given one for all others.

    It is fresh each time, so that an interrupted recording leaves no mode behind.
    """

    def __init__(self, others: Any) -> None:
        self.__dict__.update(thread=threading.get_ident(), own=type(others)(), others=others)

    def _state(self) -> Any:
        return self.own if threading.get_ident() == self.thread else self.others

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._state(), name, value)
