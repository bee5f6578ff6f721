"""Evidence that the names of torch functions in a graph still denote torch's own functions in the loading process.

A graph is recorded by running the functions that Dynamo put into it: `F.multi_head_attention_forward` with everything
that its Python body calls, `x.softmax`, `x + 1`. torch counts by its version, but a program may have replaced one of
these functions, in one of the two processes.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from msgspec import Struct, field

from gearcache.errors import CaptureError, UnkeyableValue
from gearcache.guards.access import Access, Scope
from gearcache.guards.evidence.checks import Check, observe
from gearcache.guards.evidence.code import closed_over, code_objects, is_versioned
from gearcache.guards.evidence.members import is_foreign
from gearcache.guards.evidence.names import module_of
from gearcache.interrupts import raise_interrupt

_NOWHERE = Scope({}, {})
_C_FUNCTIONS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
#: Code that runs besides the operators of a body and adds no operator of its own.
_MACHINERY = tuple(
    f"torch.{name}"
    for name in (
        "_C",
        "_compile",
        "_decomp",
        "_dynamo",
        "_functorch",
        "_guards",
        "_higher_order_ops",
        "_inductor",
        "_jit_internal",
        "_library",
        "_logging",
        "_ops",
        "_prims",
        "_refs",
        "_subclasses",
        "_utils",
        "distributed",
        "export",
        "fx",
        "jit",
        "library",
        "onnx",
        "overrides",
        "utils",
    )
)


class LibraryFunctions(Struct):
    """The functions of torch that a graph calls, with those that their bodies name, and all names in these bodies."""

    functions: dict[tuple[str, str], Any] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    _seen: set[int] = field(default_factory=set)

    def add(self, function: Any) -> None:
        """Note a function in a graph, and the functions below it."""
        if isinstance(function, types.FunctionType) and is_versioned(function.__code__):
            self._follow(function)
        if isinstance(function, (types.FunctionType, types.BuiltinFunctionType)) and function.__module__:
            self.functions[function.__module__, function.__name__] = function

    def _follow(self, function: types.FunctionType) -> None:
        if id(function) in self._seen or module_of(function).startswith(_MACHINERY):
            return
        self._seen.add(id(function))
        names = {name for code in code_objects(function.__code__) for name in code.co_names}
        self.names |= names
        for module, name, value in _read(function, names):
            if isinstance(value, _C_FUNCTIONS) or (
                isinstance(value, types.FunctionType) and not module_of(value).startswith(_MACHINERY)
            ):
                self.functions[module, name] = value
                if isinstance(value, types.FunctionType) and is_versioned(value.__code__):
                    self._follow(value)
        for value in closed_over(function):
            if isinstance(value, types.FunctionType):
                self._follow(value)


def _read(function: types.FunctionType, names: set[str]) -> Iterator[tuple[str, str, Any]]:
    """Yield (module, name, value) of the globals that a function may read, and of attributes of these modules."""
    spaces: list[tuple[str, dict[str, Any]]] = [(module_of(function), function.__globals__)]
    seen: set[str] = set()
    for module, space in spaces:
        for name in names & space.keys():
            value = space[name]
            if isinstance(value, types.ModuleType):
                library = value.__name__.partition(".")[0] == "torch" and not value.__name__.startswith(_MACHINERY)
                if library and value.__name__ not in seen:
                    seen.add(value.__name__)
                    spaces.append((value.__name__, vars(value)))
            else:
                yield module, name, value


def library_functions(method: str, graph: torch.fx.Graph) -> LibraryFunctions:
    """Return the torch functions that a graph calls; `CaptureError` where the process has replaced one."""
    functions = LibraryFunctions()
    for node in graph.nodes:
        if node.op == "call_method":
            attribute = inspect.getattr_static(torch.Tensor, node.target, None)
            if is_foreign(attribute):
                raise _replaced(method, f"torch.Tensor.{node.target}")
            functions.names.add(node.target)
            functions.add(attribute)
        elif node.op == "call_function" and not is_foreign(node.target):
            functions.add(node.target)
            if isinstance(node.target, (types.FunctionType, types.BuiltinFunctionType)):
                module, name = node.target.__module__, node.target.__name__
                access = Access(("module", module)).then("attr", name)
                if is_foreign(_at(access)):
                    raise _replaced(method, f"{module}.{name}")
    return functions


def check_tensors(method: str, names: Iterable[str], traced: Iterable[types.FunctionType]) -> None:
    """Refuse a method that uses a replaced method of `torch.Tensor` whose replacement was not traced."""
    traced_ids = {id(function) for function in traced}
    used_names = set(names)
    for name, value in vars(torch.Tensor).items():
        special = name[:2] == "__" and name[-2:] == "__"
        if (
            is_foreign(value)
            and (special or name in used_names)
            and id(getattr(value, "__func__", value)) not in traced_ids
        ):
            raise _replaced(method, f"torch.Tensor.{name}")


def library_checks(method: str, library: LibraryFunctions) -> list[Check]:
    """Return checks that the names of these functions still denote them."""
    checks = []
    for (module, name), value in sorted(library.functions.items(), key=lambda item: item[0]):
        access = Access(("module", module)).then("attr", name)
        if _at(access) is value:
            kind = "reached" if is_foreign(value) else "function" if isinstance(value, types.FunctionType) else "name"
            try:
                checks.append(observe(kind, access, value))
            except UnkeyableValue as error:
                raise CaptureError(method, f"{error.detail} (a {error.type_name})") from None
    return checks


def _at(access: Access) -> Any:
    try:
        return access.resolve(_NOWHERE)
    except Exception as error:
        raise_interrupt(error)
        return None


def _replaced(method: str, name: str) -> CaptureError:
    return CaptureError(
        method,
        f"this process has put a function of its own in place of `{name}`, which the method uses and a trace does not "
        "see; call your function by its own name",
    )
