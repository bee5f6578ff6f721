"""Shows one variant of a stored entry as text: what it depends on, its gears, its frame and its graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from gearcache.cache.files.trust import read_verified
from gearcache.cache.layout import Layout
from gearcache.cache.manifest import MAX_ITEMS, Manifest
from gearcache.errors import CacheError
from gearcache.guards.access import TENSOR_DICTIONARIES, Access
from gearcache.guards.evidence.relations import numbers_text
from gearcache.readable.frame import readable_frame
from gearcache.readable.graph import PACKED_GRAPH, STORED_GRAPH, readable_graph, unpack_graph

_LEAF_LIMIT = 200
_DIGEST_SHOWN = 12
_MODULE_DICTIONARIES = (("attr", "_modules"), *TENSOR_DICTIONARIES)
#: The parts of a variant, in their order.
PARTS = ("inputs", "checks", "evidence", "sources", "gears", "frame", "graph")


def part_lines(
    part: str,
    variant: Mapping[str, Any],
    manifest: Manifest,
    layout: Layout,
    gear_names: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[str, list[str]]]:
    """Yield a title with its lines, for each graph of the part `graph`; `gear_names` has names of gears, by text."""
    if part == "inputs":
        yield "Inputs", list(input_lines(variant))
    elif part == "checks":
        yield "Checked on every call, beside the tensors", list(check_lines(variant))
    elif part == "evidence":
        yield "Evidence, checked at each load", list(evidence_lines(variant))
    elif part == "sources":
        yield "Source, compared at each load", list(source_lines(variant))
    elif part == "gears":
        yield "Gears", list(gear_lines(variant, manifest, gear_names))
    elif part == "frame":
        yield "Frame", frame_lines(variant, manifest)
    else:
        for gears, lines in graphs(variant, layout):
            yield f"Graph of {', '.join(gears)}", lines


def cut(value: Any) -> str:
    """Return a value as text of at most 200 characters."""
    text = repr(value)
    return text if len(text) <= _LEAF_LIMIT else f"{text[:_LEAF_LIMIT]}… ({len(text)} characters)"


def path_text(access: Access) -> str:
    """Return a path as its user would write it: `self.layers[0].weight`, without the dictionaries of modules."""
    steps: list[tuple[str, Any]] = []
    for kind, argument in access.steps:
        holder = steps[-1] if steps else ("", "")
        if kind == "item" and type(argument) is str and holder in _MODULE_DICTIONARIES:
            steps[-1] = ("item", int(argument)) if argument.isdigit() else ("attr", argument)
        else:
            steps.append((kind, argument))
    return Access(access.root, tuple(steps)).text


def input_lines(variant: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tensor inputs and weights of the graph."""
    for access, dtype, device, in_frame, computed in variant["inputs"]:
        use = ("" if in_frame else ", read by the graph") + ("" if computed else ", of which only sizes are read")
        yield f"{path_text(Access.from_plain(access))}: {dtype} on {device}{use}"
    for _, access in variant["attributes"]:
        yield f"{path_text(Access.from_plain(access))}: bound when it is loaded"


def check_lines(variant: Mapping[str, Any]) -> Iterator[str]:
    """Yield the checks that run on every call, except those of the tensors."""
    for kind, access, expected in variant["call_checks"]:
        yield f"{path_text(Access.from_plain(access))}: {kind} {_expected(kind, expected)}"


def evidence_lines(variant: Mapping[str, Any]) -> Iterator[str]:
    """Yield each check of the evidence."""

    nodes, roots = variant["evidence"]  # the form of `guards.evidence.tree`, which needs torch
    remaining = MAX_ITEMS

    def walk(access: Access, number: int) -> Iterator[str]:
        nonlocal remaining
        remaining -= 1
        if remaining < 0:  # a few nodes that refer to each other many times would take years
            raise ValueError(f"the evidence has more than {MAX_ITEMS} nodes")
        checks, children = nodes[number]
        for kind, expected in checks:
            if kind == "classes":
                yield from _class_lines(expected)
            else:
                yield f"{path_text(access)}: {kind} {_expected(kind, expected)}"
        for step, argument, child in children:
            yield from walk(access.then(step, argument), child)

    for kind, name, number in roots:
        yield from walk(Access((kind, name)), number)


def _class_lines(expected: Any) -> Iterator[str]:
    """Yield a line for each class whose definition counts, and for each path to one."""
    names, classes, paths = expected  # the form of `guards.evidence.members`, which needs torch
    yield f"classes are compared by the names of protocols and {cut(names)}"
    for name, _, _, members in classes:
        yield f"class {cut(name)} defines {cut(members)}"
    for path, numbers in paths:
        yield f"{path_text(Access.from_plain(path))}: class {cut(classes[numbers[0]][0])}"


def _expected(kind: str, expected: Any) -> str:
    """Return the expected value of a check; a function as its name and the start of the digest of its code, numbers as
    their conditions over paths, a float as Python writes it.
    """
    if kind == "numbers":
        return cut(text) if (text := numbers_text(expected)) else "any"
    if kind == "constant" and isinstance(expected, list) and expected[:1] == ["float"]:
        return repr(float.fromhex(expected[1]))
    if kind == "function" and isinstance(expected, list) and list(map(type, expected)) == [str, str]:
        name, digest = expected
        return f"{cut(name)}, code {cut(digest[:_DIGEST_SHOWN])}"
    return cut(expected)


def source_lines(variant: Mapping[str, Any]) -> Iterator[str]:
    """Yield the traced source files, and the operators that do not belong to torch."""
    for module, digest in variant["sources"]["files"]:
        yield f"{module}: sha256 {digest}"
    for name, plain in variant["sources"].get("operators", []):
        yield f"operator {name}: {', '.join([plain['schema'], *sorted(plain.keys() - {'schema', 'tags'})])}"


def gear_lines(
    variant: Mapping[str, Any], manifest: Manifest, called: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    """Yield the gears with the shapes of their inputs and their blobs; `called` has other names of gears, by text."""
    names = [path_text(Access.from_plain(access)) for access, *_ in variant["inputs"]]
    for gear in variant["gears"]:
        shapes = ", ".join(f"{name}{_shape(sizes)}" for name, sizes in zip(names, gear["sizes"], strict=False))
        yield f"{called.get(gear['text'], gear['text'])}: {shapes}; compiled in {gear.get('seconds', 0):g} s"
        yield from (f"  requires {condition}" for condition in gear["conditions"])
        for count, length, *_ in gear.get("header", {}).get("repeats", ()):
            yield f"  {length} operations compiled once, run {count} times"
        if reason := gear.get("header", {}).get("whole"):
            yield f"  compiled as a whole: {reason}"
        yield from (
            f"  {name}: {manifest.blobs.get(digest, 0)} bytes, {digest}" for name, digest in gear["blobs"].items()
        )


def _shape(sizes: Any) -> str:
    return f"[{', '.join('*' if size is None else str(size) for size in sizes)}]"


def frame_lines(variant: Mapping[str, Any], manifest: Manifest) -> list[str]:
    """Return the lines of the disassembled frame."""
    versions: Any = manifest.components.get("versions")
    python = str(versions.get("python", "?")) if isinstance(versions, dict) else "?"
    return readable_frame(variant["frame"], python).splitlines()


def graphs(variant: Mapping[str, Any], layout: Layout) -> list[tuple[list[str], list[str]]]:
    """Return the distinct graphs of a variant, each with its gears; a faulty blob gives a sentence instead."""
    names = [f"{path_text(Access.from_plain(access))}: {dtype}" for access, dtype, *_ in variant["inputs"]]
    names += [path_text(Access.from_plain(access)) for _, access in variant["attributes"]]
    gears_by_text: dict[str, list[str]] = {}
    for gear in variant["gears"]:
        repeats = gear.get("header", {}).get("repeats", ())
        gears_by_text.setdefault(_graph_text(gear["blobs"], names, repeats, layout), []).append(gear["text"])
    return [(gears, text.splitlines()) for text, gears in gears_by_text.items()]


def _graph_text(blobs: Mapping[str, str], names: list[str], repeats: Any, layout: Layout) -> str:
    for name in (STORED_GRAPH, PACKED_GRAPH):
        if name in blobs:
            path = layout.blob(blobs[name])
            try:
                return readable_graph(unpack_graph(name, read_verified(path, blobs[name])), names, repeats)
            except (CacheError, OSError, ValueError) as error:
                return f"cannot be read: {error}"
    return f"the backend stored no graph, only {', '.join(blobs) or 'nothing'}"
