"""Isolate recordings of this thread from other threads, and from what torch keeps of earlier work, in both directions.

`torch.fx` marks the whole process as being traced, so that functions under `torch.compile` refuse to run, and replaces
`Module.__call__` and `Module.__getattr__`, though a recording of operators needs neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import _ops as operators
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import PythonKeyTracer

from gearcache.ge_cache.private_torch.probe import Probes, is_here
from gearcache.torch_state import Writes


class Own:
    """A value, such as a cache, that is another one for the thread to which probes apply; has attributes and items."""

    def __init__(self, own: Any, others: Any) -> None:
        vars(self).update(own=own, others=others)

    def __getattr__(self, name: str) -> Any:
        return getattr(_seen(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_seen(self), name, value)

    def __getitem__(self, key: Any) -> Any:
        return _seen(self)[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        _seen(self)[key] = value

    def __delitem__(self, key: Any) -> None:
        del _seen(self)[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(_seen(self))

    def __contains__(self, key: Any) -> bool:
        return key in _seen(self)

    def __len__(self) -> int:
        return len(_seen(self))


def _seen(value: Own) -> Any:
    return value.own if is_here() else value.others


probes = Probes()
# The modes before dispatch are in one global, from which printing a tensor in any thread takes them for a moment. Ours
# are fresh in each turn, so that an interrupted recording leaves no mode behind.
probes.at_value(operators, "_mode_stack_state_for_pre_dispatch", lambda modes: Own(type(modes)(), modes))
# torch caches results of operators on fake tensors for the rest of the process, including those computed for
# `torch.compile` without a turn's own settings: strides of views, dropout.
probes.at_value(FakeTensorMode, "cache", lambda answers: Own({}, answers))


def _counted(write: Any) -> Any:
    def set_default_dtype(dtype: Any) -> None:
        Writes.count += not is_here()  # Dynamo sets it back to what it was
        write(dtype)

    return set_default_dtype


# Another thread may load a model, for which transformers sets the default dtype and then sets it back.
probes.at_value(torch._C, "_set_default_dtype", _counted)


@probes.at(PythonKeyTracer, "trace")
def recorded(trace: Any, original: Any, tracer: Any, root: Any, concrete_args: Any = None) -> torch.fx.Graph:
    """Record a function, as `torch.fx.Tracer.trace` would, without replacing anything in the process."""
    tracer.root = torch.nn.Module()
    tracer.graph = torch.fx.Graph(tracer_cls=type(tracer))
    tracer.tensor_attrs = {}
    function, arguments = tracer.create_args_for_root(root, False, concrete_args)
    tracer.create_node("output", "output", (tracer.create_arg(function(*arguments)),), {})
    tracer.submodule_paths = None
    graph: torch.fx.Graph = tracer.graph
    return graph
