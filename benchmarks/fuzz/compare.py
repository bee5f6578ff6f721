"""Compares two object graphs: values, dtypes, layouts, types, shared memory and identities."""

from __future__ import annotations

import enum
import types
from collections import OrderedDict, deque
from typing import Any

import torch

from benchmarks.fuzz.known import is_left_behind, is_one_layout
from gearcache.serving.call.decorated_method import CachedFunction
from gearcache.serving.call.method import CachedMethod

_HOOKS = ("_hooks", "_pre_hooks", "_hooks_with_kwargs", "_pre_hooks_with_kwargs", "_hooks_always_called")
_SCALARS = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), type(NotImplemented), range, slice)
_TORCH_SCALARS = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_SKIPPED = (types.ModuleType, types.BuiltinFunctionType, torch.Generator)


class Different(Exception):
    """The first difference: its place, its kind, and both sides."""

    def __init__(self, path: str, kind: str, eager: Any, cached: Any) -> None:
        super().__init__(path, kind, eager, cached)
        self.path, self.kind = path, kind
        self.sides = f"eager {_brief(eager)}, cached {_brief(cached)}"


class Comparison:
    """One walk. It remembers the objects that it has visited, to compare identity and shared memory as well."""

    def __init__(self, names: dict[str, str], tolerance: float = 0.0) -> None:
        self._names = names
        self._tolerance = tolerance
        self._partner: dict[int, Any] = {}
        self._back: dict[int, Any] = {}
        self._memory: dict[int, int] = {}
        self._memory_back: dict[int, int] = {}
        self._kept: list[Any] = []

    def compare(self, left: Any, right: Any, path: str) -> None:
        """Raise `Different` if the right side (cached) differs from the left (eager)."""
        if isinstance(left, _SKIPPED):
            return
        if isinstance(left, types.MethodType) and isinstance(right, CachedMethod):
            return
        if isinstance(left, type):
            self._classes(left, right, path)
            return
        if isinstance(left, torch.Size):
            left, right = (tuple(left), type(left)), (tuple(right), type(right))
        if self._name(type(left)) != self._name(type(right)):
            raise Different(path, "type", self._name(type(left)), self._name(type(right)))
        if isinstance(left, _SCALARS) and type(left) in _SCALARS:
            if (left != right and not (left != left and right != right)) or repr(left) != repr(right):
                raise Different(path, "scalar", left, right)
            return
        if isinstance(left, _TORCH_SCALARS):
            if left != right:
                raise Different(path, "scalar", left, right)
            return
        if isinstance(left, enum.Enum):
            self.compare(left.value, right.value, path)
            return
        if isinstance(left, torch.utils.hooks.RemovableHandle):  # its number is counted by the process
            return
        if not (_is_constant(left) and _is_constant(right)) and self._met(left, right, path):
            return
        self._parts(left, right, path)

    def _met(self, left: Any, right: Any, path: str) -> bool:
        if id(left) in self._partner or id(right) in self._back:
            if self._partner.get(id(left)) is not right:
                raise Different(path, "identity", "one object" if id(left) in self._partner else "its own", "other")
            return True
        self._partner[id(left)], self._back[id(right)] = right, left
        self._kept += [left, right]
        return False

    def _parts(self, left: Any, right: Any, path: str) -> None:
        if isinstance(left, torch.Tensor):
            self._tensors(left, right, path)
        if isinstance(left, (list, tuple, deque)):
            if len(left) != len(right):
                raise Different(path, "length", len(left), len(right))
            for index, (one, other) in enumerate(zip(left, right, strict=True)):
                self.compare(one, other, f"{path}[{index}]")
        elif isinstance(left, (set, frozenset)):
            self.compare(sorted(map(repr, left)), sorted(map(repr, right)), path)
        elif isinstance(left, (dict, OrderedDict, types.MappingProxyType)):
            self._mappings(left, right, path)
        elif isinstance(left, types.MethodType):
            self.compare(left.__func__, right.__func__, f"{path}.__func__")
            self.compare(left.__self__, right.__self__, f"{path}.__self__")
        elif isinstance(left, types.FunctionType):
            self._functions(left, right, path)
        if not isinstance(left, types.FunctionType):
            self._attributes(left, right, path)

    def _attributes(self, left: Any, right: Any, path: str) -> None:
        mine, theirs = getattr(left, "__dict__", None), getattr(right, "__dict__", None)
        if isinstance(mine, dict) and isinstance(theirs, dict):
            self._mappings(mine, theirs, path, is_attributes=True)
        for name in _slots(type(left)):
            if not isinstance(left, torch.Tensor) and name not in ("__dict__", "__weakref__"):
                self.compare(getattr(left, name, None), getattr(right, name, None), f"{path}.{name}")

    def _mappings(self, left: Any, right: Any, path: str, *, is_attributes: bool = False) -> None:
        if is_attributes or path in ("['globals']",):
            left = {name: value for name, value in left.items() if not _is_ours(name, value, right.get(name))}
            right = {name: value for name, value in right.items() if not _is_ours(name, left.get(name), value)}
        if path.endswith(_HOOKS):  # the keys are numbers that the process counts
            left, right = list(left.values()), list(right.values())
            self.compare(left, right, path + ".values")
            return
        keys, others = [self._key(key) for key in left], [self._key(key) for key in right]
        if keys != others and (not is_attributes or sorted(keys) != sorted(others)):
            missing = [key for key in keys if key not in others]
            raise Different(path, "keys", missing or keys, [key for key in others if key not in keys] or others)
        names = dict(zip(others, right, strict=True))
        for key, name in zip(left, keys, strict=True):
            step = f".{key}" if is_attributes else f"[{name}]"
            self.compare(left[key], right[names[name]], path + step)

    def _key(self, key: Any) -> str:
        if isinstance(key, (torch.nn.Module, torch.Tensor, type, types.FunctionType)):
            return self._name(key if isinstance(key, type) else type(key))
        return repr(key) if type(key).__repr__ is not object.__repr__ else self._name(type(key))

    def _functions(self, left: Any, right: Any, path: str) -> None:
        if left.__qualname__ != right.__qualname__:
            raise Different(path, "function", left.__qualname__, right.__qualname__)
        if left.__module__ not in self._names:
            return
        self.compare(left.__dict__, right.__dict__, f"{path}.__dict__")
        self.compare(left.__defaults__, right.__defaults__, f"{path}.__defaults__")
        cells = [[_content(cell) for cell in side.__closure__ or ()] for side in (left, right)]
        self.compare(cells[0], cells[1], f"{path}.__closure__")

    def _classes(self, left: type, right: Any, path: str) -> None:
        if not isinstance(right, type) or self._name(left) != self._name(right):
            raise Different(path, "class", left, right)
        if left.__module__ not in self._names or self._met(left, right, path):
            return
        for name, value in left.__dict__.items():
            if name.startswith(("__", "_abc_", "_member", "_value2member")) or name in ("_hashable_values_",):
                continue
            if isinstance(value, (int, float, str, list, dict, set, torch.Tensor, type(None))):
                self.compare(value, right.__dict__.get(name), f"{path}.{name}")

    def _tensors(self, left: torch.Tensor, right: torch.Tensor, path: str) -> None:
        for kind, get in _FACTS:
            mine, theirs = get(left), get(right)
            if mine != theirs and not (kind == "stride" and self._tolerance and is_one_layout(left, mine, theirs)):
                raise Different(path, kind, mine, theirs)
        if type(left) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) and hasattr(
            left, "__tensor_flatten__"
        ):
            return  # the tensors inside are attributes
        if left.layout != torch.strided or left.device.type == "meta":
            return
        if left.numel() and left.storage_offset() != right.storage_offset():
            raise Different(path, "offset", left.storage_offset(), right.storage_offset())
        mine, theirs = left.untyped_storage().data_ptr(), right.untyped_storage().data_ptr()
        if left.numel() and (self._memory.setdefault(mine, theirs), self._memory_back.setdefault(theirs, mine)) != (
            theirs,
            mine,
        ):
            raise Different(path, "memory", "shared" if self._memory[mine] != theirs else "its own", "otherwise")
        if not self._equal(left, right):
            raise Different(path, "value", left.detach().flatten()[:6].tolist(), right.detach().flatten()[:6].tolist())
        if left.grad is not None or right.grad is not None:
            self.compare(left.grad, right.grad, f"{path}.grad")

    def _equal(self, left: torch.Tensor, right: torch.Tensor) -> bool:
        with torch.inference_mode(), torch._C.DisableTorchFunctionSubclass():
            left, right = _plain(left), _plain(right)
            if torch.equal(left.view(torch.uint8), right.view(torch.uint8)):
                return True
            if not (left.is_floating_point() or left.is_complex()):
                return False
            if self._tolerance:
                near = self._tolerance * (1.0 if left.dtype.itemsize >= 4 else 1000.0)
                return bool(torch.allclose(left, right, atol=near, rtol=near, equal_nan=True))
            same = (left == right) | ((left != left) & (right != right))
            if left.is_complex():
                return bool(same.all())
            signs = (left.signbit() == right.signbit()) | (left != 0)
            return bool((same & signs).all())

    def _name(self, kind: type) -> str:
        module = self._names.get(kind.__module__, kind.__module__)
        return f"{module}.{kind.__qualname__}"


_FACTS = (
    ("dtype", lambda tensor: tensor.dtype),
    ("shape", lambda tensor: tuple(tensor.shape)),
    ("layout", lambda tensor: tensor.layout),
    ("device", lambda tensor: tensor.device),
    ("stride", lambda tensor: tensor.stride() if tensor.layout == torch.strided else ()),
    ("requires_grad", lambda tensor: tensor.requires_grad),
    ("inference", lambda tensor: tensor.is_inference()),
    ("conjugated", lambda tensor: (tensor.is_conj(), tensor.is_neg())),
)


def _is_constant(value: Any) -> bool:
    """Whether a value is a tuple of scalars: Python may or may not represent equal ones by one object."""
    return type(value) is tuple and all(
        type(item) in _SCALARS or isinstance(item, _TORCH_SCALARS) or _is_constant(item) for item in value
    )


def _is_ours(name: str, left: Any, right: Any) -> bool:
    """Whether gearcache stores this attribute at the module, or it is known to be left behind."""
    return is_left_behind(name) or (isinstance(right, (CachedMethod, CachedFunction)) and left is None)


def _slots(kind: type) -> list[str]:
    found = [base.__dict__.get("__slots__", ()) for base in kind.__mro__]
    return [name for names in found for name in ([names] if isinstance(names, str) else names)]


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).reshape(-1)


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 160 else text[:157] + "..."
