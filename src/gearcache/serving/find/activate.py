"""Turns a stored variant whose evidence holds into callable gears: loads the graphs, and binds the weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from msgspec import Struct, field

from gearcache.errors import CacheError
from gearcache.ge_cache.backend import Runner, StoredArtifact
from gearcache.guards.dispatch.frame import bind_frame, resolve_reference
from gearcache.guards.dispatch.function import BoundGear
from gearcache.guards.dispatch.graph_call import GraphCall
from gearcache.guards.dispatch.stored.variant import StoredGear, StoredVariant
from gearcache.guards.watch.facts import WatchedFacts
from gearcache.serving.call.resolved import ResolvedMethod
from gearcache.serving.find.basis import Basis
from gearcache.serving.find.entry import Entry
from gearcache.serving.find.fit import ArgumentCheck
from gearcache.telemetry.spans import span
from gearcache.torch_state import autocast_devices, outside_autocast


class ActiveVariant(Struct):
    """A variant whose evidence holds and whose gears are loaded."""

    variant: StoredVariant
    graphs: list[GraphCall]
    method: Any  #: a `types.FunctionType`, which a type checker would bind
    objects: list[Any]
    basis: Basis
    #: The gears that were bound last, by the functions of their graphs, and the watch that there was before.
    bound: dict[Callable[..., Any], BoundGear] = field(default_factory=dict)
    watched: WatchedFacts | None = None

    def bound_gears(self) -> list[BoundGear]:
        """Return a frame per gear, as the dispatch needs them.

        A frame has objects to which the evidence leads, so it is made anew if any of them may have been exchanged.
        """
        watched = self.basis.watched
        if watched is not self.watched or not watched.holds():
            self.watched, self.bound = watched, {}
        self.bound = {graph.function: self.bound.get(graph.function) or self._bind(graph) for graph in self.graphs}
        return list(self.bound.values())

    def _bind(self, graph: GraphCall) -> BoundGear:
        frame = bind_frame(self.variant.frame, self._references(graph), self.method)
        return BoundGear(self.variant, graph.gear, frame, self.objects)

    def _references(self, graph: GraphCall) -> dict[str, Any]:
        references = {name: resolve_reference(kind, value) for name, (kind, value) in self.variant.references.items()}
        references[self.variant.graph_name] = graph.function
        return references


def activate(
    variant: StoredVariant, arguments: ArgumentCheck, basis: Basis, method: ResolvedMethod, entry: Entry
) -> ActiveVariant:
    """Load every gear of a variant that fits a call; the live weights are bound without a copy.

    `CacheError` if a blob is missing, corrupt or not to be trusted.
    """
    function, attributes, validate = method.bound.function, basis.bound, method.settings.validate == "inputs"
    instance_scope = method.bound.scope({})  # keeps the instance alive, but none of the call's arguments
    device = torch.device(variant.inputs[0].device if variant.inputs else "cpu")
    graphs, scope = [], arguments.call.scope

    def examples() -> list[torch.Tensor]:
        return [stored.access.resolve(scope) for stored in variant.inputs]

    for gear in variant.gears:
        try:
            # Constants are normal tensors in any mode of the current call, because calls of all modes use them.
            with span("gear", gear.text), torch.inference_mode(False), torch.no_grad():
                artifact = _artifact(gear, entry, examples, keeps_compiled=method.parameters.ge_cache)
                run = method.backend.load(artifact, attributes, device)
            # Autocast is the same at every call, because it is part of the state.
            if autocast_devices():
                run = _without_autocast(run)
            if any(0 in sizes for sizes in gear.sizes):
                run = _with_distinct_results(run)
        except CacheError:
            raise
        except Exception as error:
            from gearcache.guards.gears.short_names import sizes_name

            # Nothing is deleted: the fault may be on this host only, and temporary.
            name = sizes_name(gear.text)
            raise CacheError(f"gear {name} cannot be loaded: {type(error).__name__}: {error}") from error
        graphs.append(
            GraphCall(variant, gear, run, attributes, instance_scope, validate=validate, name=function.__qualname__)
        )
    return ActiveVariant(variant, graphs, function, arguments.compared_objects(variant), basis)


def _artifact(
    gear: StoredGear, entry: Entry, examples: Callable[[], list[torch.Tensor]], *, keeps_compiled: bool
) -> StoredArtifact:
    """Return a gear as its backend loads it: it reads what it needs, and may keep files of its own beside the entry."""
    blobs, store = gear.blobs, entry.store
    return StoredArtifact(
        gear.header,
        blobs,
        lambda name: store.read_blob(blobs[name]),
        lambda name: store.blob_file(blobs[name]),
        examples,
        entry.folder,
        keeps_compiled,
        [name for name, _ in gear.groups],
    )


def _with_distinct_results(run: Runner) -> Runner:
    """Return each result as a separate object: AOTInductor returns one tensor twice if both are empty."""

    def run_apart(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        results, seen_ids = [], set()
        for result in run(inputs):
            results.append(result.view_as(result) if id(result) in seen_ids else result)
            seen_ids.add(id(result))
        return results

    return _in_place_of(run, run_apart)


def _without_autocast(run: Runner) -> Runner:
    """Run a graph outside its caller's autocast: the graph already contains the casts where they apply."""

    def run_outside(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        with outside_autocast():
            return run(inputs)

    return _in_place_of(run, run_outside)


def _in_place_of(run: Runner, around: Any) -> Runner:
    """Return a runner around another one, with what that tells of itself."""
    for name in ("is_native", "writes_copies"):
        setattr(around, name, getattr(run, name, False))
    return around  # type: ignore[no-any-return]
