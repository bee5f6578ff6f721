"""Disassembles a stored frame, without torch and without running anything of it."""

from __future__ import annotations

import dis
import io
import sys
import types
from typing import Any

_NUMBERS = ("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_nlocals", "co_stacksize", "co_flags")
_REST = ("co_firstlineno", "co_filename", "co_name", "co_qualname", "co_code", "co_linetable", "co_exceptiontable")
_TUPLES = ("co_names", "co_varnames", "co_freevars", "co_cellvars")


def readable_frame(frame: dict[str, Any], python: str) -> str:
    """Return the disassembly of a stored frame; a sentence instead if its bytecode is of another Python (`3.12.1`)."""
    signature = f"{frame.get('co_qualname', frame.get('co_name', '?'))} ({frame.get('co_filename', '?')})"
    if python.split(".")[:2] != [str(part) for part in sys.version_info[:2]]:
        return f"{signature}: bytecode of Python {python}, which Python {sys.version.split()[0]} cannot disassemble\n"
    try:
        code = _code(frame)
        out = io.StringIO()
        dis.dis(code, file=out)
    except Exception as error:  # the bytes come from a file: any error in them is only reported
        return f"{signature}: cannot be disassembled ({type(error).__name__}: {error})\n"
    return f"{signature}\n{out.getvalue()}"


class _Shown:
    """Stands for a constant that cannot be made without torch; `dis` prints it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _code(plain: dict[str, Any]) -> types.CodeType:
    changes = {name: plain[name] for name in (*_NUMBERS, *_REST) if name in plain}
    changes |= {name: tuple(plain[name]) for name in _TUPLES}
    changes["co_consts"] = tuple(_constant(item) for item in plain["consts"])
    return _empty.__code__.replace(**changes)


def _empty() -> None:
    """Provide the code object of an empty function."""


def _constant(plain: Any) -> Any:
    if not isinstance(plain, dict):
        return plain
    ((kind, value),) = plain.items()
    if kind == "code":
        return _code(value)
    if kind in ("tuple", "frozenset", "slice"):
        return _Shown(f"{kind}({', '.join(repr(_constant(item)) for item in value)})")
    if kind == "float":
        return _Shown(repr(float.fromhex(value)))
    texts = {"int": value, "ellipsis": "...", "torch": f"torch.{value}", "device": f"torch.device({value!r})"}
    return _Shown(str(texts.get(kind, f"{kind}({value})")))
