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
    GearSpecError,
    InputError,
    MethodRaises,
    NoOperation,
    TooManyVariants,
    UnknownGear,
)
from gearcache.guards.dispatch.inputs import Problem
from gearcache.guards.dispatch.problems import Problems
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.evidence.reason import Reason, merged
from gearcache.guards.gears.parse import gear_text
from gearcache.guards.gears.short_names import sizes_name
from gearcache.serving.call.call import Call
from gearcache.serving.call.resolved import ResolvedMethod
from gearcache.serving.find.activate import misfit
from gearcache.serving.find.loaded import Frame, takes_tensors
from gearcache.serving.find.variants import Variants
from gearcache.serving.miss.background import BackgroundBuilds
from gearcache.serving.miss.builds import Builds
from gearcache.serving.miss.delayed_calls import DelayedCalls
from gearcache.serving.miss.padded_calls import Padded, PaddedCalls, Unpadded
from gearcache.serving.miss.refused_calls import RefusedCalls
from gearcache.serving.miss.verdict import Compile, Eager, Known, MissRules, Pad, Refuse, decide, graph_to_make
from gearcache.telemetry.record import Record

logger = logging.getLogger("gearcache")


class UnservedCalls:
    """The calls of one binding that no loaded graph takes."""

    def __init__(self, method: ResolvedMethod, variants: Variants, record: Record) -> None:
        settings = method.settings
        self._is_background = settings.on_miss == "background"
        self._right, self._method_serves, self._on_miss = method.right, method.serves, settings.on_miss
        on_miss = "compile" if self._is_background else settings.on_miss
        self._rules = MissRules(method.name, method.spec, on_miss, is_compared=settings.validate == "inputs")
        self._copies = settings.on_strides == "copy" and settings.validate == "inputs"
        self._variants = variants
        self._record = record
        self._delayed = DelayedCalls()
        self._refused = RefusedCalls()
        self._padded = PaddedCalls(method.fills)
        #: Set when the cache and its fallback have failed: the method itself then serves calls without a loaded graph.
        self._runs_original = False
        #: Set when the entry is full; it is never reset.
        self._is_full = False
        self.builds = Builds(method, variants, record, self._delayed)
        self._background = BackgroundBuilds(method, self.builds, variants, record)

    def serve(self, call: Call, problems: Problems, logged_reason: str) -> Frame | None:
        """Return the frame that serves a call after all; None if the method itself has to run.

        `problems` are the reasons of the loaded graphs; `logged_reason` is that of a miss that the lookup has logged.
        Raises as `Binding.prepare` does.
        """
        rules = self._rules_of(call)
        reasons = () if logged_reason else self._reasons(call, problems)
        why = logged_reason or "; ".join(map(str, reasons)) or "its arguments are new"
        verdict = decide(call, problems, rules, self._known_facts(call, rules, problems, why))
        if isinstance(verdict, Refuse):
            if isinstance(verdict.error, UnknownGear):  # other errors would remain with any gears
                self._record.shapes.count_call(call.tensors)
            raise verdict.error
        if self._copies and isinstance(verdict, (Compile, Eager)) and problems.are_of("stride"):
            from gearcache.serving.miss.copied_calls import add_copied

            if (copied := add_copied(self._variants.loaded.variants, call)) is not None:
                self._record.use.add(copied.graph.gear.text, copied.graph.counter)
                self._record.shapes.add(copied.graph)
                return self._variants.loaded.accept(copied.active, copied.graph, copied.tensors, call)
        if isinstance(verdict, Eager):
            self._count_eager(call, verdict)
            return None
        padded = self._pad(call) if isinstance(verdict, Pad) else None
        if isinstance(padded, Unpadded) and padded.reason is not None:  # the call's own variant is loaded
            self._record.shapes.count_call(call.tensors)
            raise rules.outside(call, padded.reason)
        if not isinstance(padded, Padded):
            if reasons:  # the entry is there, a graph for this call is not
                reasons = self._near_misfits(call) or reasons
                why = "; ".join(map(str, reasons))
                self._record.history.explain(reasons)
            if not self._build_or_explain(call, verdict, why, problems.decisive()):
                return None
        if isinstance(verdict, Compile):
            frame_or_problems = self._variants.find(call)
            if isinstance(frame_or_problems, Problems):
                raise InputError(self._rules.name, *frame_or_problems.sentence())
            return frame_or_problems
        padded = padded if isinstance(padded, Padded) else self._pad(call)
        if isinstance(padded, Unpadded):
            self._record.shapes.count_call(call.tensors)
            raise rules.outside(call, padded.reason)
        return self._variants.loaded.accept(padded.active, padded.graph, padded.tensors, call)

    def forecast(self, call: Call, variants: Sequence[StoredVariant]) -> InputError | str:
        """Return what happens to a call that no graph of `variants` takes: an error, or the gear that is compiled.

        The text is empty for a call inside the gears, an eager run, and a call that is padded, or may be when the gears
        are stored.
        """
        rules = self._rules_of(call)
        graph = graph_to_make(call, Problems(), rules, ())
        if isinstance(graph, InputError):
            return graph
        if graph.is_outside and rules.on_miss == "pad":
            answer = self._padded.obstacle(variants, call)
            if answer is not None and answer.problem is not None:
                return self._wrong(answer.problem)
            return rules.outside(call, answer.reason) if answer is not None and answer.reason else ""
        return gear_text(rules.spec, call.sizes(rules.spec)) if graph.is_outside and rules.on_miss == "compile" else ""

    def _rules_of(self, call: Call) -> MissRules:
        return replace(self._rules, spec=call.spec(self._rules.spec))

    def _known_facts(self, call: Call, rules: MissRules, problems: Problems, why: str) -> Known:
        # Only a build of declared gears needs the missing ones; a call that runs eagerly should not pay for finding
        # them.
        is_asked = rules.on_miss == "pad" or call.sizes(rules.spec) in rules.spec.gears
        return Known(
            loaded=problems.gears,
            missing=tuple(self.builds.missing_gears(call)) if is_asked else (),
            has_delayed=bool(self._delayed),
            why=why,
        )

    def _count_eager(self, call: Call, verdict: Eager) -> None:
        if verdict.is_delayed:
            self._delayed.add(call)
        self._record.shapes.count_call(call.tensors)
        self._record.outcomes.ran_eagerly(verdict.reason)

    def _build_or_explain(self, call: Call, verdict: Compile | Pad, why: str, problem: Problem | None) -> bool:
        """Build for a call; if no graph can be made, a tensor unlike those of loaded graphs is named as the cause."""
        try:
            return self._build(call, verdict, why)
        except MethodRaises:
            raise
        except CaptureError as error:
            if problem is None or problem.kind == "read":
                raise
            allowed = f"{problem.allowed} (no graph can be made for it: {error})"
            raise InputError(self._rules.name, problem.argument, problem.value, allowed) from error

    def _build(self, call: Call, verdict: Compile | Pad, why: str) -> bool:
        """Compile and load the gears of a verdict; returns whether that was possible."""
        if self._method_serves and not self._right.may_build(self._rules.name, self._on_miss, why):
            self._record.outcomes.ran_eagerly("ranks")
            self._record.shapes.count_call(call.tensors)
            return False
        if self._is_background and not call.waits:
            reason = self._background.serve(call, verdict.spec, why)
            if reason and call.is_run:
                self._record.outcomes.ran_eagerly(reason)
                self._record.shapes.count_call(call.tensors)
            return not reason
        reason = "max_variants" if self._is_full else self.builds.obstacle
        # A caller that only prepares calls needs the error each time.
        if not call.is_run or not (self._runs_original or self._is_full):
            try:
                if self._compile(call, verdict, why):
                    return True
                self._runs_original, reason = True, self.builds.obstacle
            except NoOperation:
                if not call.is_run:
                    raise
                reason = "no operation"
                if reason not in self._record.outcomes.eager:
                    message = (
                        "%s: a call runs no tensor operation: there is nothing to compile, the method itself serves it"
                    )
                    logger.warning(message, self._rules.name)
            except TooManyVariants as error:
                if not call.is_run:  # a deploy needs the error
                    raise
                logger.warning("%s", error)
                self._record.history.lines.append(f"full: {error}")
                self._is_full, reason = True, "max_variants"
        self._record.outcomes.ran_eagerly(reason)
        return False

    def _compile(self, call: Call, verdict: Compile | Pad, why: str) -> bool:
        """Compile and load, unless a like call was refused; returns whether that was possible."""
        self._refused.check(call)
        begin = time.monotonic()
        try:
            is_built = self.builds.build(call, verdict.spec, why, is_padded=isinstance(verdict, Pad))
            self._refused.forget_raised()
            return is_built
        except (CaptureError, GearSpecError) as error:
            self._refused.add(call, error, time.monotonic() - begin)
            raise

    def _pad(self, call: Call) -> Padded | Unpadded:
        """Pad a call to a loaded gear; `InputError` for tensors that no gear takes."""
        spec = call.spec(self._rules.spec)
        text = gear_text(spec, call.sizes(spec))
        answer = self._padded.add(self._variants.loaded.variants, call, text)
        if isinstance(answer, Padded):
            self._record.use.add(text, answer.graph.counter, is_padded=True)
            self._record.shapes.add(answer.graph)
            name = sizes_name(text, [gear_text(spec, gear) for gear in spec.gears])
            self._record.history.lines.append(f"padded: {name}")
            logger.info("%s: %s is padded to a gear", self._rules.name, name)
        elif answer.problem is not None:
            raise self._wrong(answer.problem)
        return answer

    def _wrong(self, problem: Problem) -> InputError:
        return InputError(self._rules.name, problem.argument, problem.value, problem.allowed)

    def _near_misfits(self, call: Call) -> tuple[Reason, ...]:
        """Return the plain arguments that alone keep a call from variants whose graphs take its tensors."""
        near = [misfit(variant, call.scope) for variant in self._variants.known if takes_tensors(variant, call)]
        return tuple(merged(reason for reason in near if reason is not None))

    def _reasons(self, call: Call, problems: Problems) -> tuple[Reason, ...]:
        """Return why no loaded graph serves a call: its sizes, or the arguments of the trace of each variant."""
        problem = problems.nearest()
        if problem is None:
            return tuple(merged(self._variants.loaded.misfits(call)))
        text = f"argument `{problem.argument}` is {problem.value}; compiled for {problem.allowed}"
        return (Reason("gear", text, problem.argument, problem.allowed, problem.value),)
