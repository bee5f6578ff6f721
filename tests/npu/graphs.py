"""NPUGraph by record and replay: captured operators run again on the same tensors.

Memory addresses behave as on a device: replay reads and writes the addresses of the capture. Streams are empty, and
nothing of stream order or of memory pools is modelled.
"""

from __future__ import annotations

import contextlib
import itertools
import types
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map_only

from tests.npu import static_kernels

#: `capture`, in this process.
COUNTS: Counter[str] = Counter()


_UNFILLED = ("aten::empty", "aten::new_empty")


class _Recorder(TorchDispatchMode):
    """Notes operators with their very tensors and computes nothing, as on a device: inputs are not filled yet."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[Any]]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = _unfilled(function, args, kwargs or {})
        self.calls.append((function, args, kwargs or {}, tree_flatten(result)[0]))
        return result


def _unfilled(function: Any, args: Any, kwargs: Any) -> Any:
    """Return what an operator would return: views for real, the written tensor itself, else empty memory."""
    returned = [item.alias_info for item in function._schema.returns]
    written = [
        args[index] if index < len(args) else kwargs[item.name]
        for index, item in enumerate(function._schema.arguments)
        if item.alias_info is not None and item.alias_info.is_write and (index < len(args) or item.name in kwargs)
    ]
    if written:
        return written[0] if len(returned) <= 1 else tuple(written)
    if any(alias is not None for alias in returned):
        return function(*args, **kwargs)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake_args, fake_kwargs = tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
        fakes = function(*fake_args, **fake_kwargs)
    return tree_map_only(
        torch.Tensor,
        lambda fake: torch.empty_strided(fake.size(), fake.stride(), dtype=fake.dtype, device=fake.device),
        fakes,
    )


class NPUGraph:
    """What one capture recorded."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[Any]]] = []

    def replay(self) -> None:
        """Run the recorded operators; results go to the addresses of the capture."""
        for function, args, kwargs, outputs in self.calls:
            if function.name().startswith(_UNFILLED):
                continue  # memory only: a copy into it may have come since the capture
            found = tree_flatten(function(*args, **kwargs))[0]
            for old, new in zip(outputs, found, strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)

    def reset(self) -> None:
        self.calls = []


@contextlib.contextmanager
def graph(npu_graph: NPUGraph, **options: Any) -> Iterator[None]:
    """Capture what runs inside."""
    recorder = _Recorder()
    with recorder:
        yield
    npu_graph.calls = recorder.calls
    if recorder.calls:
        COUNTS["capture"] += 1


class Stream:
    """A stream that does nothing: everything runs at once."""

    cube_core_num, vector_core_num = 24, 48
    npu_stream = 0
    _numbers = itertools.count()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device = "npu:0"
        self.stream_id = next(Stream._numbers)

    def synchronize(self) -> None: ...

    def wait_stream(self, other: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def record_event(self, event: Any = None) -> Any:
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None: ...


class Event(Stream):
    """An event that has always happened."""

    def record(self, *args: Any) -> None: ...

    def wait(self, *args: Any) -> None: ...

    def query(self) -> bool:
        return True


_CURRENT = Stream()


def members() -> dict[str, Any]:
    """What `torch.npu` offers for graphs and streams."""
    return {
        "NPUGraph": NPUGraph,
        "graph": graph,
        "Stream": Stream,
        "Event": Event,
        "current_stream": lambda device=None: _CURRENT,
        "get_stream_limit": lambda stream: {"cube_core_num": 24, "vector_core_num": 48},
        "set_stream_limit": lambda *arguments: None,
        "graph_pool_handle": lambda: (0, 1),
        "_aclnn_reselect_static_kernel": static_kernels.reselect,
    }


def native_calls() -> types.SimpleNamespace:
    """`torch_npu._C`: memory pool states mean nothing here; tensors are made from addresses."""

    def storage(pointer: int, device: Any, size: int) -> torch.UntypedStorage:
        with _disable_current_modes():  # native code: a capture does not see it
            return torch.ops.emulated_npu.from_pointer(pointer, size).untyped_storage()  # type: ignore[no-any-return]

    def tensor(metadata: dict[str, Any], made: torch.UntypedStorage) -> torch.Tensor:
        with _disable_current_modes():
            empty = torch.empty(0, dtype=metadata["dtype"], device="npu")
            return empty.set_(made, metadata["storage_offset"], metadata["size"], metadata["stride"])

    calls: dict[str, Callable[..., Any]] = {
        "_npu_getCheckpointState": lambda *arguments: None,
        "_npu_setCheckpointPoolState": lambda *arguments: None,
        "_construct_storage_from_data_pointer": storage,
        "_construct_NPU_Tensor_From_Storage_And_Metadata": tensor,
        "_aclop_start_dump": static_kernels.start_dump,
        "_aclop_stop_dump": static_kernels.stop_dump,
    }
    return types.SimpleNamespace(**calls)
