"""Resolve the global names in a captured frame to stored references."""

from __future__ import annotations

import builtins
import dis
import types
from collections.abc import Iterator, Mapping
from typing import Any

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.source_paths import is_builtins
from gearcache.guards.dispatch import frame_helpers
from gearcache.guards.dispatch.frame import resolve_reference
from gearcache.guards.evidence.names import a_type, name_of


def frame_references(
    method: str,
    code: types.CodeType,
    graph_name: str,
    imports: Mapping[str, str],
    installed: Mapping[str, Any],
    namespace: Mapping[str, Any],
) -> dict[str, list[str]]:
    """Return name -> [kind, value] for every helper name that Dynamo put into the frame.

    Names of the user's own globals and of builtins are left alone: the frame runs in the method's globals.
    `CaptureError` when a name could not be looked up again in another process.
    """
    references: dict[str, list[str]] = {}
    for name, attribute in _global_reads(code):
        if name == graph_name:
            continue
        if name in imports:
            module = imports[name]
            references[name] = ["module", module]
            if module.startswith("torch._dynamo") and attribute and not hasattr(frame_helpers, attribute):
                raise CaptureError(method, f"its frame calls `{module}.{attribute}`, which only Dynamo has")
        elif name in installed:
            references[name] = ["builtins", ""] if is_builtins(name) else _installed(method, name, installed[name])
        elif name not in namespace and not hasattr(builtins, name):
            raise CaptureError(method, f"its frame reads the global `{name}`, which does not exist")
    return references


def _installed(method: str, name: str, value: Any) -> list[str]:
    if isinstance(value, types.ModuleType):
        return ["module", value.__name__]
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        reference = ["object", name_of(value)]
        try:
            if resolve_reference(*reference) is value:
                return reference
        except (AttributeError, ImportError):
            pass
    raise CaptureError(method, f"its frame needs {a_type(value)} that exists in this process only (`{name}`)")


def _global_reads(code: types.CodeType) -> Iterator[tuple[str, str | None]]:
    """Yield each global name that is read, with each attribute read from it, also through a local."""
    top_global: str | None = None  # the global on top of the stack
    globals_by_local: dict[str, str] = {}  # locals that hold a global
    for instruction in dis.get_instructions(code):
        operation, argument = instruction.opname, instruction.argval
        if operation in ("CACHE", "COPY", "DUP_TOP"):
            continue
        if operation in ("LOAD_GLOBAL", "LOAD_NAME"):
            top_global = argument
            yield argument, None
        elif operation.startswith("LOAD_FAST"):
            top_global = globals_by_local.get(argument)
        elif operation == "STORE_FAST":
            if top_global is None:
                globals_by_local.pop(argument, None)
            else:
                globals_by_local[argument] = top_global
        else:
            if top_global is not None and operation in ("LOAD_ATTR", "LOAD_METHOD"):
                yield top_global, argument
            top_global = None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_reads(constant)
