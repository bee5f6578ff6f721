"""The variants of one entry: those that are loaded, and the stored ones that fit a call."""

from __future__ import annotations

import inspect
import logging
import time

from gearcache.cache.keys.fingerprint import is_module_of, is_state_of
from gearcache.errors import CacheError, CorruptEntry, GearcacheError
from gearcache.guards.dispatch.frame import decode_code
from gearcache.guards.dispatch.inputs import Problems
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.evidence.reason import MISFITS, Reason
from gearcache.guards.evidence.tree import evidence_checks
from gearcache.interrupts import raise_interrupt
from gearcache.serving.call.call import Call
from gearcache.serving.call.resolved import ResolvedMethod
from gearcache.serving.find.activate import ActiveVariant, activate
from gearcache.serving.find.entry import Entry
from gearcache.serving.find.evidence import EvidenceCheck, WatchedEvidence
from gearcache.serving.find.fit import ArgumentCheck, takes, takes_tensors, tensors_of
from gearcache.serving.find.known import KnownVariants, text_of
from gearcache.serving.find.loaded import NOTHING_NEW, Answer, LoadedVariants
from gearcache.telemetry.gear_use import ShapesMet
from gearcache.telemetry.history import History
from gearcache.telemetry.spans import span

logger = logging.getLogger("gearcache")
#: The reasons of a miss that are faults of the cache or the host: all of them, the most specific one first.
FAULTS = ("corrupt", "unloadable", "unreadable")
_TELLING = (*FAULTS, *MISFITS)


class OutdatedKey(GearcacheError):
    """The key of a binding is no longer that of its module: the call needs another binding."""


class Variants:
    """Loads variants of an entry if their evidence holds; otherwise there is a reason."""

    def __init__(self, method: ResolvedMethod) -> None:
        function, settings = method.bound.function, method.settings
        code = getattr(inspect.unwrap(function), "__code__", function.__code__)
        self.method = method
        #: What happened at the lookups, and the shapes of calls.
        self.history = History(
            method.name, method.key.name, str(method.layout.root), method.counters, strict=settings.strict
        )
        self.shapes = ShapesMet(method.spec)
        self.entry = Entry(
            method.key,
            method.layout,
            settings,
            self.history,
            keeps_files=method.backend.keeps_files,
            place=(code.co_filename, code.co_firstlineno),
            serves=method.serves,
        )
        self.loaded = LoadedVariants(method.name, validate=settings.validate == "inputs")
        self.known = KnownVariants(self.entry)
        #: Variants that failed for a reason of `FAULTS`, by id: they are not tried again until the entry is read anew.
        self._unusable: dict[int, tuple[StoredVariant, str]] = {}

    def check_key(self, *, is_changed: bool = False) -> None:
        """Raise `OutdatedKey` if the module or torch's global state is by now of another key, or was meanwhile.

        That is of no concern to the loaded graphs, whose watch tells of changes. But those that are loaded or stored
        from now on may rest on it, and the layout of a weight, or the default dtype, is nothing but a part of the key.
        """
        key, module = self.method.key, self.method.bound.instance
        if is_changed or not is_state_of(key) or not is_module_of(key, module):
            raise OutdatedKey(f"`{self.method.name}`: its module, or torch's global state, changed while it was used")

    def look_up(self, call: Call, *, counted: bool = True) -> Answer:
        """Return the frame that serves a call, from loaded or else stored variants, or why there is none.

        `counted=False`: a load of what this process has just stored is not a hit.
        """
        arguments = ArgumentCheck(call)
        answer = self.loaded.find(arguments)
        unloaded = None
        if isinstance(answer, Problems):
            unloaded = self._load(arguments, counted=counted, problems=answer)
            answer = answer if unloaded is not None else self.loaded.find(arguments)
        return Answer(None, answer, unloaded) if isinstance(answer, Problems) else Answer(answer)

    def load(self, call: Call, *, counted: bool = True) -> Reason | None:
        """Load the stored variants that fit a call; returns None, or why there was none."""
        return self._load(ArgumentCheck(call), counted=counted, problems=None)

    def _load(self, arguments: ArgumentCheck, *, counted: bool, problems: Problems | None) -> Reason | None:
        """Load the stored variants that fit a call; returns None, or why there was none.

        `counted=False`: a load of what this process has just stored is not a hit. `problems` of loaded variants that
        take such arguments tell more than the arguments of others, whose graphs do not take its tensors either.
        """
        begin = time.perf_counter()
        absence = self.known.read()
        variants, misses = self._take_fitting(self.known.all(), arguments, problems)
        if not variants and (siblings := self.known.read_siblings(absence)):
            variants, of_siblings = self._take_fitting(siblings, arguments, problems)
            misses += of_siblings
        if variants:
            self._note_load(variants, time.perf_counter() - begin, counted=counted)
            return None
        if absence is not None and not misses:
            self.entry.note_absence(absence)
            return absence.reason
        if not misses:
            return NOTHING_NEW
        from gearcache.serving.find.nearest import nearest_reasons

        reasons = nearest_reasons(misses, arguments.call.scope)
        kind = min((reason.kind for reason in reasons), key=_TELLING.index)  # the most specific
        self.history.miss(*reasons, kind=kind)
        return Reason(kind, "; ".join(reason.text for reason in reasons))

    def _take_fitting(
        self, variants: list[StoredVariant], arguments: ArgumentCheck, problems: Problems | None
    ) -> tuple[list[StoredVariant], list[tuple[StoredVariant, Reason]]]:
        """Load those of some variants that fit a call; returns them, and the others with the reason of each."""
        call, is_explained = arguments.call, problems is not None and problems.decisive() is not None
        fitting: list[StoredVariant] = []
        misses: list[tuple[StoredVariant, Reason]] = []
        evidence = WatchedEvidence(call.scope, self.method.bound.function, self.check_key)
        for variant in self._candidates(variants, call):
            if id(variant) in self._unusable or self.loaded.has(variant, arguments):
                continue
            reason = self._take(variant, arguments, evidence)
            if reason is None:
                fitting.append(variant)
                continue
            if reason.kind != "arguments" or not is_explained or takes_tensors(variant, call):
                misses.append((variant, reason))
            if reason.kind in FAULTS:
                self._unusable[id(variant)] = variant, reason.kind
        return fitting, misses

    def _candidates(self, variants: list[StoredVariant], call: Call) -> list[StoredVariant]:
        """Return the variants to try: under `validate="gears"` no call separates those of other dtypes or strides.

        If all have others, one of them reports the problem of the call; if misses compile, the call gets its own.
        """
        settings = self.method.settings
        if settings.validate == "inputs":
            return variants
        of_its_kind = [variant for variant in variants if takes(variant, call)]
        of_its_sizes = [variant for variant in of_its_kind if takes(variant, call, any_sizes=False)]
        if settings.on_miss in ("compile", "background") and variants and not of_its_kind:
            return [variant for variant in variants if tensors_of(variant, call) is None]  # for their reasons
        return of_its_sizes or of_its_kind or variants

    def _note_load(self, variants: list[StoredVariant], seconds: float, *, counted: bool) -> None:
        history = self.history
        gears = tuple(gear.text for variant in variants for gear in variant.gears)
        history.note("load", gears=gears, seconds=seconds, bytes=self.entry.size_of(variants))
        if counted:
            history.note("hit", gears=gears)
            message = "%s: hit: loaded %s from `%s` in %.0f ms"
            logger.info(message, history.name, ", ".join(gears) or "a graph", self.entry.layout.root, seconds * 1000)
            history.lines += [f"hit: {place}" for place in self.known.places(variants)]

    def read_again(self) -> list[StoredVariant]:
        """Know the variants that are stored now beside the loaded ones, and return the stored ones."""
        return self.known.read_again(self.loaded.stored_variants())

    def unsuited(self, variant: StoredVariant, call: Call, evidence: EvidenceCheck) -> Reason | None:
        """Return why a variant, loaded or not, is not for this call's module and declared arguments."""
        try:
            return self.method.inputs.contradiction(variant, call) or evidence.stale_reason(variant)
        except GearcacheError:
            raise
        except Exception as error:
            return self._unreadable(error)

    def distrust(self, error: Exception) -> Reason:
        """Drop all loaded variants, which this process does not try again: comparing one of them raised."""
        reason = self._unreadable(error)
        for active in self.loaded.variants:
            self._unusable[id(active.variant)] = active.variant, "unreadable"
        self.loaded.forget()
        self.history.miss(reason, kind=reason.kind)
        return reason

    def sound(self, variants: list[StoredVariant]) -> list[StoredVariant]:
        """Return the variants that are worth keeping: all except unusable ones whose data is of an unknown form.

        What an object of the program raised while it was compared says nothing about the data.
        """
        failed = [text_of(variant) for variant, kind in self._unusable.values() if kind == "unreadable"]
        return [
            variant
            for variant in variants
            if (text := text_of(variant)) is not None and (text not in failed or _is_decodable(variant))
        ]

    def _take(self, variant: StoredVariant, arguments: ArgumentCheck, evidence: WatchedEvidence) -> Reason | None:
        """Load one variant if it fits the call; else return the reason, whatever data it contains."""
        try:
            return (
                arguments.misfit(variant)
                or self.method.inputs.contradiction(variant, arguments.call)
                or self._activate(variant, arguments, evidence)
            )
        except GearcacheError:
            raise
        except Exception as error:
            return self._unreadable(error)

    def _unreadable(self, error: Exception) -> Reason:
        raise_interrupt(error)
        text = f"a variant of {self.entry.key.short_name} cannot be used: {type(error).__name__}: {error}"
        return Reason("unreadable", text)

    def _activate(self, variant: StoredVariant, arguments: ArgumentCheck, evidence: WatchedEvidence) -> Reason | None:
        """Load one variant if its evidence holds, or return why that is impossible."""
        with span("evidence", self.history.name):
            basis = evidence.basis_of(variant)
        if isinstance(basis, Reason):
            return basis
        if (graphs := self.loaded.graphs_of(variant, arguments.call.scope)) is not None:
            objects = arguments.compared_objects(variant)
            self.loaded.add(ActiveVariant(variant, graphs, self.method.bound.function, objects, basis))
            return None
        try:
            active = activate(variant, arguments, basis, self.method, self.entry)
        except CorruptEntry as error:  # quarantined by the store: a miss like any other
            logger.warning("%s: %s", self.history.name, error)
            return Reason("corrupt", str(error), file=str(error.path))
        except CacheError as error:
            self.history.fault(error)
            return Reason("unloadable", str(error))
        for graph in active.graphs:
            if self.method.settings.count_shapes and graph.gear.is_dynamic:
                graph.count_shapes()
            self.method.use.add(graph.gear.text, graph)
            self.shapes.add(graph)
        self.loaded.add(active)
        return None


def _is_decodable(variant: StoredVariant) -> bool:
    """Whether the frame and the evidence of a variant are of a known form; compares nothing."""
    try:
        decode_code(variant.frame, {})
        evidence_checks(variant.evidence)
    except Exception as error:
        raise_interrupt(error)
        return False
    return True
