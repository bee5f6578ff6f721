"""The declaration of a tensor argument of a cached method, before any call.

MindSpore writes this as `Tensor(shape=(batch, 128), dtype=ms.int64)`: a tensor without values.
"""

from __future__ import annotations

from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import force_setattr

from gearcache.errors import GearSpecError
from gearcache.guards.evidence.names import a_type
from gearcache.guards.gears.symbol import SizeExpression


class TensorSpec(Struct, frozen=True):
    """Shape, dtype and device of one argument, for `input_signature=` and `set_inputs`.

    - `shape`: per dim an int that every call has, a `Symbol` or an expression of symbols, a list of gears, or None for
      any size. `()` is a scalar.
    - `dtype`: the dtype of every call.
    - `device`: the device of every call; None allows any, and `.warm()` uses that of the weights.

    Raises `GearSpecError` for anything else.
    """

    shape: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.shape, (tuple, list)):
            hint = "; a tensor of any rank cannot be declared" if self.shape is None else ""
            raise GearSpecError(
                f"TensorSpec: shape is {self.shape!r}; it must be a tuple such as (Symbol(gears=[1, 2]), 128){hint}"
            )
        sizes = tuple(tuple(size) if isinstance(size, list) else size for size in self.shape)
        for dim, size in enumerate(sizes):
            is_size = isinstance(size, int) and not isinstance(size, bool) and size >= 1
            if not (is_size or size is None or isinstance(size, (SizeExpression, tuple))):
                raise GearSpecError(
                    f"TensorSpec: shape[{dim}] is {size!r}; it must be an int of at least 1, a Symbol or an expression "
                    "of symbols, a list of sizes, or None for any size"
                )
        if not isinstance(self.dtype, torch.dtype):
            raise GearSpecError(f"TensorSpec: dtype is {self.dtype!r}; it must be a torch.dtype such as torch.int64")
        device: Any = self.device
        if device is not None and not isinstance(device, torch.device):
            if not isinstance(device, str):
                raise GearSpecError(
                    f"TensorSpec: device is {a_type(device)}; it must be a torch.device, a text or None"
                )
            try:
                device = torch.device(device)
            except RuntimeError as error:
                raise GearSpecError(f"TensorSpec: device is {device!r}; {str(error).splitlines()[0]}") from None
        force_setattr(self, "shape", sizes)
        force_setattr(self, "device", device)

    @property
    def rank(self) -> int:
        """Return the number of dims."""
        return len(self.shape)

    @property
    def shape_text(self) -> str:
        """The shape as messages name it, e.g. `(batch, 128, *)`."""
        inner = ", ".join(map(_size_text, self.shape))
        return f"({inner},)" if self.rank == 1 else f"({inner})"

    def tensor(self, sizes: list[int], device: torch.device) -> torch.Tensor:
        """Return a tensor of zeros of this dtype."""
        return torch.zeros(sizes, dtype=self.dtype, device=device)


class ExampleSpec(TensorSpec, frozen=True):
    """The spec of an example tensor: all its sizes are fixed, except dims that `set_dim_gears` has marked."""

    strides: tuple[int, ...] = ()

    @staticmethod
    def of(tensor: torch.Tensor) -> ExampleSpec:
        """Return the spec of a tensor; the tensor itself is not kept."""
        dim_gears = getattr(tensor, "dim_gears", {})
        shape = tuple(tuple(dim_gears[dim]) if dim in dim_gears else int(size) for dim, size in enumerate(tensor.shape))
        # A tensor on `meta` is only a shape: it does not determine the device of calls.
        device = None if tensor.is_meta else torch.device(tensor.device.type)
        return ExampleSpec(shape, tensor.dtype, device, tuple(tensor.stride()))

    def tensor(self, sizes: list[int], device: torch.device) -> torch.Tensor:
        """Return a tensor of zeros whose dims have the memory order of the example's."""
        order = sorted(range(self.rank), key=lambda dim: (-self.strides[dim], dim))
        whole = torch.zeros([sizes[dim] for dim in order], dtype=self.dtype, device=device)
        return whole.permute([order.index(dim) for dim in range(self.rank)])


def _size_text(size: Any) -> str:
    if size is None:
        return "*"
    return (
        size.text()
        if isinstance(size, SizeExpression)
        else " or ".join(map(str, size if type(size) is tuple else [size]))
    )
