"""One full-graph Dynamo capture of a method: graph, frame, inputs, symbols and guards.

The capture is made once per variant. Integer inputs that Dynamo adds for dynamic sizes are
replaced by `aten.sym_size` of the tensor that has them, so the frame passes tensors only.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from gearcache.errors import CaptureError, ModuleChanged, UncacheableGuard
from gearcache.ge_cache.capture.captured import Capture
from gearcache.ge_cache.capture.number_checks import number_checks
from gearcache.ge_cache.capture.number_choice import NO_NUMBERS, NumberChoice
from gearcache.ge_cache.capture.numbers import name_by_passed, written_ints
from gearcache.ge_cache.capture.orders import CAUSE, are_alike, arrangements
from gearcache.ge_cache.capture.source_paths import FrameNames
from gearcache.ge_cache.capture.tensors import (
    fixed_sizes,
    graph_inputs,
    layout_checks,
    place_checks,
    unbacked_sizes,
)
from gearcache.ge_cache.capture.translation import GuardTranslator, tensor_sources
from gearcache.ge_cache.capture.unwrapped import unwrap_weights
from gearcache.ge_cache.capture.written import Written
from gearcache.ge_cache.dependencies.identities import identity_checks
from gearcache.ge_cache.dependencies.implied import without_implied
from gearcache.ge_cache.dependencies.looked_up import Lookups
from gearcache.ge_cache.dependencies.observed import TracedCode, observed_checks, result_class_checks
from gearcache.ge_cache.dependencies.paths import Paths
from gearcache.ge_cache.dependencies.seen import Seen, others_run
from gearcache.ge_cache.dependencies.tensor_reads import autograd_checks, tensor_checks, weight_checks
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.private_torch import under_way as private_under_way
from gearcache.guards.access import Access
from gearcache.guards.evidence.checks import Check
from gearcache.guards.evidence.constants import to_plain

if TYPE_CHECKING:
    from gearcache.ge_cache.capture.recording import Recording


def capture_method(
    function: Any,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    *,
    method: str,
    dynamic: bool,
    numbers: NumberChoice = NO_NUMBERS,
    unbound: Collection[str] = (),
    with_grad: bool = False,
) -> Capture:
    """Trace one call of a bound method; `CaptureError` names the method and why it cannot be one graph.

    `ModuleChanged` if another thread changed something that the trace has read.

    `numbers`: which ints stay symbolic, see `ge_cache.capture.numbers`; `unbound`: Dynamo's names of parameters and
    buffers that become inputs, see `ge_cache.capture.tensors`. `with_grad`: as with autograd on, which makes a
    difference only where the method reads the mode.
    """
    from gearcache.ge_cache.capture.recording import Recording  # imports Dynamo

    if private_core.torch_function_modes() > 0:
        raise CaptureError(method, "it was called under a torch function mode, which a static graph cannot honour")

    def traced(arrangement: str = "") -> tuple[Capture, Recording]:
        recording = Recording(function, method, numbers, unbound, with_grad=with_grad, arrangement=arrangement)
        try:
            recording.run(arguments, keywords, dynamic=dynamic)
            return _translated(recording), recording
        except BaseException as error:
            private_under_way.drop_references(recording.graphs)  # the error holds this frame, and so the recording
            if isinstance(error, CaptureError):
                error.is_beside_numbers = recording.numbers.are_given
            if isinstance(error, Exception) and recording.is_of_change(error):
                raise ModuleChanged(method, "of this call", getattr(error, "cause", str(error))) from error
            raise
        finally:
            recording.state(Seen).forget()

    capture, recording = traced()
    made_orders = recording.of("made order")
    for arrangement in arrangements([size for size, _ in made_orders]):
        cause = f"{CAUSE}{made_orders[0][1]}"
        try:
            other, other_recording = traced(arrangement)
            other.drop_references()
        except CaptureError as error:
            capture.drop_references()
            raise CaptureError(method, cause) from error
        # An item that is treated otherwise than in another place may make a difference in a third order.
        if recording.jumps != other_recording.jumps or not are_alike(capture, other):
            capture.drop_references()
            raise CaptureError(method, cause)
    return capture


def _translated(recording: Recording) -> Capture:
    """Return the result of a Dynamo run as access paths and checks."""
    hook, output, scope = recording.hook, recording.output, recording.scope
    guards = output.output_graph.guards
    looked_up = recording.state(Lookups).only(guards, (write.source for write in hook.writes))
    names = FrameNames(output.import_sources, recording.installed, tuple(scope.closure), looked_up)
    paths = Paths(recording.method, scope, names)
    translator = GuardTranslator(paths)
    inputs = graph_inputs(hook, paths)
    number_paths = {symbol: paths.of(source) for symbol, source in hook.numbers.sources.items()}
    attributes, tensors = _attributes(recording, paths)
    checks = translator.translate(guards)
    condition_checks = number_checks(hook.numbers, number_paths, paths.of, hook.shape_env)
    name_by_passed(hook.numbers, hook.shape_env)
    fixed = {paths.of(source): line for source, line in hook.numbers.fixed.items()}
    fixed_checks = [Check("constant", access, to_plain(access.resolve(scope))) for access in fixed]
    compared_paths = {check.access for check in fixed_checks} | set(number_paths.values())
    checks = [check for check in checks if not (check.kind == "type" and check.access in compared_paths)]
    checks += [*fixed_checks, *condition_checks]
    checks += [check for item in inputs for check in place_checks(item.access)]
    checks += identity_checks(recording, paths)
    checks += autograd_checks(recording, paths, [item.access for item in inputs], attributes.values())
    checks += layout_checks(recording.method, paths, attributes.values(), recording.frame.code.co_varnames[0])
    held_sources = [*hook.sources, *(source for name, source in hook.attribute_sources.items() if name in attributes)]
    checks_of_tensors = tensor_checks(recording, paths, tensor_sources(guards), held_sources)
    if recording.with_grad:
        checks_of_tensors += weight_checks(recording, paths, attributes.values())
    type_paths = [check.access for check in checks if check.kind == "type"]
    traced = TracedCode(recording.original, output.traced_code, recording.module)
    observed = observed_checks(recording, paths, traced, type_paths)
    written = Written(hook.writes, scope)
    all_checks = without_implied(
        _distinct([*observed.checks, *checks, *result_class_checks(output.bytecode)]),
        [item.access for item in inputs],
        recording.frame.code.co_varnames[0],
        paths.walker,
        observed.compares,
    )
    capture = Capture(
        method=recording.method,
        needed={access.text: line for access, line in fixed.items() if line} | fixed_sizes(hook, inputs),
        module=recording.module,
        inputs=inputs,
        attributes=attributes,
        attribute_tensors=tensors,
        shape_env=hook.shape_env,
        drop_references=functools.partial(private_under_way.drop_references, recording.graphs),
        frame_code=output.bytecode,
        graph_name=hook.graph_name,
        imports=dict(output.import_sources),
        installed=recording.installed,
        checks=all_checks,
        tensor_checks=_distinct(checks_of_tensors),
        written=written,
        # Includes tensors that the graph does not hold: a trace reads only the size of some.
        misbound=[
            source.name
            for source in hook.attribute_sources.values()
            if recording.weights.are_bound(source) and written.leads_to(paths.of(source))
        ],
        frame_globals=dict(output.f_globals),
        numbers=hook.numbers,
        number_accesses=number_paths,
        written_ints=written_ints(checks, written),
        unbacked=unbacked_sizes(inputs, hook.shape_env),
        left_out=sorted({text for (text,) in recording.of("left out")}),
        asks_grad_mode=bool(recording.of("grad mode")),
        traced_code=[code for code in output.traced_code if code not in observed.covered],
        unreached=_unreached(recording, paths, [*inputs, *observed.checks, *checks], attributes),
    )
    unwrap_weights(capture)
    if others_run() and (place := recording.state(Seen).change(recording, paths, all_checks)) is not None:
        raise ModuleChanged(recording.method, "of this call", f"`{place}` was written during the trace")
    return capture


def _unreached(
    recording: Recording, paths: Paths, items: Sequence[Any], attributes: Mapping[str, Access]
) -> list[str] | None:
    """Return the modules that the trace did not reach; None if that is not known.

    Functions that it did not look into are evidence with all that they reach, and may reach no module.
    """
    instance = recording.scope.arguments.get(recording.frame.code.co_varnames[0])
    if not isinstance(instance, torch.nn.Module):
        return None
    accesses = [*(item.access for item in items), *attributes.values()]
    for check in items:
        if isinstance(check, Check):
            accesses += check.others
    for write in recording.hook.writes:
        with contextlib.suppress(UncacheableGuard):  # an object that the trace made has no path
            accesses.append(paths.of(write.source))
    objects = GuardTranslator(paths).objects(recording.output.output_graph.guards, accesses)
    return None if objects is None else _unreached_modules(instance, objects)


def _unreached_modules(instance: Any, objects: Iterable[Any]) -> list[str]:
    """Return the paths of modules of which the trace reached nothing, neither them nor a module below them.

    `objects` are those on the paths of everything that the trace depends on. Of a module and those below it, only the
    uppermost is named.
    """
    from gearcache.cache.keys.module_tree import named_children  # the backends load nothing of `cache/` by themselves

    reached = {id(value) for value in (instance, *objects) if isinstance(value, torch.nn.Module)}
    paths: list[str] = []

    def visit(module: Any, path: str) -> bool:
        children = [(child, f"{path}.{name}" if path else name) for name, child in named_children(module)]
        outcomes = [(child_path, visit(child, child_path)) for child, child_path in children]
        if id(module) not in reached and not any(is_reached for _, is_reached in outcomes):
            return False
        paths.extend(child_path for child_path, is_reached in outcomes if not is_reached)
        return True

    visit(instance, "")
    return sorted(paths)


def _distinct(checks: list[Check]) -> list[Check]:
    """Drop duplicates, and checks about Dynamo itself: its version is in the key, and a hit never imports it."""
    return [
        check
        for check in {repr(check.to_plain()): check for check in checks}.values()
        if not (check.access.root[0] == "module" and check.access.root[1].startswith("torch._dynamo"))
    ]


def _attributes(recording: Recording, paths: Paths) -> tuple[dict[str, Access], dict[str, torch.Tensor]]:
    """Return where the live module keeps each tensor that the graph holds as an attribute, and all such tensors.

    Constants that Dynamo made have no place in the module.
    """
    hook = recording.hook
    attributes: dict[str, Access] = {}
    tensors: dict[str, torch.Tensor] = {}
    for node in recording.module.graph.nodes:
        if node.op != "get_attr" or node.target in tensors:
            continue
        value = functools.reduce(getattr, str(node.target).split("."), recording.module)
        if not isinstance(value, torch.Tensor):
            continue
        tensors[node.target] = value
        source = hook.attribute_sources.get(node.target)
        if source is not None and recording.weights.are_bound(source):
            attributes[node.target] = paths.of(source)
    return attributes, tensors
