"""Shows a recorded graph as text, and packs it beside compiled code, which cannot be read; works without torch."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import msgpack

#: The name of an artifact's blob with its graph for readers; a backend that stores the graph itself needs none.
PACKED_GRAPH = "graph.readable"
STORED_GRAPH = "graph.msgpack"
#: Larger than any graph: a packed graph that unpacks to more is refused.
_MAX_BYTES = 256 << 20


def pack_graph(graph: Mapping[str, Any]) -> bytes:
    """Return a recorded graph without its constants' bytes, compressed to a few per mille of the compiled code."""
    constants = {name: [dtype, sizes] for name, (dtype, sizes, *_) in graph["constants"].items()}
    plain = {"nodes": graph["nodes"], "outputs": graph["outputs"], "constants": constants}
    return zlib.compress(msgpack.encode(plain), 9)


def unpack_graph(name: str, data: bytes) -> dict[str, Any]:
    """Return the graph of a blob; `ValueError` for data of an unknown form."""
    if name == PACKED_GRAPH:
        stream = zlib.decompressobj()
        try:
            data = stream.decompress(data, _MAX_BYTES)
        except zlib.error as error:
            raise ValueError(f"the graph cannot be decompressed: {error}") from error
        if not stream.eof and not stream.unconsumed_tail:
            raise ValueError("the graph is cut off")
        if stream.unconsumed_tail:
            raise ValueError(f"the graph has more than {_MAX_BYTES} bytes")
    try:
        graph = msgpack.decode(data)
    except Exception as error:  # msgpack: "other exceptions can be raised during unpacking"
        raise ValueError(f"the graph cannot be decoded: {error}") from error
    if not isinstance(graph, dict) or not {"nodes", "outputs", "constants"} <= set(graph):
        raise ValueError("the graph has no nodes, outputs and constants")
    return graph


def readable_graph(graph: Mapping[str, Any], inputs: Sequence[str], repeats: Sequence[Sequence[int]] = ()) -> str:
    """Return one line per operation; `inputs` describe the graph's inputs in order, weights last.

    Operations that are compiled once and run several times are shown once; `repeats` is as in the header of a gear
    (`ge_cache/inductor/repeated.py`).
    """
    names: list[str] = []
    lines: list[str] = []
    waiting = iter(inputs)
    for index, node in enumerate(graph["nodes"]):
        names.append(f"%{index}")
        if node[0] == "input":
            lines.append(f"%{index} = input {next(waiting, '?')}")
        elif node[0] == "constant":
            dtype, sizes, *_ = graph["constants"][node[1]]
            lines.append(f"%{index} = constant {dtype}{list(sizes)}")
        else:
            _, target, positional, keyword = node
            arguments = [_value(item) for item in positional]
            arguments += [f"{name}={_value(item)}" for name, item in keyword["dict"]]
            lines.append(f"%{index} = {target}({', '.join(arguments)})")
    for count, length, _, second, end in sorted(repeats, key=lambda repeat: -repeat[2]):
        again = f"… × {count}: %{second} to %{end - 1} do what these {length} operations do, with other tensors"
        lines[second:end] = [again]
    lines.append(f"return {_value(graph['outputs'])}")
    return "\n".join(lines) + "\n"


def _value(plain: Any) -> str:
    if isinstance(plain, list):
        return f"[{', '.join(_value(item) for item in plain)}]"
    if isinstance(plain, dict):
        ((kind, item),) = plain.items()
        if kind == "node":
            return f"%{item}"
        if kind == "dict":
            return "{" + ", ".join(f"{key}: {_value(entry)}" for key, entry in item) + "}"
        return f"torch.{item}" if kind == "torch" else f"{kind}({item})"
    return repr(plain)
