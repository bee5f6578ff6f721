"""Turns a stored variant into callable gears: checks the evidence, binds the weights, loads the graphs."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct, field
from msgspec.structs import replace

from gearcache.errors import CacheError
from gearcache.ge_cache.backend import Backend, Runner, StoredArtifact
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.guards.access import NOWHERE, Access, Scope, Walker
from gearcache.guards.dispatch.frame import bind_frame, resolve_reference
from gearcache.guards.dispatch.function import BoundGear, compared_objects
from gearcache.guards.dispatch.graph_call import GraphCall
from gearcache.guards.dispatch.stored.variant import StoredGear, StoredVariant
from gearcache.guards.evidence.checks import Check, Failure, first_failure
from gearcache.guards.evidence.reason import Reason
from gearcache.guards.evidence.traced_files import changed_source
from gearcache.guards.evidence.tree import Tree, evidence_failure, evidence_holds
from gearcache.guards.watch.facts import WatchedFacts
from gearcache.serving.find.basis import Basis
from gearcache.telemetry.spans import span
from gearcache.torch_state import autocast_devices, outside_autocast

if TYPE_CHECKING:
    from gearcache.cache.protocol import Store

#: How often evidence is compared while another thread changes what it leads to.
_ATTEMPTS = 3


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


class ArgumentCheck:
    """Checks the arguments of one call at one moment; checks that variants share are compared once."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        #: By the identity of a variant's checks: the checks, the objects that were compared, and the first failure.
        self._checked: dict[int, tuple[list[Check], Walker, Failure | None]] = {}

    def misfit(self, variant: StoredVariant) -> Reason | None:
        """Return the first argument check that the call fails, as the reason of a miss, or None."""
        _, _, failure = self._result(variant)
        if failure is None:
            return None
        reason, check = failure.reason("arguments"), failure.check
        return replace(reason, constant_because=variant.constants_because) if check.number_type else reason

    def tensors_of(self, variant: StoredVariant) -> tuple[Any, ...] | None:
        """Return the values of the call for the inputs of a variant; None if the variant does not fit the call."""
        return inputs_of(variant, self._scope) if self.misfit(variant) is None else None

    def compared_objects(self, variant: StoredVariant) -> list[Any]:
        """Return what each argument check of a variant that fits compares with: the objects that have passed it."""
        _, walker, _ = self._result(variant)
        return compared_objects(variant, walker)

    def _result(self, variant: StoredVariant) -> tuple[list[Check], Walker, Failure | None]:
        checks = variant.call_checks
        if id(checks) not in self._checked:
            walker = Walker(self._scope)
            self._checked[id(checks)] = checks, walker, first_failure(checks, walker)
        return self._checked[id(checks)]


def misfit(variant: StoredVariant, scope: Scope) -> Reason | None:
    """Return the first argument check that a call fails, as the reason of a miss, or None."""
    return ArgumentCheck(scope).misfit(variant)


def tensors_of(variant: StoredVariant, scope: Scope) -> tuple[Any, ...] | None:
    """Return the values of a call for the inputs of a variant; None if the variant does not fit the call."""
    return ArgumentCheck(scope).tensors_of(variant)


def inputs_of(variant: StoredVariant, scope: Scope) -> tuple[Any, ...] | None:
    """Return the values of a call for the inputs of a variant, which may not fit the call; None if one is absent."""
    values = tuple(stored.access.find(scope) for stored in variant.inputs)
    return None if any(value is NOWHERE for value in values) else values


def numbers_of(variant: StoredVariant, scope: Scope) -> dict[str, tuple[str, float]]:
    """Return the place (as text) and the value of each number of a variant that fits the call, by name."""
    places = {str(name): Access.from_plain(path) for name, path in variant.numbers}
    return {name: (access.text, access.resolve(scope)) for name, access in places.items()}


class EvidenceCheck:
    """Checks the evidence of the variants of one entry for one call; shared evidence is checked once."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._checked_parts: list[Any] = []

    def stale_reason(self, variant: StoredVariant) -> Reason | None:
        """Return the first dependency of the trace that has changed, or None if the evidence holds."""
        for part in (variant.sources, variant.evidence):
            if any(part is checked for checked in self._checked_parts):
                continue
            reason = changed_source(part) if isinstance(part, dict) else self._failure(part)
            if reason is not None:
                return reason
            self._checked_parts.append(part)
        return next(filter(None, map(_regrouped, variant.gears)), None)

    def _failure(self, tree: Tree) -> Reason | None:
        failure = evidence_failure(tree, self._scope)
        if failure is None:
            return None
        if failure.check.kind != "function":
            return failure.reason("evidence")
        value = failure.check.access.find(self._scope)
        code = getattr(getattr(value, "__func__", value), "__code__", None)
        if not isinstance(code, types.CodeType):
            return failure.reason("source")
        file, line = code.co_filename, code.co_firstlineno
        return replace(failure.reason("source"), file=file, line=line)


class WatchedEvidence(EvidenceCheck):
    """Checks evidence to load graphs on it: all that it leads to is watched, from before it is compared."""

    def __init__(self, scope: Scope, method: types.FunctionType, check_key: Callable[[], None]) -> None:
        """`check_key` is called whenever further weights are watched: it compares their layout."""
        super().__init__(scope)
        self._method = method
        self._check_key = check_key
        self._watches: list[tuple[Tree, WatchedFacts]] = []
        self._bases: list[Basis] = []

    def basis_of(self, variant: StoredVariant) -> Basis | Reason:
        """Return the basis of a variant, or why its evidence does not hold."""
        for _ in range(_ATTEMPTS):
            reason = self.stale_reason(variant)
            if reason is not None:
                return reason
            basis = self._watched_basis(variant)
            if basis is not None and basis.watched.holds():
                return basis
            self._forget(variant.evidence)  # another thread changed something, or reading an attribute has set it
        return Reason("evidence", "another thread changed the module while this was loaded")

    def _failure(self, tree: Tree) -> Reason | None:
        facts = WatchedFacts()
        if not evidence_holds(tree, self._scope, facts):
            return super()._failure(tree)  # None if what failed has been changed back: nothing is watched then
        self._watches.append((tree, facts))
        return None

    def _watched_basis(self, variant: StoredVariant) -> Basis | None:
        for basis in self._bases:
            if basis.is_of(variant):
                return basis
        for tree, facts in self._watches:
            if tree is variant.evidence:
                basis = Basis(self._method, variant, facts, self._scope)
                self._check_key()  # after it: another thread may have given the module a weight of another layout
                self._bases.append(basis)
                return basis
        return None

    def _forget(self, evidence: Tree) -> None:
        self._watches = [each for each in self._watches if each[0] is not evidence]
        self._bases = [basis for basis in self._bases if basis.evidence is not evidence]
        self._checked_parts = [part for part in self._checked_parts if part is not evidence]


def _regrouped(gear: StoredGear) -> Reason | None:
    """Return a process group of a graph whose ranks have changed, or that is gone, as the reason of a miss.

    If a method uses only the name of a group, nothing else compares it, and the graph may contain its size.
    """
    for name, ranks in gear.groups:
        present_ranks = private_core.process_group_ranks(name)
        if present_ranks != ranks:
            subject = f"torch.distributed's process group {name!r}"
            present_text = "not there" if present_ranks is None else f"of the ranks {present_ranks}"
            text = f"{subject} is {present_text}, stored: of the ranks {ranks}"
            return Reason("evidence", text, subject, f"of the ranks {ranks}", present_text)
    return None


def activate(
    variant: StoredVariant,
    scope: Scope,
    arguments: ArgumentCheck,
    basis: Basis,
    method: types.FunctionType,
    backend: Backend,
    store: Store,
    *,
    validate: bool,
    folder: Callable[[str], Path] | None = None,
    keeps_compiled: bool = False,
) -> ActiveVariant:
    """Load every gear; the live weights are bound without a copy. A backend may keep its own files in `folder`; with
    `keeps_compiled`, also those of the compiler that it uses.

    `CacheError` if a blob is missing, corrupt or not to be trusted.
    """
    attributes = basis.bound
    device = torch.device(variant.inputs[0].device if variant.inputs else "cpu")
    graphs = []

    def examples() -> list[torch.Tensor]:
        return [stored.access.resolve(scope) for stored in variant.inputs]

    for gear in variant.gears:
        try:
            # Constants are normal tensors in any mode of the current call, because calls of all modes use them.
            with span("gear", gear.text), torch.inference_mode(False), torch.no_grad():
                run = backend.load(_artifact(gear, store, examples, folder, keeps_compiled), attributes, device)
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
        instance_scope = scope_of_instance(scope, method)
        graphs.append(
            GraphCall(variant, gear, run, attributes, instance_scope, validate=validate, name=method.__qualname__)
        )
    return ActiveVariant(variant, graphs, method, arguments.compared_objects(variant), basis)


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


def scope_of_instance(scope: Scope, method: types.FunctionType) -> Scope:
    """Return a scope that keeps the instance alive but none of the call's arguments."""
    instance = method.__code__.co_varnames[0]
    return Scope({instance: scope.arguments[instance]}, scope.module_globals, scope.closure)


def _artifact(
    gear: StoredGear,
    store: Store,
    examples: Callable[[], list[torch.Tensor]],
    folder: Callable[[str], Path] | None,
    keeps_compiled: bool,
) -> StoredArtifact:
    blobs = gear.blobs
    return StoredArtifact(
        gear.header,
        blobs,
        lambda name: store.read_blob(blobs[name]),
        lambda name: store.blob_file(blobs[name]),
        examples,
        folder,
        keeps_compiled,
        [name for name, _ in gear.groups],
    )
