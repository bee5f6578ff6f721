"""Report keys that a trace looks up, in a dictionary or an object's `__dict__`."""

from __future__ import annotations

from typing import Any

from torch._dynamo.variables.dicts import ConstDictVariable, DunderDictVariable

from gearcache.ge_cache.private_torch.probe import Probes, named_methods
from gearcache.ge_cache.private_torch.probes.attributes import may_be_caught

_FINDERS = ("get", "pop", "setdefault")
probes = Probes()


@probes.at(ConstDictVariable, "getitem_const_raise_exception_if_absent")
def looked_up(trace: Any, original: Any, self: Any, tx: Any, arg: Any) -> Any:
    """Guard lookups with a `KeyError`; Dynamo guards found keys, and keys that `in` and `get` lack."""
    if self.source is not None and (arg not in self or may_be_caught(tx)):
        self.install_dict_contains_guard(tx, [arg])
    return original(self, tx, arg)


@probes.at_each(lambda: named_methods(ConstDictVariable, *_FINDERS))
def found(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Guard that the key is there; Dynamo guards the value that such a method found."""
    if name in _FINDERS and args and self.source is not None and args[0] in self:
        self.install_dict_contains_guard(tx, [args[0]])
    return original(self, tx, name, args, kwargs)


# Dynamo guards an object's `__dict__` only by the attributes that are read through it.
@probes.at(DunderDictVariable, "install_dict_keys_match_guard")
def guarded_own_keys(trace: Any, original: Any, self: Any) -> None:
    """Note that all keys matter."""
    if self.source is not None:
        trace.note("own keys", self.source)


@probes.at(DunderDictVariable, "install_dict_contains_guard")
def guarded_own_key(trace: Any, original: Any, self: Any, tx: Any, args: Any) -> None:
    """Note a key that matters."""
    if self.source is None:
        return
    if args[0].is_python_constant():
        trace.note("own key", self.source, args[0].as_python_constant())
    else:
        trace.note("own keys", self.source)
