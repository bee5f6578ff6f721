"""Calls between gears: pad the inputs up to a gear, cut the outputs back.

A padded size becomes one more gear of its variant, made of the next larger gear's compiled graph and the plan that
`ge_cache.padding.plan` proved and stored with the variant. It is dispatched and checked like any other gear, at the
sizes that the caller passes. The plan has these keys; all numbers are ints or expressions over the symbols:

| key | content |
|---|---|
| `symbols` | `(symbol, input, "size" or "stride", dim)`: where the value of each free symbol is read |
| `padded` | the symbols that may be padded |
| `proofs` | `{"symbols", "fills", "doubtful"}`: symbols that one proof covers (assumed equal if several),
`(input, value)` as the assumed filling, outputs in which the filling may cause a NaN: a call that finds one
fails |
| `conditions` | guards of the trace |
| `ones` | sets of symbols that may be 1: a trace at 1 ran the same operations |
| `sizes`, `strides` | of each input |
| `outputs` | `[sizes, strides]` of each compiled output |
| `results` | how outputs become results, see `ge_cache.graphs.results` |
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace

from gearcache.errors import PaddedResultError
from gearcache.guards.dispatch.fills import Fills
from gearcache.guards.dispatch.graph_call import Runner
from gearcache.guards.dispatch.stored.variant import StoredGear, StoredVariant
from gearcache.guards.gears.expressions import expression_function, holds
from gearcache.guards.gears.short_names import sizes_name

Values = Mapping[str, int]


class PaddedGear(Struct, frozen=True):
    """A gear that takes a call's tensors, and the function that runs it on the graph of another gear."""

    gear: StoredGear
    run: Runner
    #: How many elements the graph gets: of several gears the smallest is taken.
    work: int


class Unfit(Struct, frozen=True):
    """Why a call cannot be padded to a gear."""

    reason: str
    #: Whether other gears tell more: this one is too small, or was not traced to be padded.
    is_minor: bool = False


def padded_gear(
    variant: StoredVariant,
    gear: StoredGear,
    run: Runner,
    tensors: Sequence[torch.Tensor],
    text: str,
    fills: Fills,
) -> PaddedGear | Unfit:
    """Return a gear of smaller tensors on a gear's graph, or why there is none.

    `run` is the gear's own runner, `text` the name of the new gear. The tensors are compared with it afterwards.
    """
    if variant.padding is None or gear.is_dynamic:
        return Unfit(f"gear {sizes_name(gear.text)} cannot be padded to", is_minor=True)
    if any(tensors[index].dim() <= dim for _, index, _, dim in variant.padding["symbols"]):
        return Unfit(f"gear {sizes_name(gear.text)} has tensors of another rank", is_minor=True)
    real, full = _symbols(variant.padding, gear, tensors)
    result = _padded_gear(variant, gear, run, tensors, real, full, text, fills)
    if isinstance(result, str):
        is_smaller = any(real[name] > full[name] for name in real)
        return Unfit(f"gear {sizes_name(gear.text)} {result}", is_minor=is_smaller)
    return result


def _symbols(
    plan: Mapping[str, Any], gear: StoredGear, tensors: Sequence[torch.Tensor]
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the values of the symbols in a call, and in the gear.

    A stride counts as that of the gear: the tensors are compared with it afterwards.
    """
    rows = {"size": gear.sizes, "stride": gear.strides}
    full = {name: rows[kind][index][dim] or 0 for name, index, kind, dim in plan["symbols"]}
    real = {
        name: getattr(tensors[index], kind)(dim)
        for name, index, kind, dim in plan["symbols"]
        if kind == "size" or name in plan["padded"]
    }
    return {name: real.get(name, full[name]) for name in full}, full


def _padded_gear(
    variant: StoredVariant,
    gear: StoredGear,
    run: Runner,
    tensors: Sequence[torch.Tensor],
    real: Values,
    full: Values,
    text: str,
    fills: Fills,
) -> PaddedGear | str:
    """Return a gear, or why there is none; `real` and `full` are the symbols' values in the call and in the gear."""
    plan = variant.padding
    assert plan is not None
    changed_symbols = [name for name in real if real[name] != full[name]]
    for name in changed_symbols:
        if real[name] > full[name]:
            return f"is smaller than {real[name]}"
        if real[name] < 1:
            return "serves no call of size 0"
        if name not in plan["padded"]:
            return f"is of another size than {real[name]}, in a dim that is not padded"
    ones = sorted(name for name in changed_symbols if real[name] == 1)
    if ones and ones not in plan["ones"]:
        return "does not serve a size of 1: the method traces to something else there"
    proofs = [proof for proof in plan["proofs"] if any(name in changed_symbols for name in proof["symbols"])]
    unmet_assumption = next((reason for proof in proofs if (reason := _unmet(variant, proof, real, full, fills))), None)
    if unmet_assumption is not None:
        return unmet_assumption
    # One symbol after the other is padded, so the conditions must hold at each intermediate size as well.
    for corner in _corners(real, full, [proof["symbols"] for proof in proofs]):
        broken_condition = next((condition for condition in plan["conditions"] if not holds(condition, corner)), None)
        if broken_condition is not None:
            return "was traced under a condition that these sizes break"
    if not _same_forms(plan["results"], gear.results):
        return "returns results that share memory in another way"
    sizes, strides = _rows(plan["sizes"], gear.sizes, real), _rows(plan["strides"], gear.strides, real)
    if (
        _rows(plan["sizes"], gear.sizes, full) != gear.sizes
        or _rows(plan["strides"], gear.strides, full) != gear.strides
    ):
        return "has dims that do not follow the padded one"
    padded_indices = [
        index for index, row in enumerate(sizes) if row != gear.sizes[index] or strides[index] != gear.strides[index]
    ]
    for index in padded_indices:
        expanded = [dim for dim in _expanded_dims(gear, index) if tensors[index].stride(dim) == 0]
        path = variant.inputs[index].access.text
        if expanded and index in gear.written:
            return f"writes `{path}`, which is expanded"
        has_filling = any(sizes[index][dim] != gear.sizes[index][dim] for dim in expanded)
        needs_fill = fills.is_vouched or any(index == given for proof in proofs for given, _ in proof["fills"])
        if has_filling and needs_fill:
            return f"takes `{path}` expanded along a padded dim, which has no place for the value in pad_values"
    values = {
        index: fills.value(variant.inputs[index].access.text, variant.inputs[index].dtype) for index in padded_indices
    }
    small_gear = replace(
        gear,
        text=text,
        sizes=sizes,
        strides=strides,
        results=[[_evaluate(part, real) for part in form] for form in plan["results"]],
        assumed=[],
    )
    outputs = [(_list(row, real), _list(steps, real)) for row, steps in plan["outputs"]]
    written_indices = [index for index in padded_indices if index in gear.written]
    doubtful_outputs = {index: text for proof in proofs for index in proof["doubtful"]}
    return PaddedGear(
        small_gear,
        _runner(run, gear, sizes, values, written_indices, outputs, doubtful_outputs),
        sum(math.prod(size or 0 for size in row) for row in gear.sizes),
    )


def _expanded_dims(gear: StoredGear, index: int) -> list[int]:
    """Return the dims in which a gear takes one row several times."""
    pairs = zip(gear.sizes[index], gear.strides[index], strict=True)
    return [dim for dim, (size, stride) in enumerate(pairs) if stride == 0 and size != 1]


def _unmet(variant: StoredVariant, proof: Mapping[str, Any], real: Values, full: Values, fills: Fills) -> str | None:
    """Return the assumption of one proof that a call or the options do not meet."""
    for sizes in (real, full):
        if len({sizes[name] for name in proof["symbols"]}) > 1:
            assert variant.padding is not None
            owners = [symbol for symbol in variant.padding["symbols"] if symbol[0] in proof["symbols"]]
            sizes_text = " and ".join(f"{variant.inputs[index].access.text}.size({dim})" for _, index, _, dim in owners)
            return f"is padded only where {sizes_text} are equal"
    for index, value in proof["fills"]:
        path = variant.inputs[index].access.text
        if fills.value(path, variant.inputs[index].dtype) != value:
            return f"is padded only where pad_values of `{path}` is {value}"
    return None


def _corners(real: Values, full: Values, groups: Sequence[Sequence[str]]) -> Iterator[dict[str, int]]:
    """Yield the values of all symbols, with each padded group (a proof's symbols) as in the call or as in the gear."""
    for combination in itertools.product((real, full), repeat=len(groups)):
        yield {
            **real,
            **{name: values[name] for values, group in zip(combination, groups, strict=True) for name in group},
        }


def _runner(
    run: Runner,
    gear: StoredGear,
    sizes: list[list[int | None]],
    values: dict[int, Any],
    written_indices: list[int],
    outputs: list[tuple[list[int], list[int]]],
    doubtful_outputs: Mapping[int, str],
) -> Runner:
    regions = {index: tuple(slice(0, size) for size in sizes[index]) for index in values}

    def run_padded(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        with torch.no_grad():
            padded_inputs = list(inputs)
            for index, fill in values.items():
                padded_inputs[index] = _larger(inputs[index], gear.sizes[index], gear.strides[index], fill)
            raw_outputs = run(padded_inputs)
            results = [_cut(tensor, shape, steps) for tensor, (shape, steps) in zip(raw_outputs, outputs, strict=True)]
            for index, text in doubtful_outputs.items():
                if results[index].isnan().any():
                    raise PaddedResultError(gear.text, text)
            for index in written_indices:
                inputs[index].copy_(padded_inputs[index][regions[index]])
            return results

    run_padded.is_native = getattr(run, "is_native", False)  # type: ignore[attr-defined]
    run_padded.writes_copies = bool(written_indices)  # type: ignore[attr-defined]
    return run_padded


def _larger(source: torch.Tensor, sizes: Sequence[Any], strides: Sequence[Any], fill: Any) -> torch.Tensor:
    """Return a tensor with `source` at its beginning and `fill` after it; an expanded dim stays one row in memory."""
    held = zip(sizes, strides, source.shape, source.stride(), strict=True)
    # A tensor that is not expanded, under `validate="gears"`, is refused by torch: it has no place in such memory.
    single = [1 if stride == 0 and (step == 0 or real == 1) else size for size, stride, real, step in held]
    target = torch.empty_strided(single, strides, dtype=source.dtype, device=source.device).fill_(fill)
    region = tuple(slice(0, min(own, size)) for own, size in zip(single, source.shape, strict=True))
    target[region].copy_(source[region])
    return target.expand(sizes)


def _cut(tensor: torch.Tensor, shape: list[int], strides: list[int]) -> torch.Tensor:
    """Return the real part with the strides of eager mode."""
    if list(tensor.shape) == shape and list(tensor.stride()) == strides:
        return tensor
    part = tensor[tuple(slice(0, size) for size in shape)]
    if list(part.stride()) == strides:
        return part.detach()  # else torch would forbid to write it where autograd is on, as a view made without it
    single = [1 if stride == 0 else size for size, stride in zip(shape, strides, strict=True)]  # of an expanded result
    held = torch.empty_strided(single, strides, dtype=part.dtype, device=part.device)
    held.copy_(part[tuple(slice(0, size) for size in single)])
    return held if single == shape else held.expand(shape).detach()


def _number(text: str, values: Values) -> Any:
    return expression_function(text, tuple(values))(**values)


def _evaluate(part: Any, values: Values) -> Any:
    if isinstance(part, dict):
        text = part["expression"]
        if re.search(r"\bn\d+\b", text):  # a number: each call has its own
            sizes = re.compile(r"\b[su]\d+\b")
            return {"expression": sizes.sub(lambda match: str(values.get(match[0], match[0])), text)}
        return _number(text, values)
    return [_evaluate(item, values) for item in part] if isinstance(part, list) else part


def _list(row: list[Any], values: Values) -> list[int]:
    return [int(_evaluate(item, values)) for item in row]


def _rows(rows: list[list[Any]], present: list[list[int | None]], values: Values) -> list[list[int | None]]:
    """Return rows at some sizes; inputs beyond the plan (buffers that the graph writes) keep their rows."""
    evaluated: list[list[int | None]] = [list(_list(row, values)) for row in rows]
    return evaluated + [list(row) for row in present[len(evaluated) :]]


def _same_forms(left: list[list[Any]], right: list[list[Any]]) -> bool:
    kinds = [[form[0] if form[0] == "constant" else form[:2] for form in forms] for forms in (left, right)]
    return kinds[0] == kinds[1]
