"""Why Dynamo could not trace something: one sentence with a way out, and where."""

from __future__ import annotations

import re
from typing import Any

from gearcache.ge_cache.private_torch import raised as private_raised
from gearcache.ge_cache.private_torch.under_way import places

#: Dynamo's texts where a tensor's values decide what is done next, with the condition where it is a number's.
_OF_VALUES = re.compile(
    r"Data-dependent branching|"
    r"(?:Could not guard on|(specialized integer) from) data-dependent expression (.+?) \(unhinted"
)
_OF_BRANCH = "compute both with `torch.where`, or decide before the call"
_OF_INT = "pass it as an int; where it is the index of a tensor, `x.select(dim, t.item())` works"
#: Dynamo's text where a distribution checks its parameters; `torch.compile` turns that off for the whole process.
_OF_DISTRIBUTION = re.compile(r"`\w+` in file `[^`]*torch/distributions/")
#: The way out for attention of `torch.nn`, which otherwise looks at the values of a mask.
_OF_MASK = "pass `is_causal=True` or `is_causal=False` beside the mask, or torch reads the mask's values to find out"
#: Dynamo's text for an uncaught exception.
_RAISED = re.compile(r"raised exception (\w+)\(")
#: Dynamo's texts where a method calls one of a base class that is decorated too; the last since torch 2.15.
_CACHED_BASE = re.compile(
    r"CachedFunction object at|`super\(\)\.\w+` is not a function|'property' object is not callable"
)
_OF_CACHED_BASE = (
    "it calls, through its class or `super()`, a method that is no function, such as one that `cache_compile` "
    "decorates too: decorate one of the two only"
)
#: Dynamo's text where a function of torch gets an object that no graph can hold, and its cause, which names the class.
_OF_OBJECT = "Failed to convert args/kwargs to proxy"
_OBJECT = re.compile(r"Variable\((\w+)\)$")
#: Dynamo's text where the method enters a lock, also that of a `functools.cached_property` up to Python 3.11.
_LOCK = re.compile(r"`R?[Ll]ock` context manager")
_OF_LOCK = (
    "it enters a lock, which no graph can hold: if that guards what is set up at a first use, such as a "
    "`functools.cached_property` or the hooks of `output_hidden_states=True`, call the method itself once before"
)

#: Replacements to suggest for functions of `torch.distributed` that Dynamo 2.13 cannot trace.
_INSTEAD = {
    "broadcast": (
        "use `torch.distributed._functional_collectives.broadcast(x, src, group)` (src: the rank in the group)"
    ),
    "barrier": "call it outside of the method",
}


def cause_of(error: BaseException) -> str:
    """Return a sentence that says why Dynamo could not trace something, and where."""
    text = str(getattr(error, "inner_exception", error)).strip()
    first, _, rest = text.partition("\n")
    detail = [line.strip() for line in rest.splitlines() if line.strip().startswith(("Explanation:", "Hint:"))]
    where = [line.strip() for line in rest.splitlines() if line.strip().startswith("File ")]
    if not where:
        where = places(_stack(error))
    if (failed := private_raised.FAILED_OPERATION.search(text)) is not None:
        return "; ".join([f"`{failed[1]}` fails for tensors like these: {failed[2]}", *where[-1:]])
    if _CACHED_BASE.search(text) is not None:
        return "; ".join([_OF_CACHED_BASE, *where[-1:]])
    if _LOCK.search(text) is not None:
        return "; ".join([_OF_LOCK, *where[-1:]])
    if first.startswith(_OF_OBJECT) and (given := _OBJECT.search(str(error.__cause__))) is not None:
        return "; ".join([_of_object(given[1]), *where[-1:]])
    if (decided := _OF_VALUES.search(text)) is not None:
        condition = f" (`{decided[2].strip()}`)" if decided[2] else ""
        is_of_mask = any(frame.filename.endswith("torch/nn/modules/transformer.py") for frame in _stack(error))
        advice = _OF_MASK if is_of_mask else _OF_INT if decided[1] else _OF_BRANCH
        return "; ".join(
            [f"the values of a tensor decide what it does{condition}: {advice}", *places(_stack(error))[-1:]]
        )
    if _OF_DISTRIBUTION.search(text) is not None:
        cause = "it makes a distribution of `torch.distributions`, which checks its parameters in code without a trace"
        return "; ".join([f"{cause}: pass `validate_args=False`", *where[-1:]])
    if (collective := _collective(error)) is not None:
        advice = _INSTEAD.get(collective, "call it outside of the method, or another one that docs/ranks.md names")
        return "; ".join([f"Dynamo cannot trace `torch.distributed.{collective}`: {advice}", *where[-1:]])
    if (raised := _RAISED.search(rest)) is not None:
        return "; ".join([f"its trace ends in an exception, {raised[1]}", *where[-1:]])
    return "; ".join([f"Dynamo could not form one graph: {first}", *detail[:2], *where[-1:]])


def _of_object(name: str) -> str:
    """Return the sentence about an object that a function of torch gets."""
    if name == "Generator":
        return (
            "it draws from a `torch.Generator`, which a graph cannot hold: draw before the call and pass the tensor, "
            "or seed the default generator"
        )
    return f"a function of torch gets an object of the class `{name}`, which a graph cannot hold: pass tensors instead"


def _collective(error: BaseException) -> str | None:
    """Return the function of `torch.distributed` in which a trace failed, as the method called it."""
    names = [frame.name for frame in _stack(error) if frame.filename.endswith("torch/distributed/distributed_c10d.py")]
    return next((name for name in names if not name.startswith("_")), None)


def _stack(error: BaseException) -> list[Any]:
    """Return the stack frames in which a trace failed."""
    return list(getattr(getattr(error, "inner_exception", error), "real_stack", None) or [])
