"""A call for which a build found that no graph can be made: not every method takes an open dim of size 1.

It is stored beside the graphs of an entry, so that the next prewarm does not trace it and no process waits for its
graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from types import CodeType
from typing import Any

from msgspec import Struct

from gearcache.cache.keys.module_tree import named_modules
from gearcache.guards.access import own_attributes
from gearcache.guards.evidence.constants import to_plain
from gearcache.guards.evidence.names import name_of
from gearcache.guards.evidence.traced_files import UnnamedCode, changed_source, record_sources
from gearcache.interrupts import raise_interrupt
from gearcache.options import Settings
from gearcache.serving.call.call import Call

_MOST_TEXT = 1000


class ImpossibleCall(Struct, frozen=True):
    """The record of such a call. It does not apply to other code, arguments or plain attributes of modules.

    A failed trace leaves no evidence of other things that it has read, such as globals.
    """

    #: Digest of its arguments and of the modules that the method belongs to.
    call: str
    reason: str
    #: The code that the trace went through, as in `guards.evidence.traced_files`.
    sources: dict[str, Any]

    @classmethod
    def of_code(cls, call: str, reason: str, codes: Iterable[CodeType]) -> ImpossibleCall | None:
        """Return one after a trace that went through some code; None if an edit of that code could not be detected.

        Code without a file was made by other code, such as `dataclasses` does.
        """
        try:
            sources = record_sources(code for code in codes if Path(code.co_filename).exists())
            return cls(call, reason[:_MOST_TEXT], sources)
        except UnnamedCode:
            return None

    def is_current(self) -> bool:
        """Whether the code is unchanged."""
        try:
            return changed_source(self.sources) is None
        except (LookupError, TypeError, ValueError, AttributeError, ImportError):  # of an unknown form
            return False


def outline_of(call: Call, settings: Settings) -> str:
    """Return a digest of the arguments of a call, the modules below its instance, and the options about misses."""
    tensors = [
        (path, str(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride()), tensor.device.type)
        for path, tensor in call.tensors.items()
    ]
    others = [(name, _outline(value)) for name, value in call.given.items()]
    instance = next(iter(call.arguments.values()))
    modules = [
        (path, name_of(type(module)), [(name, _outline(value)) for name, value in sorted(_plain_attributes(module))])
        for path, module in named_modules(instance)
    ]
    return sha256(repr((tensors, others, modules, settings.on_miss, settings.validate)).encode()).hexdigest()


def _plain_attributes(module: Any) -> list[tuple[str, Any]]:
    attributes = own_attributes(module) or {}
    return [
        (str(name), value)
        for name, value in attributes.items()
        if str(name) not in ("_parameters", "_buffers", "_modules")
    ]


def _outline(value: Any, depth: int = 3) -> Any:
    """Return the constants of a value, as other processes have them too, and the types of the rest."""
    if depth and issubclass(type(value), (list, tuple)):
        return name_of(type(value)), [_outline(item, depth - 1) for item in value]
    if depth and type(value) is dict:
        return [(_outline(key, 0), _outline(item, depth - 1)) for key, item in value.items()]
    try:
        return to_plain(value)
    except Exception as error:  # `NotConstant`, or what code of its class raises
        raise_interrupt(error)
        return name_of(type(value))
