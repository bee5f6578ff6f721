"""Trace the key function of `max` and `min`.

Dynamo calls it for constant items only, and guards nothing that it reads.
"""

from __future__ import annotations

from typing import Any

from torch._dynamo.utils import specialize_symnode, unpack_iterable
from torch._dynamo.variables.builtin import BuiltinVariable

from gearcache.ge_cache.private_torch.probe import Probes

#: Types of keys whose order is Python's own.
_PLAIN = (bool, int, float, str, bytes)
specialize: Any = specialize_symnode
probes = Probes()


@probes.at(BuiltinVariable, "call_function")
def called_builtin(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Choose an item by the keys that a traced function gives."""
    if self.fn not in (max, min) or "key" not in kwargs or not args:
        return original(self, tx, args, kwargs)
    key = kwargs["key"].realize()
    if key.is_python_constant() and key.as_python_constant() is None:
        return original(self, tx, args, kwargs)
    items = unpack_iterable(tx, args[0].realize()) if len(args) == 1 else [*args]
    if not items:  # the default, or an error
        return original(self, tx, args, kwargs)
    keys = [specialize(key.call_function(tx, [item], {}).realize()) for item in items]
    values = [each.as_python_constant() if each.is_python_constant() else None for each in keys]
    if not all(map(_is_plain, values)):
        name = self.fn.__name__
        trace.refuse(
            f"it calls `{name}()` with keys that are neither numbers nor texts, nor tuples of them: use a loop, or "
            "`torch.argmax` for tensors",
            at_once=True,
        )
    return items[self.fn(range(len(items)), key=values.__getitem__)]


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if type(value) in (tuple, list) else type(value) in _PLAIN
