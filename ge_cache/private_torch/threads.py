"""Private names of torch with process-wide state while one thread traces or records. Each has a test."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import torch

from gearcache.collection import uncollected_import
from gearcache.threads import is_importing, is_owned, started

#: What a trace imports for most of its imports' time, in its order.
TRACE_MODULES = (
    "gearcache.ge_cache.private_torch.every_probe",
    "torch._inductor.codecache",
    "torch._functorch.aot_autograd",
)
#: What Inductor adds.
INDUCTOR_MODULES = ("torch._inductor.compile_fx",)
#: Modules whose imports have ended.
_imported: set[str] = set()


def import_to_the_end(modules: tuple[str, ...]) -> None:
    """Import modules in a thread of their own, where no signal handler can interrupt it.

    Python runs handlers in the main thread only. A package whose import was interrupted stays broken for the life of
    the process: its submodules remain in `sys.modules`, and are not set as attributes of the package again.
    """
    if _imported.issuperset(modules):
        return
    if is_importing():  # also by a lock that an interrupted import has left behind: the other thread would wait for it
        _import(modules)
        return
    failures: list[BaseException] = []

    def import_all() -> None:
        try:
            _import(modules)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=import_all, name="gearcache-import")
    if not started(thread):
        _import(modules)
        return
    thread.join()
    if failures:
        raise failures[0]


def _import(modules: tuple[str, ...]) -> None:
    with uncollected_import():
        for module in modules:
            importlib.import_module(module)
    _imported.update(modules)


def compile_lock() -> Any:
    """Return the lock under which Dynamo compiles for `torch.compile`."""
    from torch._dynamo import convert_frame

    return convert_frame.compile_lock


def is_compile_lock_free() -> bool:
    """Whether no other thread holds Dynamo's lock; False where Dynamo is imported and has no such lock."""
    module = sys.modules.get("torch._dynamo.convert_frame")
    if module is None:
        return True
    lock = getattr(module, "compile_lock", None)
    if lock is None or not lock.acquire(blocking=False):
        return False
    lock.release()
    return True


def free_compile_lock() -> None:
    """In a forked child: free Dynamo's lock if a thread that does not exist here holds it."""
    module = sys.modules.get("torch._dynamo.convert_frame")
    lock = getattr(module, "compile_lock", None)
    if lock is not None and not is_owned(lock):
        lock._at_fork_reinit()


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


@contextlib.contextmanager
def own_modes() -> Iterator[None]:
    """Remove the modes that an interrupted trace has left behind.

    Under a fake mode that stays, the process would make its next model of fake tensors; under a function mode, every
    call of a cached method would be left to the method.
    """
    functions, dispatches = torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()
    try:
        yield
    finally:
        while torch._C._len_torch_function_stack() > functions:
            torch._C._pop_torch_function_stack()
        while torch._C._len_torch_dispatch_stack() > dispatches:
            torch._C._pop_torch_dispatch_stack(None)
