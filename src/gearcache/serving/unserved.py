"""Decides what becomes of a call that nothing stored serves: an error, eager, padding, or a build.

A relaunch whose gears are all stored does not import this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gearcache.errors import InputError
from gearcache.guards.access import Scope
from gearcache.guards.evidence.reason import Reason
from gearcache.guards.gears.parse import gear_text
from gearcache.serving.admission import Admission, DelayedCalls, refuse_gradients
from gearcache.serving.builds import Builds
from gearcache.serving.call_sizes import call_sizes
from gearcache.serving.entry import Entry
from gearcache.serving.loaded import LoadedVariants
from gearcache.serving.problems import Problems
from gearcache.serving.resolved import ResolvedMethod
from gearcache.serving.stored import StoredVariants
from gearcache.telemetry.gear_use import GearUse
from gearcache.telemetry.history import History
from gearcache.telemetry.shapes_met import ShapesMet
from gearcache.telemetry.stats import Counters

if TYPE_CHECKING:
    from gearcache.serving.padded_calls import PaddedCalls

logger = logging.getLogger("gearcache")


class UnservedCalls:
    """The calls of one binding that no loaded graph takes."""

    def __init__(
        self,
        method: ResolvedMethod,
        entry: Entry,
        stored: StoredVariants,
        loaded: LoadedVariants,
        history: History,
        counters: Counters,
        use: GearUse,
        shapes: ShapesMet,
    ) -> None:
        self._method = method
        self._loaded = loaded
        self._history = history
        self._counters = counters
        self._use = use
        self._shapes = shapes
        self._admission = Admission(method.name, method.spec, method.settings.on_miss)
        self._delayed = DelayedCalls()
        self._padded: PaddedCalls | None = None
        #: Set when the cache and its fallback have failed: the method itself serves what no loaded graph does.
        self.is_plain = False
        self.builds = Builds(method, entry, stored, loaded, history, counters, self._delayed)

    def frame(
        self, arguments: Mapping[str, Any], scope: Scope, problems: Problems, stance: str, *, explained: bool
    ) -> Callable[..., Any] | None:
        """Return the frame that serves a call after all; None when it is to run eagerly.

        `problems` say why the loaded graphs do not serve it; `explained`: the lookup has already logged why.
        Raises as `Binding.prepare` does.
        """
        try:
            self._admission.refuse(arguments, problems, self._loaded.gear_texts())
        except InputError:
            self._shapes.count_call(arguments)
            raise
        if problems.is_gear_miss and self._method.settings.on_miss == "eager":
            self._shapes.count_call(arguments)
            self._counters.eager_calls += 1
            return None
        if self._delayed.hold_back(self._method.name, arguments, stance, self._history.last_miss):
            self._counters.eager_calls += 1
            return None
        refuse_gradients(self._method.name, arguments)
        is_padded = problems.is_gear_miss and self._method.settings.on_miss == "pad"
        if is_padded:
            frame = self._pad(arguments, scope)
            if frame is not None:
                return frame
            if self._padded is not None and self._padded.reason is not None:  # the call's own variant is loaded
                raise self._admission.outside(arguments, self._padded.reason)
        if not explained:  # the entry is there, a graph for this call is not
            self._explain_call(problems, scope)
        alone = problems.is_assumption
        spec = self._admission.spec_of_build(arguments, lambda: self.builds.missing_gears(scope), alone=alone)
        if self.is_plain or not self.builds.build(arguments, scope, spec):
            self.is_plain = True
            self._counters.eager_calls += 1
            return None
        if is_padded:
            frame = self._pad(arguments, scope)
            if frame is None:
                raise self._admission.outside(arguments, self._padded.reason if self._padded is not None else None)
            return frame
        problems = Problems()
        frame = self._loaded.find(scope, problems)
        if frame is None:
            raise InputError(self._method.name, *problems.sentence())
        return frame

    def _pad(self, arguments: Mapping[str, Any], scope: Scope) -> Callable[..., Any] | None:
        """Return a frame that pads this call to the next gear; None when no loaded gear can serve it so."""
        from gearcache.guards.dispatch.padded_call import Fills
        from gearcache.serving.padded_calls import PaddedCalls

        if self._padded is None:
            self._padded = PaddedCalls(Fills(self._method.settings.pad_values), self._shapes)
        text = gear_text(self._method.spec, call_sizes(self._method.spec, arguments))
        made = self._padded.add(self._loaded.variants, scope, text)
        if made is None:
            problem = self._padded.problem
            if problem is not None:
                raise InputError(self._method.name, problem.argument, problem.found, problem.allowed)
            return None
        active, graph, tensors = made
        self._use.add(text, graph.counter)
        frame = self._loaded.accept(active, graph, tensors, scope)
        self._history.lines.append(f"padded: {text}")
        logger.info("%s: %s is padded to a gear", self._method.name, text)
        return frame

    def _explain_call(self, problems: Problems, scope: Scope) -> None:
        """Say why no loaded graph serves a call: its sizes, or the arguments that its variants were traced with."""
        problem = problems.decisive()
        if problem is not None:
            text = f"argument `{problem.argument}` is {problem.found}; compiled for {problem.allowed}"
            reasons = [Reason("gear", text, problem.argument, problem.allowed, problem.found)]
        else:
            reasons = self._loaded.misfits(scope)
        if reasons:
            self._history.explain(tuple(reasons))
