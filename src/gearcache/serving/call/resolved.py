"""A cached method before its calls, and what its first call determines: the key and everything that it is made from."""

from __future__ import annotations

import inspect
import os
import types
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct
from msgspec.structs import asdict, replace

from gearcache.cache.keys.fingerprint import Ranks, method_key, resolve_ranks
from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout, resolve_root
from gearcache.errors import GearSpecError, OptionError
from gearcache.ge_cache.backend import Backend
from gearcache.ge_cache.private_torch import shapes as private_shapes
from gearcache.ge_cache.select import select_backend
from gearcache.guards.arguments import find_tensors
from gearcache.guards.evidence.code import method_component
from gearcache.guards.evidence.overrides import overrides_component
from gearcache.guards.gears.input_specs import InputSpecs
from gearcache.guards.gears.parse import GearSpec, RangeAxis, fill_dims, gears_of_arguments, parse_gears, with_specs
from gearcache.options import Settings
from gearcache.serving.call.bound_method import BoundMethod
from gearcache.serving.call.build_right import BuildRight
from gearcache.serving.call.call import Call
from gearcache.serving.call.input_signature import InputSignature
from gearcache.serving.call.parameters import Parameters
from gearcache.serving.call.session import Session
from gearcache.telemetry.counters import Counters
from gearcache.telemetry.gear_use import GearUse
from gearcache.version import __version__

if TYPE_CHECKING:
    from gearcache.guards.dispatch.fills import Fills


class DeclaredMethod(Struct, frozen=True, eq=False):
    """What all bindings of a method share.

    That is the method, what its user has declared about it, whether it may compile, and the counters of its calls.
    """

    #: The name of the method in messages.
    name: str
    bound: BoundMethod
    #: The arguments of `cache_compile`, with the input specs that were set since.
    parameters: Parameters
    inputs: InputSignature
    right: BuildRight
    counters: Counters
    use: GearUse

    @staticmethod
    def of(written: types.MethodType, parameters: Parameters) -> DeclaredMethod:
        """Declare a method; `CaptureError` or `GearSpecError` if decorators or specs make it impossible to cache."""
        bound = BoundMethod.of(written)
        name = parameters.name_of(bound.method)
        inputs = InputSignature(name, bound, parameters)
        return DeclaredMethod(
            name, bound, parameters, inputs, BuildRight(bound.instance), Counters(method=name), GearUse(name)
        )

    def with_inputs(self, specs: InputSpecs) -> DeclaredMethod:
        """Return it with other specs of the arguments; `GearSpecError` for those that do not fit."""
        parameters = replace(self.parameters, input_signature=specs)
        return replace(self, parameters=parameters, inputs=InputSignature(self.name, self.bound, parameters))


class ResolvedMethod(DeclaredMethod, frozen=True, eq=False, kw_only=True):
    """One declared method under one global state, with its resolved options."""

    key: CacheKey
    layout: Layout
    settings: Settings
    spec: GearSpec
    backend: Backend
    #: The places of the declared arguments in the present call, by their names.
    places: Mapping[str, str]
    #: Paths of ints that are to be constants of the graphs.
    constants: tuple[str, ...]
    #: Whether loaded graphs serve calls; a prewarm only makes sure that everything is stored.
    serves: bool
    #: The position of this process in its job, as in the key.
    ranks: Ranks

    @property
    def fills(self) -> Fills:
        """The values of the filling of calls between gears."""
        from gearcache.guards.dispatch.fills import Fills

        return Fills(self.settings.pad_values, self.settings.filling == "vouched")


def resolve(
    declared: DeclaredMethod, call: Call, state: dict[str, Any], overrides: Session | None = None
) -> ResolvedMethod:
    """Determine backend, gears, ranks and key of a method; `state` is the global state of torch, as in the key.

    The tensors of `call`, the present one, may carry gears (`set_dim_gears`) and marks. The settings of `overrides`, an
    open prewarm, replace those of the method.
    """
    bound, parameters, inputs = declared.bound, declared.parameters, declared.inputs
    tensors = find_tensors(call.given)
    declared_tensors = inputs.tensors_of(call)
    marked_gears = () if parameters.gears or declared_tensors else gears_of_arguments(tensors)
    settings = parameters.settings(is_geared=bool(marked_gears))
    settings = replace(settings, pad_values=call.at_their_places(settings.pad_values) or {})
    cache_dir, global_rank, world_size = parameters.cache_dir, parameters.global_rank, None
    if overrides is not None:
        # In a prewarm, the user has to know about faults of the cache.
        settings = replace(settings, strict=True, jobs=overrides.jobs or settings.jobs)
        cache_dir = overrides.cache_dir or cache_dir
        global_rank = overrides.rank if global_rank is None else global_rank
        world_size = overrides.world_size
    if parameters.gears and not _takes_any_name(call):
        _check_arguments("gears", parameters.gears, bound, call, GearSpecError)
    gears = call.at_their_places(parameters.gears)
    constants = _constants(parameters, bound, call)
    spec = (
        GearSpec(marked_gears, settings.policy)
        if marked_gears
        else with_specs(parse_gears(gears, settings.policy), declared_tensors)
    )
    backend = select_backend(settings, bound.instance, tensors.values())
    ranks = resolve_ranks(global_rank, parameters.tp_rank, parameters.pp_rank, world_size=world_size)
    key = method_key(
        declared.name,
        bound.instance,
        method=method_component(bound.function) | ({"mode": bound.mode} if bound.mode else {}),
        options=settings.compile_options,
        gears=_gears_component(spec, settings, parameters),
        dynamic=_dynamic_component(parameters, tensors),
        decompositions=_decompositions_component(parameters.custom_decompositions),
        overrides=overrides_component(declared.name, compiled=backend.compiles),
        software={"gearcache": __version__},
        ranks=ranks,
        state=state,
        backend={"name": backend.name, **backend.fingerprint()},
    )
    return ResolvedMethod(
        **asdict(declared),
        key=key,
        layout=Layout(resolve_root(cache_dir, os.environ), ranks.folder),
        settings=settings,
        spec=spec,
        backend=backend,
        places=inputs.places(call),
        constants=constants,
        serves=overrides is None,
        ranks=ranks,
    )


def _gears_component(spec: GearSpec, settings: Settings, parameters: Parameters) -> dict[str, Any]:
    component = spec.to_plain()
    if settings.pad_values:  # the filled dims, and the basis of the proof
        component["pad"] = fill_dims(settings.pad_values)
        if settings.filling != "proven":
            component["filling"] = settings.filling
    if parameters.apart is not None:
        component["apart"] = parameters.apart
    return component


def _decompositions_component(decompositions: Mapping[Any, Any] | None) -> list[list[Any]]:
    if not decompositions:
        return []
    from gearcache.guards.evidence.identity import decompositions_component

    return decompositions_component(decompositions)


def _constants(parameters: Parameters, bound: BoundMethod, call: Call) -> tuple[str, ...]:
    """Return the paths of declared constants as the method has them; `OptionError` for a path without a valid root."""
    if not parameters.constants:
        return ()
    _check_arguments("constants", parameters.constants, bound, call, OptionError)
    call_paths = call.at_their_places(dict.fromkeys(parameters.constants)) or {}
    return tuple(sorted({*parameters.constants, *call_paths}))


def _takes_any_name(call: Call) -> bool:
    """Whether a method has a `**kwargs`, in which a later call may give any name."""
    kinds = [parameter.kind for parameter in call.signature.inner.parameters.values()]
    return inspect.Parameter.VAR_KEYWORD in kinds


def _check_arguments(option: str, paths: Iterable[str], bound: BoundMethod, call: Call, error: type[Exception]) -> None:
    """Raise `error` for a path that begins with neither a parameter of a method nor an argument of its call."""
    names = dict.fromkeys([*call.arguments, *call.signature.inner.parameters])
    for path in paths:
        if RangeAxis(path, 0, 1).argument not in names:
            raise error(
                f"cache_compile: {option} names `{path}`, which is no parameter of `{bound.function.__qualname__}`; "
                f"it has {', '.join([*names][1:])}"  # the instance apart
            )


def _dynamic_component(parameters: Parameters, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Return the values that determine dynamic dims: parameters, marks on the first call's tensors, torch settings."""
    marks, sources = private_shapes.shape_marks(tensors), private_shapes.shape_sources()
    component: dict[str, Any] = {"marks": marks, "sources": sources} if marks or sources else {}
    component |= {"constants": sorted(parameters.constants)} if parameters.constants else {}
    return {"dynamic": parameters.dynamic, **component} if component else parameters.dynamic
