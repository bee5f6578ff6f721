"""Read torch's registries of operators, through names that are private to torch.

tests/guards/evidence/test_operators.py tries each.
"""

from __future__ import annotations

import gc
import re
import sys
import types
import weakref
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import torch

from gearcache.interrupts import raise_interrupt

#: A line of the dispatcher's description of an operator: key, file and line of the registration, form of the kernel.
_KERNEL = r"(?m)^(\w+)(?:\[alias\])?: registered at (.*?):(\d+) :: (.*)$"
_DEVICES = frozenset(
    [
        *("CPU", "CUDA", "HIP", "FPGA", "MAIA", "XLA", "MPS", "IPU", "XPU", "HPU", "VE", "Lazy", "MTIA"),
        *("PrivateUse1", "PrivateUse2", "PrivateUse3"),
    ]
)
_LAYOUTS = ("SparseCsr", "Sparse", "Quantized", "NestedTensor")


def operator_named(name: str) -> Any:
    """Return the operator `namespace::name` or `namespace::name.overload`; `LookupError` when it is missing."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
    except AttributeError:
        raise LookupError(name) from None


def operator_functions(operator: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and function of the functions registered for an operator in Python's own tables."""
    definition = torch._library.custom_ops.OPDEFS.get(operator.name())
    if definition is not None:  # registered functions are reached through an object
        if definition._abstract_fn is not None:
            yield "fake function", definition._abstract_fn
        rules = definition._torch_dispatch_fns.items()
        yield from sorted((f"function for {mode.__name__}", function) for mode, function in rules)
    yield from registered_functions(operator.name())
    for table in (operator.py_kernels, operator.python_key_table):
        for key, function in sorted(table.items(), key=lambda item: str(item[0])):
            yield f"{getattr(key, '__name__', key)} function", function


def names_with_fakes() -> list[str]:
    """Return the names of all operators in the registry that `registered_functions` reads."""
    return list(torch._library.simple_registry.singleton._data)


def registered_functions(name: str) -> Iterator[tuple[str, Any]]:
    """Yield name and function of an operator's functions that `torch.library` registered outside the dispatcher."""
    entry = torch._library.simple_registry.singleton.get(name)
    if entry is not None:
        if entry.fake_impl.kernel is not None:
            yield "fake", entry.fake_impl.kernel.func
        rules = entry.torch_dispatch_rules._data
        yield from sorted((f"rule for {mode.__name__}", function) for mode, function in rules.items())


def python_libraries() -> Iterator[torch.library.Library]:
    """Yield the libraries that Python code made, except the one with torch's own Meta kernels of `aten`.

    torch has no list of them; each has a finalizer, and Python lists those. A destroyed library has no kernels left.
    """
    torch_library = torch._meta_registrations._meta_lib_dont_use_me_use_register_meta
    finalizer = torch.library._del_library
    for item in list(weakref.finalize._registry.values()):  # type: ignore[attr-defined]
        if item.func is not finalizer or (library := item.weakref()) is None or library is torch_library:
            continue
        if library.m is not None:
            yield library


def library_kernels(library: torch.library.Library) -> Iterator[tuple[str, str]]:
    """Yield operator and dispatch key of each kernel of a library."""
    for text in library._op_impls:
        namespace, name, key = text.split("/")
        yield f"{namespace}::{name}", key


def has_kernel(name: str, key: str) -> bool:
    """Whether the dispatcher holds a kernel of an operator for a dispatch key."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))


def is_of_device(key: str) -> bool:
    """Return whether kernels for a dispatch key belong to a device: a graph calls them and does not contain them."""
    layout = next((layout for layout in _LAYOUTS if key.startswith(layout)), "")
    return key[len(layout) :] in _DEVICES


def operator_kernels(name: str) -> dict[str, tuple[str, bool]]:
    """Return dispatch key -> (file name and line of its registration, whether it is Python)."""
    kernels = {}
    for key, file, line, form in re.findall(_KERNEL, torch._C._dispatch_dump(name)):
        path = PurePath(file)
        native = "unboxed" in form or path.suffix in (".cpp", ".cc", ".cxx", ".cu", ".h", ".hpp", ".cuh")
        kernels[key] = (f"{path.name}:{line}", not native)
    return kernels


class _Entered(BaseException):
    """Stops a kernel before its first line."""


def kernel_function(operator: Any, key: str) -> types.FunctionType | None:
    """Return the Python function that the dispatcher holds for an operator and a key, or None.

    The dispatcher has no API for this: call the kernel under a profiler and abort on entry.
    """
    arguments, keywords = [], {}
    for argument in operator._schema.arguments:
        if argument.has_default_value():  # as the dispatcher: a kernel need not accept arguments with defaults
            continue
        value = _dummy(str(argument.type))
        if argument.kwarg_only:
            keywords[argument.name] = value
        else:
            arguments.append(value)
    call, dispatch_key = operator._op_dk, torch._C._dispatch_key_parse(key)
    frames: list[types.FrameType] = []

    def stop(frame: types.FrameType, event: str, _: Any) -> None:
        if event == "call":
            frames.append(frame)
            raise _Entered

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # a callback of the collector would be mistaken for the kernel
    sys.setprofile(stop)
    try:
        call(dispatch_key, *arguments, **keywords)
    except _Entered:
        pass
    except Exception as error:
        raise_interrupt(error)
    finally:
        sys.setprofile(before if callable(before) else None)
        if collects:
            gc.enable()
        if before is not None and not callable(before):
            before.enable()  # cProfile re-installs itself from C
    return _function_of(frames[0], len(arguments), set(keywords)) if frames else None


def _dummy(type_name: str) -> Any:
    dummies = {"Tensor": torch.empty(0), "int": 0, "SymInt": 0, "float": 0.0, "number": 0, "bool": False, "str": ""}
    if type_name.startswith("List["):
        return []
    return torch.device("cpu") if type_name == "Device" else dummies.get(type_name)


def _function_of(frame: types.FrameType, positional: int, keywords: set[str]) -> types.FunctionType:
    """Return a function equal to the one that runs in a frame: its code, globals, closure and defaults."""
    code, values = frame.f_code, frame.f_locals
    count = code.co_argcount
    optional = [*code.co_varnames[positional:count], *code.co_varnames[count : count + code.co_kwonlyargcount]]
    cells = tuple(types.CellType(values[name]) if name in values else types.CellType() for name in code.co_freevars)
    function = types.FunctionType(code, frame.f_globals, code.co_name, closure=cells)
    function.__qualname__ = getattr(code, "co_qualname", code.co_name)
    function.__kwdefaults__ = {name: values[name] for name in optional if name in values and name not in keywords}
    return function
