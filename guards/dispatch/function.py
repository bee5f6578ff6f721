"""The dispatch function that every call goes through, generated as Python source from the loaded variants.

    state -> argument checks of a group of variants -> sizes that distinguish the gears -> frame -> graph

A group holds the variants with equal argument checks; its table maps the few sizes in which their gears differ to a
frame. A call that fits none goes to `miss`, which is slow and explains why.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from msgspec import Struct

from gearcache.guards.access import Access, Scope, Walker
from gearcache.guards.dispatch.check_code import CheckWriter, checked_name
from gearcache.guards.dispatch.generated import define
from gearcache.guards.dispatch.graph_call import Mismatch
from gearcache.guards.dispatch.stored.variant import StoredGear, StoredVariant
from gearcache.guards.dispatch.tensors.native import has_function_mode
from gearcache.guards.evidence.checks import Check
from gearcache.guards.evidence.kinds import KINDS
from gearcache.interrupts import raise_interrupt

Frame = Callable[..., Any]
#: Types of objects that each access makes anew.
_MADE_ANEW = (torch.device, types.MethodType, types.MethodWrapperType)


class BoundGear(Struct, frozen=True):
    """A gear with the frame that calls its graph."""

    variant: StoredVariant
    gear: StoredGear
    frame: Frame
    #: For each argument check of the variant, the object to compare with, see `compared_objects`.
    objects: list[Any]


def compared_objects(variant: StoredVariant, walker: Walker) -> list[Any]:
    """Return the type, class, function, singleton or device that each argument check compares with."""
    return [KINDS[check.kind].compared(walker.resolve(check.access)) for check in variant.call_checks]


def are_same_objects(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Return whether two calls have the same objects for the checks of a variant, not only ones of equal names.

    What graphs read of an argument's class or function is evidence, which was compared for one of them.
    """
    return len(left) == len(right) and all(
        one is other or (type(one) in _MADE_ANEW and type(one) is type(other) and one == other)
        for one, other in zip(left, right, strict=True)
    )


def build_dispatch(
    method: types.FunctionType,
    scope: Scope,
    gears: Sequence[BoundGear],
    states: Sequence[Callable[[], bool]],
    unchanged: Callable[[], bool] | None,
    miss: Callable[..., Any],
    is_compared: Callable[[str, int], bool] = lambda path, dim: False,
    admits: Callable[..., bool] | None = None,
) -> Callable[..., Any]:
    """Return a function with the method's own signature that dispatches a call to the instance in `scope`.

    Its first parameter is ignored: the function becomes the `__call__` of a class made for one cached method, which
    saves the packing and unpacking of `*args, **kwargs` (0.3 µs a call with Python 3.11). `states`: at least one of
    them must hold. `unchanged` says whether everything is unchanged since the gears were loaded. `is_compared` selects
    dims, by path and number, whose size is compared although all of these gears have the same size. `admits` receives
    the values of all parameters.
    """
    method_parameters = list(inspect.signature(method, follow_wrapped=False).parameters.values())
    instance_name = method.__code__.co_varnames[0]
    writer = CheckWriter(scope, instance_name, (parameter.name for parameter in method_parameters))
    parameters, call = _signature(method_parameters, writer)
    groups = _groups(gears)
    miss_name, name = writer.bind(miss, "miss"), writer.name("dispatch")
    writer.bind(scope.arguments[instance_name], "instance")
    lines = [f"def {name}({parameters}):"]
    indent = "    "
    conditions = [f"{writer.bind(unchanged, 'unchanged')}()"] if unchanged is not None else []
    if states:
        conditions.append(f"not {writer.bind(has_function_mode, 'has_mode')}()")  # which no state check covers
        holds = [f"{writer.bind(state, f'state{index}')}()" for index, state in enumerate(states)]
        conditions.append(f"({' or '.join(holds)})")
    if admits is not None:
        values = ", ".join(checked_name(parameter.name) for parameter in method_parameters[1:])
        conditions.append(f"{writer.bind(admits, 'admits')}({values})")
    if conditions:
        lines.append(f"    if {' and '.join(conditions)}:")
        indent = "        "
    for number, members in enumerate(groups):
        lines += [indent + line for line in _group_lines(writer, number, members, call, is_compared)]
    if len(lines) == 1 or not groups:
        lines.append(f"{indent}pass")
    lines.append(f"    return {miss_name}({call})")
    source = "\n".join(lines) + "\n"
    function: Any = define(source, name, writer.namespace, f"dispatch of {method.__qualname__}")
    function.__defaults__, function.__kwdefaults__ = method.__defaults__, method.__kwdefaults__
    function.__qualname__ = method.__qualname__  # for error messages about missing arguments
    dispatch: Callable[..., Any] = function
    return dispatch


def _groups(gears: Sequence[BoundGear]) -> list[list[BoundGear]]:
    """Return the gears by equal argument checks, on the same objects; variants of an entry mostly share one list."""
    text_by_id: dict[int, str] = {}
    groups: list[tuple[str, list[BoundGear]]] = []
    for bound in gears:
        checks = bound.variant.call_checks
        if id(checks) not in text_by_id:
            text_by_id[id(checks)] = repr([check.to_plain() for check in checks])
        for text, members in groups:
            if text == text_by_id[id(checks)] and are_same_objects(members[0].objects, bound.objects):
                members.append(bound)
                break
        else:
            groups.append((text_by_id[id(checks)], [bound]))
    return [members for _, members in groups]


def _group_lines(
    writer: CheckWriter, number: int, members: list[BoundGear], call: str, is_compared: Callable[[str, int], bool]
) -> list[str]:
    """Return the statements of one group: its static graphs first, then those with dynamic dims."""
    static = [bound for bound in members if not bound.gear.is_dynamic]
    dynamic = [bound for bound in members if bound.gear.is_dynamic]
    lines = _lines(writer, f"{number}", static, call, is_compared) if static else []
    return lines + (_lines(writer, f"{number}dynamic", dynamic, call, is_compared) if dynamic else [])


def _lines(
    writer: CheckWriter, name: str, members: list[BoundGear], call: str, is_compared: Callable[[str, int], bool]
) -> list[str]:
    dims, table = _table(members, is_compared)
    checks = members[0].variant.call_checks
    related = [other for check in checks for other in check.others]
    writer.begin([check.access for check in checks] + related + [access for access, _ in dims])
    pairs = sorted(zip(checks, members[0].objects, strict=True), key=lambda pair: _order(pair[0]))
    test = " and ".join(writer.check(check, compared) for check, compared in pairs)
    empty = any(0 in row for bound in members for row in bound.gear.sizes)
    sizes = [writer.size(access, dim, slot=not empty) for access, dim in dims]
    if not dims:
        frame_source = writer.bind(table[()], f"only{name}")
    else:
        key = sizes[0] if len(sizes) == 1 else f"({', '.join(sizes)})"
        frame_source = f"{writer.bind(table, f'table{name}')}[{key}]"
    if test:
        frame_source = f"({frame_source}) if ({test}) else None"
    frame = writer.name("frame")
    frame_lines = [f"{frame} = {frame_source}"]
    if test or sizes:
        caught, passed_on = writer.bind(Exception, "caught"), writer.bind(raise_interrupt, "raise_interrupt")
        missed = writer.name("missed")
        frame_lines = [
            f"try: {frame} = {frame_source}",
            f"except {caught} as {missed}:",
            f"    {passed_on}({missed})",
            f"    {frame} = None",
        ]
    return [
        *frame_lines,
        f"if {frame} is not None:",
        f"    try: return {frame}({call})",
        f"    except {writer.bind(Mismatch, 'mismatch')}: pass",
    ]


def _table(
    members: list[BoundGear], is_compared: Callable[[str, int], bool]
) -> tuple[list[tuple[Access, int]], dict[Any, Frame]]:
    """Return the fewest dims that distinguish the gears, plus those that are always compared, and the frames by sizes.

    A dim that is dynamic in one gear distinguishes none.
    """
    sizes = [_sizes(bound) for bound in members]
    common = set.intersection(*(set(row) for row in sizes)) if sizes else set()
    common = {dim for dim in common if all(row[dim] is not None for row in sizes)}
    varying = [dim for dim in common if len({row[dim] for row in sizes}) > 1]
    varying.sort(key=lambda dim: (-len({row[dim] for row in sizes}), len(dim[0].steps), dim[0].text, dim[1]))
    compared_dims = sorted(
        (dim for dim in common if is_compared(dim[0].text, dim[1])), key=lambda dim: (dim[0].text, dim[1])
    )
    distinct_count = len({tuple(row[dim] for dim in varying) for row in sizes})
    for dim in varying:
        if len({tuple(row[item] for item in compared_dims) for row in sizes}) == distinct_count:
            break
        if dim not in compared_dims:
            compared_dims.append(dim)
    frames_by_sizes: dict[Any, list[Frame]] = {}
    for bound, row in zip(members, sizes, strict=True):
        key = tuple(row[dim] for dim in compared_dims)
        frames_by_sizes.setdefault(key[0] if len(key) == 1 else key, []).append(bound.frame)
    return compared_dims, {key: _chain(frames) for key, frames in frames_by_sizes.items()}  # type: ignore[misc]


def _sizes(bound: BoundGear) -> dict[tuple[Access, int], int | None]:
    return {
        (stored.access, dim): size
        for stored, row in zip(bound.variant.inputs, bound.gear.sizes, strict=True)
        for dim, size in enumerate(row)
    }


def _chain(frames: list[Frame]) -> Frame | None:
    """Return one callable that tries the frames in turn."""
    if len(frames) <= 1:
        return frames[0] if frames else None

    def chained(*arguments: Any, **keywords: Any) -> Any:
        for frame in frames[:-1]:
            try:
                return frame(*arguments, **keywords)
            except Mismatch:
                continue
        return frames[-1](*arguments, **keywords)

    return chained


def _order(check: Check) -> tuple[int, bool]:
    """Return the place of a check: behind those of the objects that its paths lead through."""
    return max(len(access.steps) for access in (check.access, *check.others)), check.kind != "type"


def _signature(method_parameters: list[inspect.Parameter], writer: CheckWriter) -> tuple[str, str]:
    """Return the parameters of the dispatch function and the arguments that pass them on."""
    parameters, call, keyword_only, positional_only = [writer.name("ignored")], [writer.instance], False, 0
    for parameter in method_parameters[1:]:
        default = "=None" if parameter.default is not inspect.Parameter.empty else ""
        name = checked_name(parameter.name)
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            parameters.append(f"*{name}")
            call.append(f"*{name}")
            keyword_only = True
            continue
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            parameters.append(f"**{name}")
            call.append(f"**{name}")
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            if not keyword_only:
                parameters.append("*")
                keyword_only = True
            call.append(f"{name}={name}")
        else:
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                positional_only = len(parameters) + 1
            call.append(name)
        parameters.append(name + default)
    parameters.insert(max(1, positional_only), "/")
    return ", ".join(parameters), ", ".join(call)
