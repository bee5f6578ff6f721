"""One run of Dynamo over a call, and what probes report of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from typing import Any

import torch

from gearcache.errors import CaptureError, MethodRaises, NoOperation
from gearcache.ge_cache.capture.hook import GraphHook
from gearcache.ge_cache.capture.numbers import NumberChoice, NumberRefused, WantedNumbers
from gearcache.ge_cache.capture.weights import Weights
from gearcache.ge_cache.dependencies.autograd_reads import check_graph
from gearcache.ge_cache.dependencies.log import TraceLog
from gearcache.ge_cache.dependencies.switches import check_switches
from gearcache.ge_cache.private_torch import dynamo as private_dynamo
from gearcache.ge_cache.private_torch import every_probe
from gearcache.ge_cache.private_torch import fake as private_fake
from gearcache.ge_cache.private_torch import raised as private_raised
from gearcache.ge_cache.private_torch.probe import listening
from gearcache.ge_cache.private_torch.switches import kernels_restored_after_a_failure
from gearcache.guards.access import Scope
from gearcache.guards.evidence.code import is_library_file

#: Dynamo's texts where a tensor's values decide what is done next, with the condition where it is a number's.
_OF_VALUES = re.compile(r"Data-dependent branching|Could not guard on data-dependent expression (.+?) \(unhinted")
#: The way out for attention of `torch.nn`, which otherwise looks at the values of a mask.
_OF_MASK = "pass `is_causal=True` or `is_causal=False` beside the mask, or torch reads the mask's values to find out"
#: Dynamo's text for an uncaught exception.
_RAISED = re.compile(r"raised exception (\w+)\(")
#: Dynamo's texts where a method calls one of a base class that is decorated too.
_CACHED_BASE = re.compile(r"CachedFunction object at|`super\(\)\.\w+` is not a function")
_OF_CACHED_BASE = (
    "it calls, through its class or `super()`, a method that is no function, such as one that `cache_compile` "
    "decorates too: decorate one of the two only"
)
#: The message where the trace is the first reader of a `functools.cached_property`, up to Python 3.11.
_CACHED_PROPERTY = "it computes a `functools.cached_property`, under a lock: read it once before the first call"

#: Replacements to suggest for functions of `torch.distributed` that Dynamo 2.13 cannot trace.
_INSTEAD = {
    "broadcast": (
        "use `torch.distributed._functional_collectives.broadcast(x, src, group)` (src: the rank in the group)"
    ),
    "barrier": "call it outside of the method",
}


class Recording(TraceLog):
    """One Dynamo run and its log; after `run` the attributes below hold the results."""

    frame: Any
    #: Dynamo's own record of the run: bytecode, guards, sources.
    output: Any
    #: Globals that Dynamo created for the frame.
    installed: dict[str, Any]
    module: torch.fx.GraphModule

    def __init__(
        self,
        function: Any,
        method: str,
        numbers: NumberChoice,
        unbound: Collection[str],
        *,
        with_grad: bool,
        arrangement: str = "",
    ) -> None:
        """`arrangement`: the order of sets that the method makes, see `ge_cache.capture.orders`."""
        super().__init__(method)
        self._function = function
        self.numbers = WantedNumbers(numbers)
        self.with_grad = with_grad
        self.arrangement = arrangement
        #: How often the trace took each jump, by code and offset.
        self.jumps: Counter[tuple[Any, int | None]] = Counter()
        self.hook = GraphHook(self)
        self.weights = Weights(self.original, unbound)
        #: Those that Dynamo began; it may begin anew.
        self.graphs: list[Any] = []

    @property
    def original(self) -> Any:
        """The function of the method."""
        return getattr(self._function, "__func__", self._function)

    def run(self, arguments: tuple[Any, ...], keywords: dict[str, Any], *, dynamic: bool) -> None:
        """Trace one call; `CaptureError` names the method and why it cannot be one graph."""
        try:
            with (
                torch.set_grad_enabled(self.with_grad),
                private_dynamo.capture_settings(self.numbers, dynamic=dynamic),
                private_fake.without_reports(),
                kernels_restored_after_a_failure(),
                listening(self, every_probe.PROBES),
            ):
                self.frame, self.output, self.installed = private_dynamo.compile_frame(
                    self._function, arguments, keywords, self.hook, self._begin
                )
                if self.hook.module is not None:
                    check_switches(self.method, self.hook.module, self.hook.writes)
        except private_dynamo.dynamo_errors() as error:
            raise self._refusal(error) from error
        except CaptureError:
            raise
        except Exception as error:  # Dynamo itself broke, or a function that it called
            cause = f"Dynamo could not form one graph: it failed with {type(error).__name__}: {error}"
            kind = MethodRaises if private_raised.is_raised_by_arguments(error) else CaptureError
            raise kind(self.method, cause) from error
        if of_floats := self.hook.numbers.symbols.keys() & {symbol for (symbol,) in self.of("symbol of a float")}:
            raise NumberRefused(self.method, "a float is computed from a number", of_floats)
        self.raise_refusals()
        if self.hook.module is None:
            raise NoOperation(self.method)
        self.module = self.hook.module
        check_graph(self, self.module.graph, with_grad=self.with_grad)

    def _refusal(self, error: BaseException) -> CaptureError:
        inner_error = getattr(error, "inner_exception", None)
        if isinstance(inner_error, CaptureError):  # raised by our hook: already complete
            return inner_error
        if not private_raised.is_raised_by_method(error):
            return CaptureError(self.method, cause_of(error))
        refusal = MethodRaises(self.method, cause_of(error))
        refusal.is_by_statement = private_raised.is_about_to_raise(error)
        return refusal

    def _begin(self, frame: Any) -> None:
        self.frame = frame
        self.numbers.begin(self.scope, frame.code.co_varnames[0])

    @property
    def scope(self) -> Scope:
        """The names that the frame sees."""
        closure = dict(zip(self.frame.code.co_freevars, self.frame.closure, strict=True))
        local = {name: value for name, value in self.frame.locals.items() if name not in closure}
        return Scope(local, self.frame.globals, closure)


#: The most characters of code in a message.
_CODE_LETTERS = 60


def cause_of(error: BaseException) -> str:
    """Return a sentence that says why Dynamo could not trace something, and where."""
    text = str(getattr(error, "inner_exception", error)).strip()
    first, _, rest = text.partition("\n")
    detail = [line.strip() for line in rest.splitlines() if line.strip().startswith(("Explanation:", "Hint:"))]
    where = [line.strip() for line in rest.splitlines() if line.strip().startswith("File ")]
    if not where:
        where = _places(error)
    if (failed := private_raised.FAILED_OPERATION.search(text)) is not None:
        return "; ".join([f"`{failed[1]}` fails for tensors like these: {failed[2]}", *where[-1:]])
    if _CACHED_BASE.search(text) is not None:
        return "; ".join([_OF_CACHED_BASE, *where[-1:]])
    if "`RLock` context manager" in text and any(frame.name == "__get__" for frame in _stack(error)):
        return "; ".join([_CACHED_PROPERTY, *where[-1:]])
    if (decided := _OF_VALUES.search(text)) is not None:
        condition = f" (`{decided[1].strip()}`)" if decided[1] else ""
        is_of_mask = any(frame.filename.endswith("torch/nn/modules/transformer.py") for frame in _stack(error))
        advice = _OF_MASK if is_of_mask else "compute both with `torch.where`, or decide before the call"
        return "; ".join([f"the values of a tensor decide what it does{condition}: {advice}", *_places(error)[-1:]])
    if (collective := _collective(error)) is not None:
        advice = _INSTEAD.get(collective, "call it outside of the method, or another one that docs/ranks.md names")
        return "; ".join([f"Dynamo cannot trace `torch.distributed.{collective}`: {advice}", *where[-1:]])
    if (raised := _RAISED.search(rest)) is not None:
        return "; ".join([f"its trace ends in an exception, {raised[1]}", *where[-1:]])
    return "; ".join([f"Dynamo could not form one graph: {first}", *detail[:2], *where[-1:]])


def _places(error: BaseException) -> list[str]:
    """Return the lines of the user's files in which a trace failed; those of libraries if there are no others."""
    stack = _stack(error)
    frames = [frame for frame in stack if not is_library_file(frame.filename)] or stack
    return [f'File "{frame.filename}", line {frame.lineno}, in {frame.name}{_code(frame)}' for frame in frames]


def _code(frame: Any) -> str:
    """Return the code at which a frame of a stack is, unless it is long."""
    line = (frame.line or "").strip()
    return f": `{line}`" if 0 < len(line) <= _CODE_LETTERS else ""


def _collective(error: BaseException) -> str | None:
    """Return the function of `torch.distributed` in which a trace failed, as the method called it."""
    names = [frame.name for frame in _stack(error) if frame.filename.endswith("torch/distributed/distributed_c10d.py")]
    return next((name for name in names if not name.startswith("_")), None)


def _stack(error: BaseException) -> list[Any]:
    """Return the stack frames in which a trace failed."""
    return list(getattr(getattr(error, "inner_exception", error), "real_stack", None) or [])
