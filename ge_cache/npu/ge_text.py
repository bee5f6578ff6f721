"""The Python text that torchair generates for a GE graph: names in it, and a call that only compiles."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gearcache.errors import CacheError


def graph_key(parts: Sequence[bytes], fingerprint: Mapping[str, Any]) -> str:
    """Return a name for GE's cache that two different graphs, options or versions never share."""
    digest = hashlib.sha256(repr(sorted(fingerprint.items())).encode())
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return f"gearcache-{digest.hexdigest()}"


def missing_group(code: bytes, error: AssertionError) -> CacheError:
    """Return the error for generated text that found no process group of the job that it was made in."""
    match = re.search(rb"used_process_group = (.+)", code)
    groups = match[1].decode(errors="replace").strip() if match else "unknown"
    return CacheError(
        f"its graph communicates in process groups (name: (ranks, tag)) {groups}, and one of them does not exist here; "
        "make the same groups with torch.distributed.new_group before the first call "
        f"({' '.join(str(part).strip() for part in error.args)})"
    )


class _Compiled(Exception):
    """GE has compiled the graph; nothing was run."""


class CompileOnly:
    """A GE graph that is loaded and compiled and then, instead of running, ends the kernel."""

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
