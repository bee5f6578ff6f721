"""Shows a stored entry as text for people: its identity, what it depends on, its frames and its graphs.

Needs no torch, runs nothing of the entry, and changes nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gearcache.cache.files.atomic import write_atomic
from gearcache.cache.files.trust import read_trusted, read_verified
from gearcache.cache.layout import MANIFEST_NAME, Layout
from gearcache.cache.manifest import MAX_ITEMS, MAX_MANIFEST_SIZE, Manifest, decode_manifest
from gearcache.errors import CacheError
from gearcache.guards.access import TENSOR_DICTIONARIES, Access
from gearcache.guards.dispatch.stored.stored_rows import SHARED_PARTS
from gearcache.guards.evidence.relations import numbers_text
from gearcache.readable.foreign import check_foreign
from gearcache.readable.frame import readable_frame
from gearcache.readable.graph import PACKED_GRAPH, STORED_GRAPH, readable_graph, unpack_graph

_LEAF_LIMIT = 200
_DIGEST_SHOWN = 12
#: A list longer than this is shown item by item.
_LINE_LIMIT = 100
_MODULE_DICTIONARIES = (("attr", "_modules"), *TENSOR_DICTIONARIES)


def readable_cache(
    path: str | os.PathLike[str], print_output: bool = True, file: str | os.PathLike[str] | None = None
) -> str:
    """Return a stored entry as text: its key, evidence, frames and graphs.

    `path` is a manifest (`CachedMethod.entry_path`) or its folder. `print_output` prints the text to stdout; `file` is
    a path to write it to, readable by its owner only. `ValueError` if there is no entry, `CacheError` for one that is
    damaged, of another format version, or not trusted.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"readable_cache: path is {path!r}; it must be a str or a path, as `CachedMethod.entry_path`")
    entry_path = Path(path)
    manifest_path = entry_path / MANIFEST_NAME if entry_path.is_dir() else entry_path
    if manifest_path.is_symlink():
        raise ValueError(f"readable_cache: `{manifest_path}` is a symbolic link; give the file that it points to")
    if not manifest_path.is_file():
        raise ValueError(f"readable_cache: there is no entry at `{manifest_path}`")
    check_foreign(manifest_path)
    manifest = decode_manifest(read_trusted(manifest_path, MAX_MANIFEST_SIZE), manifest_path)
    with understood(manifest):
        text = "".join(f"{line}\n" for line in entry_lines(manifest, layout_of(manifest_path)))
    if file is not None:
        write_atomic(Path(file), text.encode())
    if print_output:
        sys.stdout.write(text)
    return text


def layout_of(manifest_path: Path) -> Layout:
    """Return the layout of the cache that contains a manifest; `ValueError` for one outside any cache."""
    for parent in manifest_path.absolute().parents:
        if parent.name == "entries":
            layout = Layout(parent.parent.parent)
            if layout.entries_folder == parent:
                return layout
            raise ValueError(f"`{manifest_path}` is of another format: its folder is `{parent.parent.name}`")
    raise ValueError(f"`{manifest_path}` is no manifest of a cache: no folder `entries` is above it")


def entry_lines(manifest: Manifest, layout: Layout) -> Iterator[str]:
    """Yield the whole text."""
    created = datetime.fromtimestamp(manifest.created).astimezone().isoformat(" ", "seconds")
    yield f"entry    {manifest.name}"
    yield f"created  {created}"
    yield from (f"{name:<8} {value}" for name, value in manifest.producer.items() if not isinstance(value, list))
    yield ""
    yield "key"
    yield from (f"  {line}" for line in key_lines(manifest))
    for number, variant in enumerate(variants_of(manifest)):
        yield ""
        yield f"variant {number}"
        yield from variant_lines(variant, manifest, layout)


def key_lines(manifest: Manifest) -> Iterator[str]:
    """Yield the components of the key, one leaf per line."""
    for component, value in manifest.components.items():
        yield from (f"{component}{path} = {leaf}" for path, leaf in _leaves(value))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, child in value.items():
            yield from _leaves(child, f"{path}.{name}")
    elif isinstance(value, (list, tuple)) and (
        any(isinstance(child, (list, tuple, dict)) for child in value) or len(repr(value)) > _LINE_LIMIT
    ):
        for index, child in enumerate(value):
            yield from (
                _leaves(child, f"{path}[{index}]") if isinstance(child, dict) else [(f"{path}[{index}]", cut(child))]
            )
    else:
        yield path, cut(value)


def cut(value: Any) -> str:
    """Return a value as text of at most 200 characters."""
    text = repr(value)
    return text if len(text) <= _LEAF_LIMIT else f"{text[:_LEAF_LIMIT]}… ({len(text)} characters)"


def variants_of(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the variants as plain data; `CacheError` for a payload of an unknown form."""
    payload: Mapping[str, Any] = manifest.payload
    with understood(manifest):
        parts = payload["parts"]
        return [
            {name: parts[value] if name in SHARED_PARTS else value for name, value in variant.items()}
            for variant in payload["variants"]
        ]


@contextmanager
def understood(manifest: Manifest) -> Iterator[None]:
    """Read a payload whose digest is right but whose form is not known to be; errors become `CacheError`."""
    try:
        yield
    except CacheError:
        raise
    except Exception as error:
        raise CacheError(
            f"the variants of `{manifest.name}` cannot be read: {type(error).__name__}: {error}"
        ) from error


def variant_lines(variant: Mapping[str, Any], manifest: Manifest, layout: Layout) -> Iterator[str]:
    """Yield one variant: inputs, checks of every call, evidence, sources, gears, frame and graphs."""
    for title, lines in (
        ("inputs", input_lines(variant)),
        ("checked on every call", check_lines(variant)),
        ("evidence, checked when it is loaded", evidence_lines(variant)),
        ("sources", source_lines(variant)),
        ("gears", gear_lines(variant, manifest)),
        ("frame", frame_lines(variant, manifest)),
    ):
        indented = [f"    {line}" for line in lines]
        if indented:
            yield from (f"  {title}", *indented)
    for gears, lines in graphs(variant, layout):
        yield f"  graph of {', '.join(gears)}"
        yield from (f"    {line}" for line in lines)


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
    """Yield the traced source files and functions, and the operators that do not belong to torch."""
    for module, digest, codes in variant["sources"]["files"]:
        yield f"{module}: sha256 {digest or 'none: it was edited during the compile'}"
        yield from (f"  {qualname}" for qualname, _ in codes)
    for name, _ in variant["sources"]["functions"]:
        yield f"{name} (has no file)"
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
