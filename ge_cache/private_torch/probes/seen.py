"""Report each object that a trace is about to read."""

from __future__ import annotations

from typing import Any

from torch._dynamo.source import AttrSource
from torch._dynamo.variables.builder import VariableBuilder
from torch._dynamo.variables.nn_module import UnspecializedNNModuleVariable

from gearcache.ge_cache.dependencies.seen import Seen
from gearcache.ge_cache.private_torch.probe import Probes

probes = Probes()


@probes.at(VariableBuilder, "_call_impl")
def met(trace: Any, original: Any, self: Any, value: Any) -> Any:
    """Note an object before and after its content is read, and how much was read of a container."""
    seen = trace.state(Seen)
    seen.add(self.source, value)
    result = original(self, value)
    items = getattr(result, "__dict__", {}).get("items")  # read past the probes of that field
    seen.add(self.source, value, count=len(items) if isinstance(items, (list, dict)) else None)
    return result


@probes.at(UnspecializedNNModuleVariable, "var_getattr")
def read_hooks(trace: Any, original: Any, self: Any, tx: Any, name: str) -> Any:
    """Note the hooks of a module, which Dynamo reads without building a variable of the dictionary."""
    are_hooks = name.endswith(("_hooks", "_hooks_with_kwargs")) and self.source is not None
    if not are_hooks or name not in vars(self.value):
        return original(self, tx, name)
    seen, place = trace.state(Seen), (AttrSource(self.source, name), vars(self.value)[name])
    seen.add(*place)
    result = original(self, tx, name)
    seen.add(*place)
    return result
