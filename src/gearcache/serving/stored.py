"""The stored variants of one entry: which of them fit a call, loaded."""

from __future__ import annotations

import logging
import time

from gearcache.errors import CacheError, CorruptEntry, GearcacheError
from gearcache.guards.access import Scope
from gearcache.guards.dispatch.variant import StoredVariant
from gearcache.guards.evidence.reason import Reason
from gearcache.serving.activate import ActiveVariant, EvidenceCheck, activate, misfit
from gearcache.serving.basis import Bases
from gearcache.serving.entry import Entry
from gearcache.serving.loaded import LoadedVariants
from gearcache.serving.resolved import ResolvedMethod
from gearcache.telemetry.gear_use import GearUse
from gearcache.telemetry.history import History

#: How often a variant is loaded while another thread changes the module.
_ATTEMPTS = 3
logger = logging.getLogger("gearcache")
#: The reasons of a miss that are faults of the cache or the host; all of them, the most telling one first.
FAULTS = ("corrupt", "unloadable", "unreadable")
#: Those that tell what the call, the code or the module differs in.
MISFITS = ("source", "evidence", "arguments")
_TELLING = (*FAULTS, *MISFITS)


class StoredVariants:
    """Takes variants from an entry into `loaded`, where their evidence holds; what keeps one out is a reason."""

    def __init__(
        self, method: ResolvedMethod, entry: Entry, loaded: LoadedVariants, history: History, use: GearUse
    ) -> None:
        self._method = method
        self._entry = entry
        self._loaded = loaded
        self._history = history
        self._use = use
        self._known: list[StoredVariant] | None = None
        #: What was tried in vain for a reason of `FAULTS`, by its id: it is not tried again, and at most told once.
        self._unusable: dict[int, tuple[StoredVariant, str]] = {}
        #: Why the last `load` has loaded nothing; empty where nothing was there.
        self.last_kind = ""

    @property
    def known(self) -> list[StoredVariant]:
        """The variants that were stored when the entry was last read; none before."""
        return self._known or []

    def load(self, scope: Scope, *, counted: bool = True) -> bool:
        """Load the stored variants that fit this call; returns whether there is one.

        `counted=False`: what this process has just stored is no hit.
        """
        begin = time.perf_counter()
        self.last_kind = ""
        if self._known is None:
            self._known = self._entry.read()
        loaded = {id(active.variant) for active in self._loaded.variants}
        reasons: list[Reason] = []
        variants: list[StoredVariant] = []
        evidence, bases = EvidenceCheck(scope), Bases()
        for variant in self._known:
            if id(variant) in loaded or id(variant) in self._unusable:
                continue
            reason = self._take(variant, scope, evidence, bases)
            if reason is None:
                variants.append(variant)
                continue
            reasons.append(reason)
            if reason.kind in FAULTS:
                self._unusable[id(variant)] = variant, reason.kind
        if variants:
            gears = tuple(gear.text for variant in variants for gear in variant.gears)
            seconds = time.perf_counter() - begin
            self._history.note("load", gears=gears, seconds=seconds, bytes=self._entry.size_of(variants))
            if counted:
                self._history.note("hit", gears=gears)
                self._history.lines.append(f"hit: {self._entry.layout.manifest(self._entry.key)}")
        elif reasons:
            # If several variants miss, report the most specific reason.
            kinds = {reason.kind for reason in reasons}
            self.last_kind = next(kind for kind in _TELLING if kind in kinds)
            self._history.miss(*dict.fromkeys(reasons), kind=self.last_kind)
        return bool(variants)

    def read_again(self) -> list[StoredVariant]:
        """Take in what is stored now beside what is loaded, and return what is stored."""
        present = self._entry.read_again()
        loaded = [active.variant for active in self._loaded.variants]
        self._known = [*loaded, *_unknown(present, loaded)]
        return present

    def take_fresh(self) -> tuple[list[StoredVariant], bool]:
        """Return what is stored now, and whether that has variants that were not known; they are known then."""
        present = self._entry.read_again()
        fresh = _unknown(present, self.known)
        if fresh:
            self._known = [*self.known, *fresh]
        return present, bool(fresh)

    def distrust(self, error: Exception) -> None:
        """Let go of all that was loaded, and be done with it: what an entry holds is not what was compiled."""
        for active in self._loaded.variants:
            self._unusable[id(active.variant)] = active.variant, "unreadable"
        self._loaded.forget()
        self._history.miss(self._unreadable(error), kind="unreadable")

    def sound(self, variants: list[StoredVariant]) -> list[StoredVariant]:
        """Return those of some variants that are worth keeping: all that were not found to be of another form."""
        odd = [_text(variant) for variant, kind in self._unusable.values() if kind == "unreadable"]
        return [variant for variant in variants if (text := _text(variant)) is not None and text not in odd]

    def _take(self, variant: StoredVariant, scope: Scope, evidence: EvidenceCheck, bases: Bases) -> Reason | None:
        """Load one variant if it fits the call; or return why not, whatever it holds."""
        try:
            return misfit(variant, scope) or evidence.stale_reason(variant) or self._activate(variant, scope, bases)
        except GearcacheError:
            raise
        except Exception as error:
            return self._unreadable(error)

    def _unreadable(self, error: Exception) -> Reason:
        text = f"a variant of {self._entry.key.name} cannot be used: {type(error).__name__}: {error}"
        return Reason("unreadable", text)

    def _activate(self, variant: StoredVariant, scope: Scope, bases: Bases) -> Reason | None:
        """Load one variant, or return why that cannot be."""
        try:
            active = self._active(variant, scope, bases)
        except CorruptEntry as error:  # quarantined by the store: a miss like any other
            logger.warning("%s: %s", self._history.name, error)
            return Reason("corrupt", str(error), file=str(error.path))
        except CacheError as error:
            self._history.fault(error)
            return Reason("unloadable", str(error))
        if active is None:
            changed = Reason("evidence", "another thread changed the module while this was loaded")
            return EvidenceCheck(scope).stale_reason(variant) or changed
        for graph in active.graphs:
            if self._method.settings.count_shapes and graph.gear.is_dynamic:
                graph.count_shapes()
            self._use.add(graph.gear.text, graph.counter)
        self._loaded.variants.append(active)
        return None

    def _active(self, variant: StoredVariant, scope: Scope, bases: Bases) -> ActiveVariant | None:
        """Return a variant with its graphs; None where other threads keep changing what it rests on."""
        for _ in range(_ATTEMPTS):
            active = activate(
                variant,
                scope,
                bases,
                self._method.plain(),
                self._method.backend,
                self._entry.store,
                validate=self._method.settings.validate == "inputs",
                folder=self._entry.folder,
                keeps_compiled=self._method.ge_cache,
            )
            if active is not None:
                return active
            if EvidenceCheck(scope).stale_reason(variant) is not None:
                return None
        return None


def _unknown(variants: list[StoredVariant], known: list[StoredVariant]) -> list[StoredVariant]:
    """Return the variants that are not among the known ones."""
    texts = set(map(_text, known))
    return [variant for variant in variants if _text(variant) not in texts]


def _text(variant: StoredVariant) -> str | None:
    """Return what tells a variant from others; None for one that is not of the form of a variant."""
    try:
        return repr(variant.to_plain())
    except Exception:
        return None
