"""A bound method that runs through compiled graphs kept on disk: what users have of it."""

from __future__ import annotations

import copy
import inspect
import types
from typing import TYPE_CHECKING, Any

import torch

from gearcache.guards.gears.input_specs import InputSpecs
from gearcache.serving.call import session
from gearcache.serving.call.bound_method import owner_of
from gearcache.serving.call.call import Call
from gearcache.serving.call.parameters import Parameters
from gearcache.serving.call.preparing import is_preparing
from gearcache.serving.call.served import ServedMethod
from gearcache.serving.find.binding import Binding
from gearcache.telemetry.stats import Stats  # not when it is asked for: there may be no descriptor left then

if TYPE_CHECKING:
    from gearcache.guards.gears.example_sizes import Special
    from gearcache.telemetry.method_shapes import MethodShapes
    from gearcache.telemetry.suggest import SuggestedGears


class CachedMethod(ServedMethod):
    """A bound method that runs through compiled graphs kept on disk. Safe to call from several threads."""

    #: Type checkers know `CachedMethod[[torch.Tensor], torch.Tensor]`; this makes it valid at run time.
    __class_getitem__: Any = classmethod(types.GenericAlias)

    def __init__(self, function: types.MethodType, parameters: Parameters) -> None:
        super().__init__(function, parameters)
        if (open_session := session.current()) is not None:
            open_session.created(self)
            if self.is_declared:
                open_session.declared(self)

    def __repr__(self) -> str:
        binding = self._binding
        if binding is None:
            return f"<cached {self.name}, nothing loaded>"
        gears = len(binding.loaded.gear_texts())
        counts = f"{gears} {'graph' if gears == 1 else 'graphs'} loaded, {self._counters.hits} hits"
        return f"<cached {self.name}, entry {binding.entry.key.short_name}, {counts}, {self._counters.misses} misses>"

    @property
    def __name__(self) -> str:
        return self._declared.bound.method.__name__

    @property
    def __code__(self) -> types.CodeType:
        """The code of the method: `torch.export` reads it."""
        return self._declared.bound.written.__func__.__code__

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @property
    def parameters(self) -> Parameters:
        """The arguments that the user gave, with the specs that were set since."""
        return self._declared.parameters

    # -- what has happened -------------------------------------------------------------------------------

    @property
    def stats(self) -> Stats:
        """Counters of this binding, see `gearcache.telemetry.stats.Stats`."""
        return Stats(self._counters, self._declared.use.calls_by_kind, self._shapes_met)

    def count_eager(self, reason: str) -> None:
        """Count a call that the owner of this method ran without a graph, by its reason: see `EAGER_REASONS`."""
        self._counters.ran_eagerly(reason)

    @property
    def _binding(self) -> Binding | None:
        """The binding that has served the last call; another thread may drop it."""
        return self._bindings.present.last

    @property
    def entry_path(self) -> str | None:
        """Path of the entry's manifest; None before the first call."""
        binding = self._binding
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

        owner = type(self.instance)
        full_name = f"{owner.__module__}.{owner.__qualname__}.{self.__name__}"
        counts = self._bindings.shapes_met()
        return MethodShapes(self.name, full_name, counts.dims, counts.gears, counts.calls)

    # -- what is declared --------------------------------------------------------------------------------

    def set_inputs(self, /, *inputs: Any, **named: Any) -> None:
        """Declare the arguments of all later calls, as `input_signature=` of `cache_compile` does.

        Specs by position declare all arguments, those by name some. They replace all earlier declarations; a call
        without specs removes them. The next call repeats its lookups. Raises `GearSpecError` for specs that do not fit
        the method, and then changes nothing.
        """
        declared = self._declared.with_inputs(InputSpecs.of_inputs("set_inputs", inputs, named))
        with self._lock.held():
            self._declared = declared
            self.refresh()
        if self.is_declared and (open_session := session.current()) is not None:
            open_session.declared(self)

    @property
    def is_declared(self) -> bool:
        """Whether any of its arguments is declared."""
        return bool(self._declared.inputs)

    def declared_call(self, sizes: Special | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return a declared call, at some sizes of its open dims."""
        return self._declared.inputs.filled((), {}, sizes)

    def special_calls(self) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Return declared calls at those sizes of open dims that need their own traces (size 1)."""
        return [self.declared_call(special) for special in self._declared.inputs.specials()]

    def filled(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call, with examples for declared arguments that are not given.

        `TypeError` if an argument is neither given nor declared.
        """
        return self._declared.inputs.filled(args, kwargs)

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

            waits = take_wait(self.name, self._declared.bound, kwargs, is_background=is_background)
        args, kwargs = self.filled(args, kwargs)
        if is_preparing():
            return
        if (open_session := session.current()) is not None:
            open_session.warm(self, args, kwargs)
            return
        if is_background:
            begin_build(self.prepare, Call(self._declared.bound, args, kwargs, waits=False), waits=waits)
        if waits:
            self.prepare(self.call_of(args, kwargs))

    # -- copies ------------------------------------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any]) -> CachedMethod:
        """A copy of the module gets its own binding, resolved at its first call."""
        module = copy.deepcopy(self.instance, memo)
        return CachedMethod(types.MethodType(self._declared.bound.written.__func__, module), self.parameters)

    def __reduce__(self) -> Any:
        owner, attribute = owner_of(self._declared.bound.function, type(self.instance))
        return _rebuild, (self.instance, owner, attribute, self.parameters)


def _rebuild(module: torch.nn.Module, owner: type, name: str, parameters: Parameters) -> CachedMethod:
    member = vars(owner)[name]
    return CachedMethod(types.MethodType(getattr(member, "function", member), module), parameters)
