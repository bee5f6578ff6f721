"""Find and test the memory layout of tensors, before `guards.watch._watched` reads it.

A tensor's Python object points to its implementation, that to its storage, and that to its data; besides the storage,
the implementation holds sizes, strides, offset and dtype. torch gives the first three addresses (`_cdata`,
`untyped_storage()._cdata`, `data_ptr()`), so their offsets can be searched for. The name `_cdata` is private to torch:
tests/guards/watch/test_watch.py tries it.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

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
