from types import CellType, MemberDescriptorType
from typing import Any

class Watch:
    def __init__(
        self,
        dicts: tuple[tuple[Any, tuple[Any, ...] | None], ...],
        lists: tuple[tuple[list[Any], tuple[Any, ...]], ...],
        collections: tuple[tuple[Any, Any], ...],
        cells: tuple[tuple[CellType, Any], ...],
        slots: tuple[tuple[Any, tuple[MemberDescriptorType, Any]], ...],
        tensors: tuple[Any, ...],
    ) -> None: ...
    def holds(self) -> bool: ...
    def changed(self) -> tuple[str, int] | None: ...

def set_tensor_layout(
    tensor: type, implementation: int, storage: int, data: int, rank: int, sizes: int, strides: int, offset: int
) -> None: ...
