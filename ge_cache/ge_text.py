"""The Python text that torchair generates for a GE graph: names in it, its gears, and calling it without a run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from gearcache.errors import CacheError
from gearcache.ge_cache.all_gears import gear_values
from gearcache.ge_cache.backend import CompileJob


def graph_key(code: bytes, fingerprint: Mapping[str, Any]) -> str:
    """Return a name for GE's cache that two different graphs, options or versions never share."""
    digest = hashlib.sha256(repr(sorted(fingerprint.items())).encode())
    digest.update(code)
    return f"gearcache-{digest.hexdigest()}"


def missing_group(code: bytes, error: AssertionError) -> CacheError:
    """Return the error for generated text that did not find a process group of the job that it was made in."""
    found = re.search(rb"used_process_group = (.+)", code)
    groups = found[1].decode(errors="replace").strip() if found else "unknown"
    return CacheError(
        f"its graph communicates in process groups (name: (ranks, tag)) {groups}, and one of them does not exist here; "
        "make the same groups with torch.distributed.new_group before the first call "
        f"({' '.join(str(part).strip() for part in error.args)})"
    )


class _Compiled(Exception):
    """GE has compiled the graph; nothing was run."""


class CompileOnly:
    """A GE graph that is loaded and compiled and, in place of a run, ends the kernel."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    def run(self, *arguments: Any) -> None:
        raise _Compiled


def compile_only(kernel: Callable[..., Any], arguments: list[Any]) -> None:
    """Call a kernel whose GE graph is a `CompileOnly`: GE loads and compiles its graph."""
    try:
        kernel(*arguments)
    except _Compiled:
        return
    raise RuntimeError("torchair's kernel ended without a run of the GE graph")


def gear_lists(job: CompileJob) -> list[dict[int, list[int]]]:
    """Return for each input the dims that change and their size at every gear; empty without gears in one graph."""
    symbols = job.graph.get("symbols") or {}
    if "gears" not in symbols:
        return []
    rows = [gear_values(symbols, row) for row in symbols["sizes"]]
    return [{dim: values for dim, values in enumerate(row) if values is not None} for row in rows]


def ordered_gears(text: str, gears: list[dict[int, list[int]]]) -> str:
    """Put the entries of `ge.dynamicDims`, which torchair leaves in hash order, into the order of the gears."""
    found = re.search(r'^local_compile_options\["ge\.dynamicDims"\] = "(.*)"$', text, re.MULTILINE)
    shapes = re.search(r'^local_compile_options\["ge\.inputShape"\] = "(.*)"$', text, re.MULTILINE)
    if found is None or shapes is None:
        raise RuntimeError("torchair made no ge.dynamicDims for a graph with gears")
    columns = []
    for item in shapes[1].split(";"):
        name, _, _ = item.partition(":")
        position = int(name.removeprefix("arg").partition("_")[0])
        columns += [values for _, values in sorted(gears[position].items())] if position < len(gears) else []
    wanted = list(dict.fromkeys(",".join(map(str, entry)) for entry in zip(*columns, strict=True)))
    if sorted(wanted) != sorted(found[1].split(";")):
        raise RuntimeError(f"torchair formed the gears {found[1]}, wanted were {';'.join(wanted)}")
    return f"{text[: found.start(1)]}{';'.join(wanted)}{text[found.end(1) :]}"


def graph_name(job: CompileJob) -> str:
    """A name that is the same in every process; it is part of the generated text."""
    digest = hashlib.sha256(f"{job.method} {job.gear}".encode()).hexdigest()
    return f"gearcache_{digest[:16]}"
