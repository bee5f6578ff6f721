"""Makes the stored form of one capture: frame, inputs, gears, and the checks under which it may be used."""

from __future__ import annotations

from typing import Any

from msgspec import msgpack

from gearcache.building.request import BuiltVariant
from gearcache.building.trace_units import TraceUnit
from gearcache.errors import CaptureError
from gearcache.ge_cache.backend import Artifact
from gearcache.ge_cache.capture.captured import Capture
from gearcache.ge_cache.dependencies.implied import is_of_call
from gearcache.ge_cache.dependencies.tensor_reads import GRAD_MODE
from gearcache.ge_cache.graphs.static import GearGraph
from gearcache.guards.access import Access
from gearcache.guards.dispatch.stored.variant import StoredGear, StoredInput, StoredVariant
from gearcache.guards.dispatch.stored.variant_groups import KIND
from gearcache.guards.evidence.checks import Check
from gearcache.guards.evidence.traced_files import record_sources
from gearcache.guards.evidence.tree import evidence_tree
from gearcache.serving.call.bound_method import BoundMethod

_GRAPH_NAME = "__compiled_graph"


def built_variant(
    bound: BoundMethod, unit: TraceUnit, graph: GearGraph, gears: list[StoredGear], artifacts: list[Artifact]
) -> BuiltVariant:
    """Return the stored form of a capture of a bound method; `graph` is the graph of any of its gears."""
    capture = unit.capture
    moved = graph.written_attributes
    inputs = [StoredInput(item.access, item.dtype, item.device.type, computed=item.computed) for item in capture.inputs]
    for name in moved:
        tensor = capture.attribute_tensors[name]
        inputs.append(StoredInput(capture.attributes[name], tensor.dtype, tensor.device.type, in_frame=False))
    call_checks, evidence = split_checks(capture, bound.instance_name)
    for check in (*call_checks, *evidence):
        _check_storable(capture.method, check.to_plain())
    frame, graph_name = _with_own_name(unit.frame, capture.graph_name)
    variant = StoredVariant(
        frame=frame,
        references=unit.references,
        graph_name=graph_name,
        inputs=inputs,
        attributes={name: access for name, access in capture.attributes.items() if name not in moved},
        call_checks=call_checks,
        evidence=evidence_tree(evidence),
        # Hashed after the compile: see `guards.evidence.traced_files` about edits in between.
        sources=record_sources(capture.traced_code, unit.operators),
        gears=gears,
        padding=unit.padding,
        numbers=[[name, capture.number_accesses[symbol].to_plain()] for symbol, name in capture.numbers.inputs],
        computed=[[each.name, each.text] for each in capture.numbers.computed],
        constants=[access.to_plain() for access in _constants(capture, call_checks)],
        constants_because=capture.constants_because,
        needed=capture.needed,
        static_because=capture.static_because,
        outputs=len(graph.results),
        left_out=capture.left_out,
        unreached=capture.unreached,
    )
    _check_storable(capture.method, variant.to_plain())
    return BuiltVariant(variant, artifacts)


def _constants(capture: Capture, call_checks: list[Check]) -> list[Access]:
    """Return the places of ints that were refused as numbers: all that calls compare, if it is not known which."""
    if not capture.constants_because:
        return []
    compared = [check.access for check in call_checks if check.number_type]
    return sorted(capture.constants or compared, key=lambda access: access.text)


def _with_own_name(frame: dict[str, Any], graph_name: str) -> tuple[dict[str, Any], str]:
    """Return a frame that calls the graph by a name that is equal in every trace of the method, and that name.

    Dynamo's name contains a random number: the results of two hosts would never be equal.
    """
    name = _GRAPH_NAME
    while name in frame["co_names"]:
        name += "_"
    return frame | {"co_names": [name if item == graph_name else item for item in frame["co_names"]]}, name


def _check_storable(method: str, plain: Any) -> None:
    """Raise `CaptureError` for a text or number that a manifest cannot hold."""
    try:
        msgpack.encode(plain)
    except UnicodeEncodeError as error:
        cause = f"it depends on the text {error.object!r}, whose lone surrogates cannot be stored"
        raise CaptureError(method, cause) from None
    except OverflowError:
        raise CaptureError(method, "it depends on an integer of more than 64 bits") from None


def split_checks(capture: Capture, instance: str) -> tuple[list[Check], list[Check]]:
    """Return the checks that run on every call, and those that are evidence.

    Per call: the types and values of arguments, grad mode, everything that the frame writes, and the tensors that the
    graph takes, wherever they live. Everything below `type(argument)` belongs to a class, which the type check of the
    call fixes, so it is evidence.
    """
    tensors = {item.access for item in capture.inputs} | {check.access for check in capture.tensor_checks}

    def per_call(access: Access) -> bool:
        if access == GRAD_MODE or access in tensors or capture.written.leads_to(access):
            return True
        return is_of_call(access, instance)

    calls = list(capture.tensor_checks)
    evidence: list[Check] = []
    names = {check.access.then("attr", "group_name") for check in capture.checks if check.kind == KIND}
    for check in capture.checks:
        if check.kind == "constant" and check.access in names:
            continue  # the check of the group compares its name
        if check.kind == "type" and check.access in tensors:
            continue  # `TensorGuards` compares the exact type
        is_per_call = check.kind == "numbers" or capture.written.affects(check)
        is_per_call = is_per_call or any(per_call(access) for access in [check.access, *check.others])
        (calls if is_per_call else evidence).append(check)
    return calls, evidence
