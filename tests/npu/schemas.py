"""Declares the `npu` operators of the wheel: schemas from its own yaml, shapes from its own meta functions.

torchair's fusion patterns trace these operators when a graph is compiled. They have no kernels here: a model that
uses one runs only where GE (the emulator) computes it.
"""

from __future__ import annotations

import contextlib
import re
import sys
import types
from pathlib import Path

import torch

_KEPT: list[torch.library.Library] = []


def define_operators(wheel: Path) -> None:
    """Define every custom operator that this torch can parse, and register the wheel's meta functions."""
    library = torch.library.Library("npu", "FRAGMENT")
    _KEPT.append(library)
    text = (wheel / "csrc/aten/npu_native_functions_by_codegen.yaml").read_text()
    custom = text[text.index("\ncustom:") : text.index("\nsupported:")]
    for schema in re.findall(r"func: (.+)", custom):
        if not schema.startswith("aten::"):
            _define(library, schema.strip().strip("'"))
    _register_meta(wheel)


def _define(library: torch.library.Library, schema: str) -> None:
    try:
        library.define(schema)
    except RuntimeError:
        return  # a type that this torch does not know, or defined twice


def _register_meta(wheel: Path) -> None:
    backends = types.ModuleType("torch_npu.npu._backends")
    backends.get_soc_version = lambda: 220  # type: ignore[attr-defined]
    sys.modules.setdefault("torch_npu.npu._backends", backends)
    path = wheel / "op_plugin/meta/_meta_registrations.py"
    source = path.read_text()
    module = types.ModuleType("torch_npu.op_plugin.meta._meta_registrations")
    # Some of its functions are for operators that the yaml does not declare: each stands alone.
    source = source.replace("@impl(m,", "@_register(m,").replace("@impl(m_aten,", "@_skip(m_aten,")
    module.__dict__["_register"] = _register
    module.__dict__["_skip"] = lambda library, name, *rest: lambda function: function
    exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102 - the wheel's own file
    sys.modules[module.__name__] = module


def _register(library: torch.library.Library, name: str, *rest: object):  # type: ignore[no-untyped-def]
    _KEPT.append(library)

    def register(function):  # type: ignore[no-untyped-def]
        with contextlib.suppress(RuntimeError, ValueError):  # not declared here
            library.impl(name, function)
        return function

    return register
