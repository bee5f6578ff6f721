"""One run of Dynamo over a call, and what probes report of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import torch

from gearcache.errors import CaptureError, MethodRaises, NoOperation, UncacheableGuard
from gearcache.ge_cache.capture.cause import cause_of
from gearcache.ge_cache.capture.hook import GraphHook
from gearcache.ge_cache.capture.number_choice import NumberChoice, NumberRefused, WantedNumbers
from gearcache.ge_cache.capture.source_paths import FrameNames
from gearcache.ge_cache.capture.tensors import Weights
from gearcache.ge_cache.dependencies.log import TraceLog
from gearcache.ge_cache.dependencies.paths import Paths
from gearcache.ge_cache.dependencies.seen import Seen, others_run
from gearcache.ge_cache.dependencies.switches import check_switches
from gearcache.ge_cache.dependencies.tensor_reads import check_graph
from gearcache.ge_cache.private_torch import dynamo as private_dynamo
from gearcache.ge_cache.private_torch import every_probe
from gearcache.ge_cache.private_torch import fake as private_fake
from gearcache.ge_cache.private_torch import raised as private_raised
from gearcache.ge_cache.private_torch.nodes import kernels_restored_after_a_failure
from gearcache.ge_cache.private_torch.probe import listening
from gearcache.guards.access import Scope


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
                    check_switches(self.method, self.hook.module)
        except private_dynamo.dynamo_errors() as error:
            raise self._refusal(error) from error
        except CaptureError:
            raise
        except Exception as error:  # Dynamo itself broke, or a function that it called
            self.raise_refusals()
            cause = f"Dynamo could not form one graph: it failed with {type(error).__name__}: {error}"
            kind = MethodRaises if private_raised.is_raised_by_arguments(error) else CaptureError
            raise kind(self.method, cause) from error
        self._refuse_numbers()
        self.raise_refusals()
        if self.hook.module is None or self.hook.only_computes_floats:
            raise NoOperation(self.method)
        self.module = self.hook.module
        check_graph(self, self.module.graph, with_grad=self.with_grad)

    def _refuse_numbers(self) -> None:
        """Raise `NumberRefused` if the graph cannot take the value of a number at each call."""
        sources = self.hook.numbers.sources
        mixed = {symbol for (symbol,) in self.of("symbol of a float")}
        for cause, symbols in [*self.hook.numbers.refusals, ("a float is computed from it and a size", mixed)]:
            if refused := sources.keys() & symbols:
                places = [self.numbers.place(sources[symbol]) for symbol in refused]
                raise NumberRefused(self.method, cause, refused, filter(None, places))

    def _refusal(self, error: BaseException) -> CaptureError:
        inner_error = getattr(error, "inner_exception", None)
        if isinstance(inner_error, CaptureError):  # raised by our hook: already complete
            return inner_error
        if not private_raised.is_raised_by_method(error):
            self.raise_refusals()
            return CaptureError(self.method, cause_of(error))
        refusal = MethodRaises(self.method, cause_of(error))
        refusal.is_by_statement = private_raised.is_about_to_raise(error)
        return refusal

    def is_of_change(self, error: Exception) -> bool:
        """Whether a failure may come from what another thread has changed since the trace read it."""
        if not others_run() or not hasattr(self, "frame"):
            return False
        cause = error.__cause__ or error
        if isinstance(cause, RuntimeError) and "during iteration" in str(cause):
            return True
        if isinstance(error, UncacheableGuard):
            return error.has_changed
        is_by_name = not isinstance(error, MethodRaises) and isinstance(cause, private_dynamo.dynamo_errors())
        if not isinstance(error, CaptureError) or cause is error or is_by_name:
            return False
        paths = Paths(self.method, self.scope, FrameNames({}, {}, tuple(self.scope.closure)))
        return self.state(Seen).is_other_now(self, paths)

    def _begin(self, frame: Any) -> None:
        self.frame = frame
        self.numbers.begin(self.scope, frame.code.co_varnames[0])

    @property
    def scope(self) -> Scope:
        """The names that the frame sees."""
        closure = dict(zip(self.frame.code.co_freevars, self.frame.closure, strict=True))
        local = {name: value for name, value in self.frame.locals.items() if name not in closure}
        return Scope(local, self.frame.globals, closure)
