from types import CellType, MemberDescriptorType
from typing import Any

class Watch:
    def __init__(
        self,
        dicts: list[tuple[Any, tuple[Any, ...] | None]],
        lists: list[tuple[list[Any], tuple[Any, ...]]],
        collections: list[tuple[Any, Any]],
        cells: list[tuple[CellType, Any]],
        slots: list[tuple[Any, tuple[MemberDescriptorType, Any]]],
        tensors: list[Any],
    ) -> None: ...
    def holds(self) -> bool: ...
    def changed(self) -> tuple[str, int] | None: ...

def set_tensor_layout(
    implementation: int, storage: int, data: int, rank: int, sizes: int, strides: int, offset: int
) -> None: ...
