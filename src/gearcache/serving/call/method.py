"""A bound method that runs through compiled graphs kept on disk."""

from __future__ import annotations

import copy
import inspect
import threading
import time
import types
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import replace

from gearcache.errors import GearcacheError, MethodRaises
from gearcache.events import Event
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.guards.dispatch.graph_call import Mismatch
from gearcache.guards.dispatch.tensors.native import has_function_mode
from gearcache.guards.gears.input_specs import InputSpecs
from gearcache.interrupts import raise_interrupt
from gearcache.serving.call import session
from gearcache.serving.call.build_right import BuildRight
from gearcache.serving.call.call import Call
from gearcache.serving.call.failures import Failures, warn_lacking
from gearcache.serving.call.functions import place_of, undecorated, with_count, with_named_instance
from gearcache.serving.call.input_signature import InputSignature
from gearcache.serving.call.parameters import Parameters
from gearcache.serving.call.preparing import MethodLock, is_preparing, preparing
from gearcache.serving.call.stance import FORCE_EAGER, follow, present_stance
from gearcache.serving.find.binding import Binding
from gearcache.serving.find.bindings import Bindings
from gearcache.serving.find.loaded import Frame
from gearcache.serving.find.variants import OutdatedKey
from gearcache.telemetry.counters import Counters, Outcomes
from gearcache.telemetry.gear_use import GearUse
from gearcache.telemetry.spans import recorder, span
from gearcache.telemetry.stats import Stats
from gearcache.threads import freed_in_forks
from gearcache.torch_release import is_tested

if TYPE_CHECKING:
    from gearcache.guards.gears.example_sizes import Special
    from gearcache.serving.call.recorded_calls import RecordedCalls
    from gearcache.telemetry.method_shapes import MethodShapes
    from gearcache.telemetry.suggest import SuggestedGears

#: Held while a `__call__` is exchanged; the thread may or may not hold a method's lock.
_switch = freed_in_forks(threading.RLock())
#: How often a call looks for a graph again if the one it found no longer takes it.
_ATTEMPTS = 3


class CachedMethod:
    """A bound method that runs through compiled graphs kept on disk. Safe to call from several threads.

    Nothing is resolved before the first call: ranks may be unknown until then, and `set_dim_gears` marks tensors. Each
    instance has its own class, whose `__call__` is the dispatch function written for it.
    """

    #: Type checkers know `CachedMethod[[torch.Tensor], torch.Tensor]`; this makes it valid at run time.
    __class_getitem__: Any = classmethod(types.GenericAlias)

    def __new__(cls, *args: Any, **kwargs: Any) -> CachedMethod:
        own_class = type("CachedMethod", (cls,), {"__module__": cls.__module__})
        instance: CachedMethod = super().__new__(own_class)
        return instance

    def __init__(self, function: types.MethodType, parameters: Parameters) -> None:
        self._decorated = undecorated(function)
        self._function = with_named_instance(self._decorated.function)
        #: The module whose method it is.
        self.instance: Any = function.__self__
        self._parameters = parameters
        #: The name of the method in messages.
        self.name = parameters.name_of(self._function)
        self._signature = InputSignature(self.name, self._function, parameters)
        self._lock = MethodLock()
        #: Whether its calls may compile.
        self.right = BuildRight(self.instance)
        self._counters = Counters()
        self._outcomes = Outcomes(self.name)
        self._use = GearUse(self.name)
        self._dispatch: Callable[..., Any] = CachedMethod.__call__
        #: The dispatch that was last made from loaded graphs.
        self._made_dispatch: Callable[..., Any] = CachedMethod.__call__
        self._bindings = Bindings(
            self.name,
            self._function,
            self._decorated.mode,
            parameters,
            self._signature,
            self._counters,
            self._outcomes,
            self._use,
            self.right,
        )
        trace_recorder = recorder()
        self._recorded: RecordedCalls | None = None
        if trace_recorder is not None:
            from gearcache.serving.call.recorded_calls import RecordedCalls

            self._recorded = RecordedCalls(self.name, self._counters, self._outcomes, self._use, trace_recorder)
        self._failures = Failures(self.name)
        follow(self)
        self.refresh()
        if (open_session := session.current()) is not None:
            open_session.created(self)
            if self._signature:
                open_session.declared(self)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the method. This body serves only the first call."""
        return self._find_and_run(self._function.__self__, *args, **kwargs)

    def __repr__(self) -> str:
        binding = self._binding
        if binding is None:
            return f"<cached {self.name}, nothing loaded>"
        gears = len(binding.loaded.gear_texts())
        counts = f"{gears} {'graph' if gears == 1 else 'graphs'} loaded, {self._counters.hits} hits"
        return f"<cached {self.name}, entry {binding.entry.key.short_name}, {counts}, {self._counters.misses} misses>"

    @property
    def __name__(self) -> str:
        return self._function.__name__

    @property
    def __code__(self) -> types.CodeType:
        """The code of the method: `torch.export` reads it."""
        return self._decorated.original.__func__.__code__

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @property
    def parameters(self) -> Parameters:
        """The arguments that the user gave, with the specs that were set since."""
        return self._parameters

    @property
    def function(self) -> Callable[..., Any]:
        """The method itself, as its user wrote it."""
        return self._decorated.original

    def locked(self) -> AbstractContextManager[bool]:
        """Keep other threads out while this method is being prepared."""
        return preparing(self._lock)

    @property
    def stats(self) -> Stats:
        """Counters of this binding, see `gearcache.telemetry.stats.Stats`."""
        return Stats(self._counters, self._outcomes, self._use.calls_by_kind, self._shapes_met)

    def count_eager(self, reason: str) -> None:
        """Count a call that the owner of this method ran without a graph, by its reason: see `EAGER_REASONS`."""
        self._outcomes.ran_eagerly(reason)

    @property
    def entry_path(self) -> str | None:
        """Path of the entry's manifest; None before the first call."""
        binding = self._binding  # another thread may drop it
        return str(binding.entry.layout.manifest(binding.entry.key)) if binding is not None else None

    def explain(self) -> str:
        """Return what happened at the lookups so far: entry, hits, misses with their reasons, loaded gears.

        It also says if the last call that was looked up got no graph, and which logging calls the graphs leave out.
        """
        binding = self._binding or self._tried
        if binding is None:
            return f"{self.name}: {self._refusal or 'not called yet'}"
        lines = [f"{self.name}: entry {binding.entry.layout.manifest(binding.entry.key)}", *binding.history.lines]
        if self._refusal:
            lines.append(self._refusal)
        from gearcache.guards.gears.short_names import short_names

        gears = short_names(binding.loaded.gear_texts()).values()
        lines.append(f"loaded gears: {'; '.join(gears) or 'none'}")
        if left_out := binding.loaded.left_out():
            lines.append(f"left out of the graphs: {', '.join(left_out)}")
        return "\n".join(lines)

    def set_inputs(self, /, *inputs: Any, **named: Any) -> None:
        """Declare the arguments of all later calls, as `input_signature=` of `cache_compile` does.

        Specs by position declare all arguments, those by name some. They replace all earlier declarations; a call
        without specs removes them. The next call repeats its lookups. Raises `GearSpecError` for specs that do not fit
        the method, and then changes nothing.
        """
        specs = InputSpecs.of_inputs("set_inputs", inputs, named)
        parameters = replace(self._parameters, input_signature=specs)
        signature = InputSignature(self.name, self._function, parameters)
        with self._lock.held():
            self._parameters, self._signature = parameters, signature
            self._bindings.declare(parameters, signature)
            self.refresh()
        if signature and (open_session := session.current()) is not None:
            open_session.declared(self)

    @property
    def is_declared(self) -> bool:
        """Whether any of its arguments is declared."""
        return bool(self._signature)

    def warm(self, /, *args: Any, **kwargs: Any) -> None:
        """Compile and load every gear for a call like this one, without running it.

        Arguments that are declared (`input_signature=`, `set_inputs`) need not be given: zeros stand for tensors.
        With `on_miss="background"` it only starts the compile, unless you pass `wait=True`; `OptionError` for
        `wait=False` with another `on_miss`, which always waits. If the method has an argument `wait`, it gets it.
        Within a call that this thread prepares, such as in a signal handler, it does nothing.
        """
        is_background, waits = self._is_background, True
        if is_background or "wait" in kwargs:  # else a relaunch does not import the code that forks
            from gearcache.serving.miss.background import begin_build, take_wait

            waits = take_wait(self.name, self._function.__func__, kwargs, is_background=is_background)
        args, kwargs = self.filled(args, kwargs)
        if is_preparing():
            return
        if (open_session := session.current()) is not None:
            open_session.warm(self, args, kwargs)
            return
        if is_background:
            begin_build(self._prepare_locked, Call(self._function, self._bind(args, kwargs), waits=False), waits=waits)
        if waits:
            self._prepare_locked(self.call_of(args, kwargs))

    def filled(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call, with examples for declared arguments that are not given.

        `TypeError` if an argument is neither given nor declared.
        """
        if self._signature:
            return self._signature.filled(args, kwargs)
        self._signature.check_given(lambda: self._bind(args, kwargs))
        return args, with_count(self._function, args, kwargs)

    def declared_call(self, sizes: Special | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return a declared call, at some sizes of its open dims."""
        return self._signature.filled((), {}, sizes)

    def special_calls(self) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Return declared calls at those sizes of open dims that need their own traces (size 1)."""
        return [self._signature.filled((), {}, special) for special in self._signature.specials()]

    def suggest_gears(self, k: int) -> SuggestedGears:
        """Return at most `k` gears that minimise the padded work for the recorded shapes (`.stats.shapes`).

        `.gears` of the result is what `cache_compile` takes; `.today` says what it changes against the gears of today,
        and what it saves. Raises `GearSpecError` before any call.
        """
        from gearcache.telemetry.fleet_gears import propose, summed

        (traffic,) = summed([self._shapes_met()])
        return propose(traffic, k).suggestion

    def _shapes_met(self) -> MethodShapes:
        from gearcache.telemetry.method_shapes import MethodShapes

        owner = type(self._function.__self__)
        full_name = f"{owner.__module__}.{owner.__qualname__}.{self.__name__}"
        return MethodShapes(self.name, full_name, *self._bindings.shapes_met())

    def refresh(self) -> None:
        """Check the evidence and bind the weights again at the next call, for use after the module was changed."""
        with self._lock.held(), _switch:
            self._bindings.drop()
            self._begin_anew()

    def _leave(self, call: Call) -> None:
        """Look everything up again, as the module has changed; its graphs are kept for when it changes back."""
        with self._lock.held(), _switch:
            self._bindings.leave(self._binding, self._made_dispatch, call)
            self._begin_anew()

    def _begin_anew(self) -> None:
        self._binding: Binding | None = None
        #: The binding of the last call that was looked up, even if that failed; and its error.
        self._tried: Binding | None = None
        self._refusal = ""
        self._failures.clear()
        self._serve_by(CachedMethod.__call__)

    def _serve_from(self, dispatch: Callable[..., Any]) -> None:
        """Make a dispatch the object's `__call__`."""
        self._made_dispatch = dispatch
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
            type(self).__call__ = CachedMethod._run_eagerly if is_eager else self._dispatch  # type: ignore[method-assign]

    def _run_eagerly(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the method itself, without autograd like every cached call."""
        self._outcomes.ran_eagerly("stance" if present_stance() == FORCE_EAGER else "function mode")
        return self._run_original(args, kwargs)

    def _run_original(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with torch.no_grad():
            return self.function(*args, **kwargs)

    def _find_and_run(self, instance: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Serve a call that the dispatch does not know: find, load or compile, then run."""
        if self._recorded is not None:
            self._recorded.pass_on()
        if is_preparing():
            return self.function(*args, **kwargs)
        if (open_session := session.current()) is not None:
            return open_session.call(self, args, kwargs)
        if self._lacks_names():
            self._outcomes.ran_eagerly("torch")
            return self._run_original(args, kwargs)
        if private_core.is_traced():  # part of another trace, which has to see the method's operations
            return self.function(*args, **kwargs)
        if has_function_mode():  # it has to see the method's operations
            return self._run_eagerly(*args, **kwargs)
        if (dispatch := self._take_back()) is not None:
            return dispatch(self, *args, **kwargs)
        return self._serve(instance, args, kwargs)

    def _take_back(self) -> Callable[..., Any] | None:
        """Serve calls by the graphs of an earlier state of the module if it is in that again; needs no lookup.

        Returns the dispatch for the present call: another thread may put another one in its place.
        """
        returned = self._bindings.returned()
        if returned is None:
            return None
        with _switch:
            if not self._bindings.exchange(self._binding, self._made_dispatch, returned):
                return None
            self._binding = self._tried = returned.last
            self._serve_from(returned.dispatch)
            return self._dispatch

    def _serve(self, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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
                self._outcomes.was_refused(error)
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
            self._outcomes.ran_eagerly("changed")
        if refusal is not None:
            self._outcomes.ran_eagerly("exception")
        result = self._run_original(args, kwargs)
        if refusal is not None:
            refusal.note_return()
            if refusal.has_run:  # Dynamo cannot trace it
                self._outcomes.was_refused(refusal)
                raise refusal
        if self._recorded is not None:
            self._recorded.answer(begin, by_graph=False)
        return result

    def _frame_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Frame | None:
        """Return the frame that serves a call; None if the method itself has to run."""
        try:
            arguments = self._bind(args, kwargs)
        except TypeError:
            return None  # the method raises the clearer error
        if self._failures.are_many:
            self._outcomes.ran_eagerly("fault")
            return None
        is_background = self._is_background
        try:
            with preparing(self._lock, waits=not is_background) as is_free:
                if not is_free:
                    self._outcomes.ran_eagerly("background")
                    return None
                call = Call(self._function, arguments, present_stance(), waits=not is_background, is_run=True)
                with span("prepare", self.name):
                    prepared = self._prepare(call)
            return prepared[0] if prepared is not None else None
        except Exception as error:
            raise_interrupt(error)
            if isinstance(error, GearcacheError):
                raise
            self._failures.add(error, self._parameters)
            cause = f"{type(error).__name__}: {error}"
            self._refusal = f"the last call was left to the method: {cause}"
            self._counters.note(Event("fault", self.name, detail=cause))
            self._outcomes.ran_eagerly("fault")
            return None

    @property
    def _is_background(self) -> bool:
        return getattr(self._parameters.config, "on_miss", None) == "background"

    def _prepare_locked(self, call: Call) -> tuple[Frame, Binding] | None:
        """Prepare a call while no other thread does."""
        with preparing(self._lock), span("prepare", self.name):
            return self._prepare(call)

    def _lacks_names(self) -> bool:
        """Whether this torch lacks what a loaded graph needs; raises `MissingTorchNames` if the options are strict."""
        if is_tested(str(torch.__version__)):
            return False
        from gearcache.torch_names import lacking_for_hits

        lacking = lacking_for_hits()
        if lacking is None:
            return False
        if self._parameters.settings().strict:
            raise lacking
        self._refusal = f"the method itself answers: {lacking}"
        warn_lacking(lacking)
        return True

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
            self._outcomes.ran_eagerly("changed")
            return None
        self._refusal = ""
        binding.note_state()
        if binding in self._bindings:  # else it was refreshed in the meantime
            self._binding = binding
            self._bindings.release()
            self._serve_from(binding.dispatch(self._find_and_run))
        self._failures.clear()
        return (frame, binding) if frame is not None else None

    def prepare(self, call: Call) -> Binding | None:
        """Load or compile what serves a call, without running it; None if the method itself would run."""
        prepared = self._prepare_locked(call)
        return prepared[1] if prepared is not None else None

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

    def call_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Bind the arguments of a call to the method's parameters, with defaults; raises the method's `TypeError`."""
        return Call(self._function, self._bind(args, kwargs))

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        signature = inspect.signature(self._function.__func__, follow_wrapped=False)
        bound = signature.bind(self._function.__self__, *args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def binding_for(self, call: Call) -> Binding:
        """Return the binding of a call; makes key and store for a new one."""
        return self._bindings.for_call(call, session.current())

    def __deepcopy__(self, memo: dict[int, Any]) -> CachedMethod:
        """A copy of the module gets its own binding, resolved at its first call."""
        module = copy.deepcopy(self._function.__self__, memo)
        return CachedMethod(types.MethodType(self._decorated.original.__func__, module), self._parameters)

    def __reduce__(self) -> Any:
        owner, attribute = place_of(type(self.instance), self._function.__func__)
        return _rebuild, (self.instance, owner, attribute, self._parameters)


def _rebuild(module: torch.nn.Module, owner: type, name: str, parameters: Parameters) -> CachedMethod:
    member = vars(owner)[name]
    return CachedMethod(types.MethodType(getattr(member, "function", member), module), parameters)


def _as_it_is(self: CachedMethod, /, *args: Any, **kwargs: Any) -> Any:
    """What Dynamo traces when a cached method is called: the method itself."""
    return self.function(*args, **kwargs)


for _call in (CachedMethod.__call__, CachedMethod._run_eagerly):
    private_core.traced_as(_call, _as_it_is)
