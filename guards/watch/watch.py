"""The watch over what loaded graphs depend on: one question before every call.

`guards.watch._watched`, a small extension in C, answers it in about a nanosecond for each dictionary and tensor. Where
it was not built (no compiler when gearcache was installed), or does not support this torch, Python code answers it,
which takes some ten microseconds for a model of a hundred modules.

The extension reads tensors in memory, whose layout is found and tested before: a tensor's Python object points to its
implementation, that to its storage, and that to its data; besides the storage, the implementation holds sizes, strides,
offset and dtype. torch gives the first three addresses (`_cdata`, `untyped_storage()._cdata`, `data_ptr()`), so their
offsets can be searched for. The name `_cdata` is private to torch: tests/guards/watch/test_watch.py tries it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import torch

_WORD = 8
#: How far is searched, in bytes: no further than each of the three objects is long (torch 2.13: 48, 176, 40 or more).
_OBJECT, _IMPLEMENTATION, _STORAGE = 48, 176, 40
#: Unusual numbers, to be recognised in the implementation.
_SIZES, _STRIDES, _OFFSET = (37, 41, 43), (43 * 47, 47, 1), 53


class TensorLayout(NamedTuple):
    """Offsets in bytes: `implementation` in the object, `data` in the storage, the others in the implementation."""

    implementation: int
    storage: int
    data: int
    rank: int
    sizes: int
    strides: int
    #: The number of elements and a word with the dtype follow it.
    offset: int


def find_layout() -> TensorLayout | None:
    """Return the layout of torch's tensors, or None where it differs from the known one."""
    base = torch.empty(_OFFSET + _SIZES[0] * _STRIDES[0], dtype=torch.float32, device="cpu")
    view = base.as_strided(_SIZES, _STRIDES, _OFFSET)
    layouts = {_layout(view), _layout(torch.nn.Parameter(view, requires_grad=False))}
    return layouts.pop() if len(layouts) == 1 else None


def _layout(tensor: Any) -> TensorLayout | None:
    implementation, storage = tensor._cdata, tensor.untyped_storage()
    search_results = [
        _find(id(tensor), _OBJECT, [implementation]),
        _find(implementation, _IMPLEMENTATION, [storage._cdata]),
        _find(storage._cdata, _STORAGE, [storage.data_ptr()]),
        _find(implementation, _IMPLEMENTATION, [len(_SIZES), *_SIZES]),
        _find(implementation, _IMPLEMENTATION, list(_SIZES)),
        _find(implementation, _IMPLEMENTATION, list(_STRIDES)),
        _find(implementation, _IMPLEMENTATION, [_OFFSET, tensor.numel()]),
    ]
    offsets = [offset for offset in search_results if offset is not None]
    return TensorLayout(*offsets) if len(offsets) == len(search_results) else None


def _word(address: int) -> int:
    return int(ctypes.c_uint64.from_address(address).value)


def _find(address: int, length: int, pattern: list[int]) -> int | None:
    """Return the offset of the first place where these words are consecutive; nothing after it is read."""
    words: list[int] = []
    for offset in range(0, length, _WORD):
        words.append(_word(address + offset))
        if words[-len(pattern) :] == pattern:
            return offset - (len(pattern) - 1) * _WORD
    return None


class Watch(Protocol):
    """The state that objects had when they were added."""

    def add_keys(self, holder: Any, keys: Iterable[Any] | None, number: int = -1, /) -> int:
        """Watch keys of a dictionary or class: some, those in a frozenset, or all (None).

        `number` is what an earlier call for the same holder has returned.
        """
        ...

    def add(self, kind: str, value: Any, detail: Any = None, /) -> None:
        """Watch an object: its class and dictionary ("object"), or what the kind says: "tensor", "class", "function",
        "list", "cell", "slot" (with its descriptor), "collection" (a set or queue), "question" (which it calls).
        """
        ...

    def copy(self, other: Any, kind: str, number: int, /) -> None:
        """Watch an object of another watch, in the state that it had when it was added there."""
        ...

    def holds(self) -> bool:
        """Return whether all are unchanged."""
        ...

    def changed(self) -> tuple[str, int] | None:
        """Return kind and number of the first changed object, or None."""
        ...


def new_watch() -> Watch:
    """Return a watch over nothing."""
    return watch_class()()


@functools.cache
def watch_class() -> Callable[..., Watch]:
    """Return the class in C if it works with this torch, else the one in Python."""
    if (native := _native_watch()) is not None:
        return native
    from gearcache.guards.watch.python_watch import PythonWatch

    return PythonWatch


def _native_watch() -> Callable[..., Watch] | None:
    try:
        from gearcache.guards.watch._watched import Watch as NativeWatch
        from gearcache.guards.watch._watched import set_tensor_layout
    except (ImportError, RuntimeError):  # not built, or Python has no watcher of dictionaries left
        return None
    layout = find_layout()
    if layout is None:
        return None
    set_tensor_layout(torch.Tensor, *layout)
    return NativeWatch if sees_moved_memory(NativeWatch) else None


def sees_moved_memory(watch: Callable[..., Watch]) -> bool:
    """Return whether a kind of watch notices every way in which a tensor's memory moves, and nothing else."""
    with torch.inference_mode(False), torch.no_grad():
        for shape, move, is_seen in _MOVES:
            tensor = torch.nn.Parameter(torch.zeros(shape, device="cpu"), requires_grad=False)
            snapshot = watch()
            snapshot.add("tensor", tensor)
            if not snapshot.holds():
                return False
            move(tensor)
            if snapshot.holds() is is_seen:
                return False
    return True


def _exchange(tensor: Any) -> None:
    tensor.data = torch.zeros(4, 4, device="cpu")


def _shift(tensor: Any) -> None:
    buffer = torch.zeros(32, device="cpu")
    tensor.set_(buffer.untyped_storage(), 16, (4, 4), (4, 1))


def _resize(tensor: Any) -> None:
    tensor.untyped_storage().resize_(0)


def _permute(tensor: Any) -> None:
    tensor.data = tensor.data.transpose(-1, -2)


def _write(tensor: Any) -> None:
    tensor.add_(1)


#: Shape of a tensor, an operation on it, and whether the watch must notice it.
_MOVES: list[tuple[tuple[int, ...], Callable[[Any], None], bool]] = [
    ((4, 4), _exchange, True),
    ((4, 4), _permute, True),
    ((2, 4, 4), _permute, True),
    ((1, 1, 1, 1, 1, 4, 4), _permute, True),
    ((4, 4), _shift, True),
    ((4, 4), _resize, True),
    ((4, 4), _write, False),
]
