"""Generate the source that makes the frame's results from graph outputs, inputs, weights, views and constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gearcache.guards.dispatch.stored.variant import StoredGear, StoredVariant
from gearcache.guards.dispatch.tensors.native import inference_mode
from gearcache.guards.gears.expressions import checked_expression


def result_lines(
    variant: StoredVariant,
    gear: StoredGear,
    attributes: Mapping[str, torch.Tensor],
    call: str,
    namespace: dict[str, Any],
) -> list[str]:
    """Return statements that run the graph by `call` and return the frame's results; adds names to `namespace`."""
    results = gear.results
    if all(form == ["output", index] for index, form in enumerate(results)):
        lines = [f"out = {call}", "return out"] if gear.regions else [f"return {call}"]
    else:
        values = [_result(variant, attributes, index, form, namespace) for index, form in enumerate(results)]
        for index in {form[1] for form in results if form[0] == "result"}:
            values[index] = f"(result{index} := {values[index]})"
        lines = [f"out = {call}", f"return [{', '.join(values)}]"]
    if gear.regions:
        from gearcache.guards.dispatch.tensors.inference_tensors import remade

        namespace["remade"] = remade
        lines[1:1] = [f"out[{int(index)}] = remade(out[{int(index)}], {bool(on)})" for index, on in gear.regions]
    if not gear.in_inference_mode:
        return lines
    namespace["inference_mode"] = inference_mode
    return ["with inference_mode(True):", *(f"    {line}" for line in lines)]


def _result(
    variant: StoredVariant,
    attributes: Mapping[str, torch.Tensor],
    index: int,
    form: list[Any],
    namespace: dict[str, Any],
) -> str:
    """Return the expression of one result."""
    kind, owner = form[0], form[1]
    if kind == "constant":
        if isinstance(owner, dict):
            return f"({checked_expression(owner['expression'])})"
        namespace[f"constant{index}"] = owner
        return f"constant{index}"
    if kind == "result":
        return f"result{int(owner)}"
    base = {"output": f"out[{owner}]", "input": f"t{owner}"}.get(kind.removesuffix("_view"))
    if base is None:
        namespace[f"attribute{index}"] = attributes[owner]
        base = f"attribute{index}"
    if not kind.endswith("_view"):
        return base
    from gearcache.guards.dispatch.tensors.inference_tensors import retyped_view, unrecorded_view

    sizes, strides, offset, *more = form[2:]
    is_detached = more[-1:] == [True]
    if more and type(more[0]) is str:
        namespace["retyped_view"], namespace[f"dtype{index}"] = retyped_view, getattr(torch, more[0])
        numbers = f"({_numbers(sizes)}), ({_numbers(strides)}), {_numbers([offset]).rstrip(', ')}"
        view = f"retyped_view({base}, dtype{index}, {numbers})"
        return f"{view}.detach()" if is_detached else view
    start = f"{base}.storage_offset() + {_numbers([offset]).rstrip(', ')}"
    part = f"({_numbers(sizes)}), ({_numbers(strides)}), {start}"
    view = f"{base}.as_strided({part})"
    if kind == "attribute_view" or (kind == "input_view" and variant.inputs[owner].is_weight):
        # As in eager without autograd, a view of a weight requires grad as the weight does, and is not recorded.
        namespace["is_grad_enabled"], namespace["unrecorded_view"] = torch.is_grad_enabled, unrecorded_view
        view = f"(unrecorded_view({base}, {part}) if is_grad_enabled() else {view})"
    return f"{view}.detach()" if is_detached else view


def _numbers(values: list[Any]) -> str:
    texts = [
        checked_expression(value["expression"]) if isinstance(value, dict) else str(int(value)) for value in values
    ]
    return "".join(f"{text}, " for text in texts)
