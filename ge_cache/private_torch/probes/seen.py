"""Report each object that a trace is about to read."""

from __future__ import annotations

from typing import Any

from torch._dynamo.source import AttrSource
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import VariableBuilder

from gearcache.ge_cache.dependencies.seen import Seen
from gearcache.ge_cache.private_torch.probe import Probes, overriding
from gearcache.guards.access import own_attributes

_HOOKS = ("_hooks", "_hooks_with_kwargs")
probes = Probes()


@probes.at(VariableBuilder, "_call_impl")
def met(trace: Any, original: Any, self: Any, value: Any) -> Any:
    """Note an object before and after its content is read, and how much was read of a container."""
    seen, output, source = trace.state(Seen), self.tx.output, self.source
    is_new = value not in output.side_effects and output.variable_tracker_cache.get(source) is None
    seen.add(source, value)
    result = original(self, value)
    items = getattr(result, "__dict__", {}).get("items")  # read past the probes of that field
    # Not `self.source`: for what `torch.compile` returned, the builder goes on with the module in it.
    seen.add(source, value, count=len(items) if is_new and isinstance(items, (list, dict)) else None)
    return result


@probes.at_each(lambda: overriding(VariableTracker, "var_getattr"))
def read_hooks(trace: Any, original: Any, self: Any, tx: Any, name: Any, *rest: Any, **keywords: Any) -> Any:
    """Note the hooks of a module, which Dynamo reads without building a variable of the dictionary."""
    hooks = None
    if isinstance(name, str) and name.endswith(_HOOKS) and self.source is not None:
        hooks = (own_attributes(getattr(self, "value", None)) or {}).get(name)
    if hooks is None:
        return original(self, tx, name, *rest, **keywords)
    seen, place = trace.state(Seen), AttrSource(self.source, name)
    seen.add(place, hooks)
    result = original(self, tx, name, *rest, **keywords)
    seen.add(place, hooks)
    return result
