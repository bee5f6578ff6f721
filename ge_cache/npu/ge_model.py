"""A GE model in two parts: the operators that torchair's Python handles at a load, and the bytes of all others.

torchair's own load parses the whole model in Python, walks all its operators four times and writes it out again, for GE
to parse it. That took a sixth to a quarter of a relaunch, and keeps every operator in memory. It reads or changes only
the inputs and outputs of a graph and the names of process groups; the rest passes through as stored.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

logger = logging.getLogger("gearcache")
#: The releases of torch_npu whose Python was read for this (the torchair of 2.14.0 equals that of 2.13.0 byte for
#: byte); models of any other release stay whole.
READ_FROM = ("2.13.0", "2.14.0")
_HANDLED = ("Data", "RefData", "NetOutput")
#: torchair renames the first to the addresses of weights, and then the inputs of all operators; it checks the formats
#: of the second's weights.
_WHOLE = ("ConstPlaceHolder", "GroupedMatmul")
#: Wire types of a field's content: a number, bytes after their length, or this many bytes.
_VARINT, _LENGTH_PREFIXED, _FIXED = 0, 2, {1: 8, 5: 4}


class SplitModel(Struct, frozen=True):
    """A serialised model of the handled operators, and the others as fields of its graph.

    `plan` gives the order: `[number of handled operators, bytes of others after them]`, again and again.
    """

    handled: bytes
    others: bytes
    plan: list[list[int]]


def split_model(model: Any, version: str) -> SplitModel | None:
    """Return a `ModelDef` in two parts; None where torchair may handle all operators. `version` is torch_npu's."""
    if not _is_read(version) or len(model.graph) != 1 or any(op.type in _WHOLE for op in model.graph[0].op):
        return None
    handled = type(model)()
    handled.CopyFrom(model)
    handled.graph[0].ClearField("op")
    _, fields, _ = _split_fields(model)
    plan, other_fields = [[0, 0]], []
    for operator, field in zip(model.graph[0].op, fields, strict=True):
        if operator.type in _HANDLED or "group" in operator.attr:
            handled.graph[0].op.append(operator)
            if plan[-1][1]:
                plan.append([0, 0])
            plan[-1][0] += 1
        else:
            other_fields.append(field)
            plan[-1][1] += len(field)
    split = SplitModel(handled.SerializeToString(), b"".join(other_fields), plan)
    joined = type(model).FromString(join_model(handled, split.others, plan))
    if joined.SerializeToString(deterministic=True) != model.SerializeToString(deterministic=True):
        raise RuntimeError("a GE model was not the same after it was taken apart and put together")
    return split


@functools.cache
def _is_read(version: str) -> bool:
    """Return whether the Python of this torch_npu was read; logs once when it was not."""
    if version.partition("+")[0] in READ_FROM:
        return True
    logger.warning(
        "torch_npu %s: gearcache has read the torchair of torch_npu %s only, so torchair handles each GE graph as a "
        "whole at a load: a relaunch takes longer, results are the same",
        version,
        " and ".join(READ_FROM),
    )
    return False


def join_model(handled: Any, others: bytes, plan: Sequence[Sequence[int]]) -> bytes:
    """Return the whole model, serialised; `handled` is the `ModelDef` with torchair's changes."""
    head, operators, tail = _split_fields(handled)
    if sum(count for count, _ in plan) != len(operators):
        raise RuntimeError(f"a GE graph has {len(operators)} inputs and outputs, not those that it was stored with")
    parts: list[bytes | memoryview] = [tail]
    remaining_operators, remaining_bytes = iter(operators), memoryview(others)
    for count, size in plan:
        parts += [*itertools.islice(remaining_operators, count), remaining_bytes[:size]]
        remaining_bytes = remaining_bytes[size:]
    return b"".join([head, _varint(sum(len(part) for part in parts)), *parts])


def _split_fields(model: Any) -> tuple[bytes, list[memoryview], bytes]:
    """Return a model up to the length of its graph, the operators of that graph, and the graph's other fields.

    A serialised message is its fields one after the other; their order is free except for the items of one list:
    https://protobuf.dev/programming-guides/encoding/
    """
    model_fields: list[memoryview] = []
    operators: list[memoryview] = []
    graph_fields: list[memoryview] = []
    graph_number = model.DESCRIPTOR.fields_by_name["graph"].number
    operator_number = model.graph[0].DESCRIPTOR.fields_by_name["op"].number
    graph = memoryview(b"")
    for number, field, content in _fields(memoryview(model.SerializeToString())):
        if number == graph_number:
            graph = content
        else:
            model_fields.append(field)
    for number, field, _ in _fields(graph):
        (operators if number == operator_number else graph_fields).append(field)
    return b"".join([*model_fields, _varint(graph_number << 3 | _LENGTH_PREFIXED)]), operators, b"".join(graph_fields)


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview, memoryview]]:
    """Yield number, bytes and content of each field of a serialised message."""
    place = 0
    while place < len(message):
        tag, content = _read_varint(message, place)
        kind = tag & 7
        if kind == _LENGTH_PREFIXED:
            length, content = _read_varint(message, content)
            end = content + length
        elif kind == _VARINT:
            _, end = _read_varint(message, content)
        else:
            end = content + _FIXED[kind]
        yield tag >> 3, message[place:end], message[content:end]
        place = end


def _read_varint(data: memoryview, place: int) -> tuple[int, int]:
    """Return the number that starts at a place, and the place after it."""
    number = shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
