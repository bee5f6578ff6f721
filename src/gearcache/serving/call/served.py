"""Serves the calls of one cached method: by the dispatch, by what a lookup finds, or by the method itself."""

from __future__ import annotations

import threading
import time
import types
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from gearcache.errors import GearcacheError, MethodRaises
from gearcache.events import Event
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.guards.dispatch.graph_call import Mismatch
from gearcache.guards.dispatch.tensors.native import has_function_mode
from gearcache.interrupts import raise_interrupt
from gearcache.serving.call import session
from gearcache.serving.call.call import Call
from gearcache.serving.call.parameters import Parameters
from gearcache.serving.call.preparing import MethodLock, is_preparing, preparing
from gearcache.serving.call.resolved import DeclaredMethod
from gearcache.serving.call.stance import FORCE_EAGER, follow, present_stance
from gearcache.serving.find.binding import Binding
from gearcache.serving.find.bindings import Bindings
from gearcache.serving.find.loaded import Frame
from gearcache.serving.find.variants import OutdatedKey
from gearcache.telemetry.spans import recorder, span
from gearcache.threads import freed_in_forks
from gearcache.torch_release import is_tested

if TYPE_CHECKING:
    from gearcache.serving.call.recorded_calls import RecordedCalls

#: Held while a `__call__` is exchanged; the thread may or may not hold a method's lock.
_switch = freed_in_forks(threading.RLock())
#: How often a call looks for a graph again if the one it found no longer takes it.
_ATTEMPTS = 3
#: After so many unexpected exceptions in a row a method runs uncached: each attempt may take as long as a compile.
_MOST_FAILURES = 3


class ServedMethod:
    """A bound method whose calls loaded graphs serve, where there are any. Safe to call from several threads.

    Nothing is resolved before the first call: ranks may be unknown until then, and `set_dim_gears` marks tensors. Each
    instance has its own class, whose `__call__` is the dispatch function written for it: that takes the calls that it
    knows, and hands others to `_serve_unknown`.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        own_class = type("CachedMethod", (cls,), {"__module__": cls.__module__})
        return super().__new__(own_class)

    def __init__(self, function: types.MethodType, parameters: Parameters) -> None:
        self._declared = DeclaredMethod.of(function, parameters)
        #: The name of the method in messages.
        self.name = self._declared.name
        #: The module whose method it is.
        self.instance: Any = self._declared.bound.instance
        #: Whether its calls may compile.
        self.right = self._declared.right
        self._counters = self._declared.counters
        self._lock = MethodLock()
        self._bindings = Bindings()
        #: Unexpected exceptions since a call was last prepared, and the causes of all so far.
        self._failures, self._failure_causes = 0, set[str]()
        #: The `__call__`, unless the stance forbids compiled code.
        self._dispatch: Callable[..., Any] = ServedMethod.__call__
        self._recorded: RecordedCalls | None = None
        if (trace_recorder := recorder()) is not None:
            from gearcache.serving.call.recorded_calls import RecordedCalls

            self._recorded = RecordedCalls(self._counters, self._declared.use, trace_recorder)
        follow(self)
        self.refresh()

    @property
    def function(self) -> Callable[..., Any]:
        """The method itself, as its user wrote it."""
        return self._declared.bound.written

    def locked(self) -> AbstractContextManager[bool]:
        """Keep other threads out while this method is being prepared."""
        return preparing(self._lock)

    # -- which function serves the calls -----------------------------------------------------------------

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the method. This body serves only the first call."""
        return self._serve_unknown(self.instance, *args, **kwargs)

    def refresh(self) -> None:
        """Check the evidence and bind the weights again at the next call, for use after the module was changed."""
        with self._lock.held(), _switch:
            self._bindings.drop()
            self._begin_anew()

    def _leave(self, call: Call) -> None:
        """Look everything up again, as the module has changed; its graphs are kept for when it changes back."""
        with self._lock.held(), _switch:
            self._bindings.leave(call)
            self._begin_anew()

    def _begin_anew(self) -> None:
        #: The binding of the last call that was looked up, even if that failed; and its error.
        self._tried: Binding | None = None
        self._refusal = ""
        self._failures = 0
        self._serve_by(ServedMethod.__call__)

    def _serve_from_graphs(self, dispatch: Callable[..., Any]) -> None:
        """Serve calls by a dispatch that was made from loaded graphs."""
        self._serve_by(dispatch if self._recorded is None else self._recorded.noting(dispatch))

    def follow_stance(self) -> None:
        """Serve calls by the present `torch.compiler.set_stance`; called when the stance changes."""
        self._serve_by()

    def _serve_by(self, dispatch: Callable[..., Any] | None = None) -> None:
        """Make a function the object's `__call__`, unless the stance forbids compiled code."""
        with _switch:
            if dispatch is not None:
                self._dispatch = private_core.traced_as(dispatch, _as_it_is)
            is_eager = present_stance() == FORCE_EAGER
            type(self).__call__ = ServedMethod._run_eagerly if is_eager else self._dispatch  # type: ignore[method-assign]

    def _run_eagerly(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the method itself, without autograd like every cached call."""
        self._counters.ran_eagerly("stance" if present_stance() == FORCE_EAGER else "function mode")
        return self._run_itself(args, kwargs)

    def _run_itself(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with torch.no_grad():
            return self.function(*args, **kwargs)

    # -- a call that the dispatch does not know ----------------------------------------------------------

    def _serve_unknown(self, instance: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Serve a call that the dispatch does not know: find, load or compile, then run."""
        if self._recorded is not None:
            self._recorded.pass_on()
        if is_preparing():
            return self.function(*args, **kwargs)
        if (open_session := session.current()) is not None:
            return open_session.call(self, args, kwargs)
        if self._lacks_names():
            self._counters.ran_eagerly("torch")
            return self._run_itself(args, kwargs)
        if private_core.is_traced():  # part of another trace, which has to see the method's operations
            return self.function(*args, **kwargs)
        if has_function_mode():  # it has to see the method's operations
            return self._run_eagerly(*args, **kwargs)
        if (dispatch := self._take_back()) is not None:
            return dispatch(self, *args, **kwargs)
        return self._look_up_and_run(instance, args, kwargs)

    def _take_back(self) -> Callable[..., Any] | None:
        """Serve calls by the graphs of an earlier state of the module if it is in that again; needs no lookup.

        Returns the dispatch for the present call: another thread may put another one in its place.
        """
        returned = self._bindings.returned()
        if returned is None:
            return None
        with _switch:
            if not self._bindings.exchange(returned):
                return None
            self._tried = returned.last
            assert returned.dispatch is not None, "a state is set aside once it has served a call"
            self._serve_from_graphs(returned.dispatch)
            return self._dispatch

    def _look_up_and_run(self, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        refusal = None
        begin = time.perf_counter()
        for _ in range(_ATTEMPTS):
            try:
                frame = self._frame_for(args, kwargs)
            except GearcacheError as error:
                if isinstance(error, MethodRaises) and not error.has_run:
                    refusal = error
                    self._refusal = f"the last call was left to the method: its trace ends in an exception: {error}"
                    break
                self._refusal = f"the last call was refused: {type(error).__name__}: {error}"
                self._counters.was_refused(error)
                raise
            if frame is None:
                break
            try:
                with span("run", self.name):
                    result = frame(instance, *args, **kwargs)
                if self._recorded is not None:
                    self._recorded.answer(begin, by_graph=True)
                return result
            except Mismatch:  # another thread has changed something since the lookup
                continue
        else:
            self._counters.ran_eagerly("changed")
        if refusal is not None:
            self._counters.ran_eagerly("exception")
        result = self._run_itself(args, kwargs)
        if refusal is not None:
            refusal.note_return()
            if refusal.has_run:  # Dynamo cannot trace it
                self._counters.was_refused(refusal)
                raise refusal
        if self._recorded is not None:
            self._recorded.answer(begin, by_graph=False)
        return result

    def _frame_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Frame | None:
        """Return the frame that serves a call; None if the method itself has to run."""
        is_background = self._is_background
        try:
            call = Call(self._declared.bound, args, kwargs, waits=not is_background, is_run=True)
        except TypeError:
            return None  # the method raises the clearer error
        if self._failures >= _MOST_FAILURES:
            self._counters.ran_eagerly("fault")
            return None
        try:
            with preparing(self._lock, waits=not is_background) as is_free:
                if not is_free:
                    self._counters.ran_eagerly("background")
                    return None
                call.stance = present_stance()
                with span("prepare", self.name):
                    prepared = self._prepare(call)
            return prepared[0] if prepared is not None else None
        except Exception as error:
            raise_interrupt(error)
            if isinstance(error, GearcacheError):
                raise
            from gearcache.serving.call.failures import report_failure

            strict = self._declared.parameters.settings().strict
            report_failure(self.name, error, self._failure_causes, strict=strict)
            self._failures += 1
            cause = f"{type(error).__name__}: {error}"
            self._refusal = f"the last call was left to the method: {cause}"
            self._counters.note(Event("fault", self.name, detail=cause))
            self._counters.ran_eagerly("fault")
            return None

    @property
    def _is_background(self) -> bool:
        return getattr(self._declared.parameters.config, "on_miss", None) == "background"

    def _lacks_names(self) -> bool:
        """Whether this torch lacks what a loaded graph needs; raises `MissingTorchNames` if the options are strict."""
        if is_tested(str(torch.__version__)):
            return False
        from gearcache.serving.call.failures import warn_lacking
        from gearcache.torch_names import lacking_for_hits

        lacking = lacking_for_hits()
        if lacking is None:
            return False
        if self._declared.parameters.settings().strict:
            raise lacking
        self._refusal = f"the method itself answers: {lacking}"
        warn_lacking(lacking)
        return True

    # -- preparing a call --------------------------------------------------------------------------------

    def call_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Return a call that is only prepared; raises the `TypeError` of the method for other arguments."""
        return Call(self._declared.bound, args, kwargs)

    def prepare(self, call: Call) -> Binding | None:
        """Load or compile what serves a call, without running it; None if the method itself would run."""
        with preparing(self._lock), span("prepare", self.name):
            prepared = self._prepare(call)
        return prepared[1] if prepared is not None else None

    def _prepare(self, call: Call) -> tuple[Frame, Binding] | None:
        """Return the frame that serves a call, and the binding that has it; None if the method itself has to run."""
        if self._lacks_names():
            self._counters.note(Event("fault", self.name, detail=self._refusal))
            return None
        for _ in range(_ATTEMPTS):
            binding = self._tried = self.current_binding(call)
            try:
                frame = binding.prepare(call)
                break
            except OutdatedKey:
                self._leave(call)
        else:  # another thread changes the module, or torch's state, all the time
            self._counters.ran_eagerly("changed")
            return None
        self._refusal = ""
        binding.note_state()
        self._serve_by_binding(binding)
        self._failures = 0
        return (frame, binding) if frame is not None else None

    def _serve_by_binding(self, binding: Binding) -> None:
        """Serve calls by the graphs of a binding that has prepared one, unless it was refreshed in the meantime."""
        if binding not in self._bindings:
            return
        dispatch = binding.dispatch(self._serve_unknown)
        with _switch:
            present = self._bindings.present
            if binding not in present.all_bindings():  # another thread has taken an earlier state back
                return
            # In this order, as a state that has a `last` may be set aside by a signal handler.
            present.dispatch = dispatch
            present.last = binding
            self._serve_from_graphs(dispatch)
        self._bindings.release()

    def current_binding(self, call: Call) -> Binding:
        """Return the binding of a call; its loaded graphs are dropped if their basis has changed.

        The caller keeps other threads out (`locked`).
        """
        if self._lock.is_abandoned:
            self._lock.is_abandoned = False
            self.refresh()
        elif self._bindings.are_outdated(call):
            self._leave(call)
        return self.binding_for(call)

    def binding_for(self, call: Call) -> Binding:
        """Return the binding of a call; makes key and store for a new one."""
        return self._bindings.for_call(self._declared, call, session.current())


def _as_it_is(self: ServedMethod, /, *args: Any, **kwargs: Any) -> Any:
    """What Dynamo traces when a cached method is called: the method itself."""
    return self.function(*args, **kwargs)


for _call in (ServedMethod.__call__, ServedMethod._run_eagerly):
    private_core.traced_as(_call, _as_it_is)
