"""Acts on the verdict about a call without a stored graph: an error, an eager run, padding, or a build.

A relaunch with all gears stored does not import this.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from msgspec.structs import replace

from gearcache.errors import (
    CaptureError,
    CompileError,
    GearSpecError,
    InputError,
    ModuleChanged,
    NoOperation,
    TooManyVariants,
    UnknownGear,
)
from gearcache.guards.dispatch.inputs import Problems
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.evidence.reason import Reason
from gearcache.guards.gears.parse import gear_text
from gearcache.guards.gears.short_names import sizes_name
from gearcache.serving.call.call import Call
from gearcache.serving.find.fit import takes_tensors
from gearcache.serving.find.loaded import Answer, Frame
from gearcache.serving.find.nearest import nearest_misfits
from gearcache.serving.find.variants import Variants
from gearcache.serving.miss.background import BackgroundBuilds
from gearcache.serving.miss.builds import Builds
from gearcache.serving.miss.lessons import Lessons
from gearcache.serving.miss.missing_gears import missing_gears
from gearcache.serving.miss.padded_calls import Obstacle, PaddedCall, PaddedCalls, obstacle_of
from gearcache.serving.miss.refused_calls import PATIENCE, RefusedCalls
from gearcache.serving.miss.verdict import (
    Compile,
    Eager,
    MissRules,
    Pad,
    Refuse,
    decide,
    graph_to_make,
    holds_sizes,
)

logger = logging.getLogger("gearcache")


#: After so many builds in a row for a module that has changed meanwhile, the method itself serves for a while.
_MOST_CHANGES = 8


class UnservedCalls:
    """The calls of one binding that no loaded graph takes."""

    def __init__(self, variants: Variants, lessons: Lessons) -> None:
        method = variants.method
        self._method, self._variants, self._lessons = method, variants, lessons
        self._is_background = method.settings.on_miss == "background"
        on_miss = "compile" if self._is_background else method.settings.on_miss
        self._rules = MissRules(method.name, method.spec, on_miss, is_compared=method.settings.validate == "inputs")
        self._refused = RefusedCalls()
        self._padded = PaddedCalls(method.fills)
        self.builds = Builds(variants)
        self._background = BackgroundBuilds(self.builds, lessons)

    def serve(self, call: Call, answer: Answer) -> Frame | None:
        """Return the frame that serves a call after all; None if the method itself has to run.

        `answer` is that of the lookup, which may have logged a miss. Raises as `Binding.prepare` does.
        """
        rules, problems = self._rules_of(call), answer.problems
        logged_reason = answer.unloaded.text if answer.unloaded is not None else ""
        reasons = () if logged_reason else self._reasons(call, problems)
        why = logged_reason or "; ".join(map(str, reasons)) or self._cause_without_reason()
        missing = self._missing_gears(call, rules)
        verdict = decide(call, problems, rules, missing, why)
        if isinstance(verdict, Refuse):
            if isinstance(verdict.error, UnknownGear):  # other errors would remain with any gears
                self._variants.shapes.count_call(call.tensors)
            raise verdict.error
        if isinstance(verdict, Eager):
            self._count_eager(call, verdict.reason)
            return None
        padded = self._pad(call) if isinstance(verdict, Pad) else None
        if isinstance(padded, PaddedCall):
            return self._accept(padded, call)
        if padded is not None:
            may_help = holds_sizes(missing, call.sizes(rules.spec)) or self._is_of_strides(padded)
            if not may_help:
                raise self._unpadded(padded, rules, call)
        if reasons:  # the entry is there, a graph for this call is not
            reasons = self._near_misfits(call) or reasons
            why = "; ".join(map(str, reasons))
            self._variants.history.explain(reasons)
        built = self._build(call, verdict, why)
        if built is None:
            return None
        if built.frame is None:
            raise InputError(self._rules.name, *built.problems.sentence())
        return built.frame

    def _accept(self, padded: PaddedCall, call: Call) -> Frame:
        return self._variants.loaded.accept(padded.active, padded.graph, padded.tensors, call)

    def forecast(self, call: Call, variants: Sequence[StoredVariant]) -> InputError | str:
        """Return what happens to a call that no graph of `variants` takes: an error, or the gear that is compiled.

        The text is empty for a call inside the gears, an eager run, and a call that is padded, or may be when the gears
        are stored.
        """
        rules = self._rules_of(call)
        graph = graph_to_make(call, Problems(), rules)
        if isinstance(graph, InputError):
            return graph
        if graph.is_outside and rules.on_miss == "pad":
            obstacle, sizes = obstacle_of(variants, call, self._method.fills), call.sizes(rules.spec)
            if obstacle is None or holds_sizes(missing_gears(variants, call, rules.spec), sizes):
                return ""
            if self._is_of_strides(obstacle):
                return gear_text(rules.spec, sizes)
            return self._unpadded(obstacle, rules, call, counted=False)
        return gear_text(rules.spec, call.sizes(rules.spec)) if graph.is_outside and rules.on_miss == "compile" else ""

    def _rules_of(self, call: Call) -> MissRules:
        return replace(self._rules, spec=call.spec(self._rules.spec))

    def _missing_gears(self, call: Call, rules: MissRules) -> tuple[tuple[int, ...], ...]:
        # Only a build of declared gears needs the missing ones; a call that runs eagerly should not pay for finding
        # them.
        is_asked = rules.on_miss == "pad" or call.sizes(rules.spec) in rules.spec.gears
        return tuple(self.builds.missing_gears(call)) if is_asked else ()

    def _count_eager(self, call: Call, reason: str) -> None:
        self._variants.shapes.count_call(call.tensors)
        self._method.counters.ran_eagerly(reason)

    def _build(self, call: Call, verdict: Compile | Pad, why: str) -> Answer | None:
        """Compile and load the gears of a verdict, and return the answer; None if the method itself has to run."""
        if self._method.serves and not self._method.right.may_build(
            self._rules.name, self._method.settings.on_miss, why
        ):
            self._count_eager(call, "ranks")
            return None
        if self._is_background and not call.waits:
            frame_or_reason = self._background.serve(call, verdict.spec, why)
            if not isinstance(frame_or_reason, str):
                return Answer(frame_or_reason)
            if call.is_run:
                self._count_eager(call, frame_or_reason)
            return None
        # A caller that only prepares calls needs the error each time.
        reason = self._reason_to_rest() if call.is_run else ""
        if not reason:
            answer_or_reason = self._compile_or_leave(call, verdict, why)
            if not isinstance(answer_or_reason, str):
                return answer_or_reason
            reason = answer_or_reason
        self._method.counters.ran_eagerly(reason)
        return None

    def _reason_to_rest(self) -> str:
        """Return why nothing is built for a call, as earlier ones have shown; "" if it may be."""
        if time.monotonic() < self._lessons.next_build:
            return "changed"
        is_full = self._variants.entry.key.name in self._lessons.full_entries
        return "max_variants" if is_full else self._lessons.obstacle

    def _compile_or_leave(self, call: Call, verdict: Compile | Pad, why: str) -> Answer | str:
        """Compile and load; returns the answer, or why the method itself has to run. Notes what this shows of others.

        A call that is only prepared raises instead: a deploy needs the error.
        """
        begin = time.monotonic()
        try:
            answer_or_reason = self._compile(call, verdict, why)
        except (NoOperation, ModuleChanged, TooManyVariants) as error:
            if not call.is_run:
                raise
            return self._reason_after(error, time.monotonic() - begin)
        if isinstance(answer_or_reason, str):
            self._lessons.obstacle = answer_or_reason
        else:
            self._lessons.changed_builds = 0
        return answer_or_reason

    def _reason_after(self, error: NoOperation | ModuleChanged | TooManyVariants, seconds: float) -> str:
        """Return why the method itself runs after a build of some duration has ended with an error."""
        if isinstance(error, NoOperation):
            if "no operation" not in self._method.counters.eager:
                message = (
                    "%s: a call runs no tensor operation: there is nothing to compile, the method itself serves it"
                )
                logger.warning(message, self._rules.name)
            return "no operation"
        if isinstance(error, TooManyVariants):
            logger.warning("%s", error)
            self._variants.history.lines.append(f"full: {error}")
            self._lessons.full_entries.add(self._variants.entry.key.name)
            return "max_variants"
        logger.warning("%s; the method itself serves the call", error)
        self._lessons.changed_builds += 1
        if self._lessons.changed_builds >= _MOST_CHANGES:
            self._lessons.next_build = time.monotonic() + PATIENCE * seconds
        return "changed"

    def _compile(self, call: Call, verdict: Compile | Pad, why: str) -> Answer | str:
        """Compile and load, unless a like call was refused; if that is impossible, why the method itself has to run."""
        self._refused.check(call)
        begin = time.monotonic()
        try:
            answer = self.builds.build(call, verdict.spec, why, is_padded=isinstance(verdict, Pad))
            self._refused.forget_raised()
        except (CaptureError, CompileError, GearSpecError) as error:
            if not isinstance(error, ModuleChanged):
                self._refused.add(call, error, time.monotonic() - begin)
            raise
        if isinstance(answer, str) or isinstance(verdict, Compile):
            return answer
        padded = self._pad(call)
        if isinstance(padded, Obstacle):
            unpadded = self._unpadded(padded, self._rules_of(call), call)
            self._refused.add(call, unpadded, time.monotonic() - begin)
            raise unpadded
        return Answer(self._accept(padded, call))

    def _is_of_strides(self, obstacle: Obstacle) -> bool:
        """Whether graphs for other strides serve a call that is not padded; missing gears do not tell of these."""
        return obstacle.problem is not None and obstacle.problem.kind == "stride" and self._rules.is_compared

    def _unpadded(self, obstacle: Obstacle, rules: MissRules, call: Call, *, counted: bool = True) -> InputError:
        """Return the error of a call that no gear can be padded to."""
        if (problem := obstacle.problem) is not None:
            return InputError(rules.name, problem.argument, problem.value, problem.allowed)
        if counted:
            self._variants.shapes.count_call(call.tensors)
        return rules.outside(call, obstacle.reason)

    def _pad(self, call: Call) -> PaddedCall | Obstacle:
        """Pad a call to a loaded gear, or return why that is impossible."""
        spec = call.spec(self._rules.spec)
        text = gear_text(spec, call.sizes(spec))
        answer = self._padded.add(self._variants.loaded.variants, call, text)
        if isinstance(answer, PaddedCall):
            self._method.use.add(text, answer.graph, is_padded=True)
            self._variants.shapes.add(answer.graph)
            name = sizes_name(text, [gear_text(spec, gear) for gear in spec.gears])
            self._variants.history.lines.append(f"padded: {name}")
            logger.info("%s: %s is padded to a gear", self._rules.name, name)
        return answer

    def _cause_without_reason(self) -> str:
        """Return why there is no graph if no stored one was compared."""
        faults = self._variants.history.untold()
        return f"the cache cannot be used: {'; then '.join(faults)}" if faults else "its arguments are new"

    def _near_misfits(self, call: Call) -> tuple[Reason, ...]:
        """Return the plain arguments that alone keep a call from variants whose graphs take its tensors."""
        near = (variant for variant in self._variants.known.all() if takes_tensors(variant, call))
        return tuple(nearest_misfits(near, call))

    def _reasons(self, call: Call, problems: Problems) -> tuple[Reason, ...]:
        """Return why no loaded graph serves a call: its sizes, or the arguments of the trace of each variant."""
        problem = problems.nearest()
        if problem is None:
            return tuple(nearest_misfits(self._variants.loaded.stored_variants(), call))
        text = f"argument `{problem.argument}` is {problem.value}; compiled for {problem.allowed}"
        return (Reason("gear", text, problem.argument, problem.allowed, problem.value),)
