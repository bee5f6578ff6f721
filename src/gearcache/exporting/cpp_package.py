"""`export`: the gears of a cached method as one file that a C++ program runs without Python.

The file is a `torch.save` of lists, dicts and tensors: the shared objects of the cache, the weights, and a table of
gears. `include/gearcache_package.h` reads and runs it. Nothing is compiled again.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from msgspec import msgpack

from gearcache.attaching.attachment import Attachment
from gearcache.cache.files.atomic import regular_target, write_atomic
from gearcache.errors import CaptureError
from gearcache.ge_cache.aten import decode_tensor
from gearcache.ge_cache.inductor.artifact_names import CONSTANTS, LIBRARY
from gearcache.ge_cache.inductor.targets import NATIVE, TARGETS
from gearcache.guards.evidence.names import a_type
from gearcache.serving.call.method import CachedMethod
from gearcache.serving.miss.compiles import check_torch

if TYPE_CHECKING:
    from gearcache.cache.protocol import Store
    from gearcache.serving.find.activate import ActiveVariant

FORMAT = 2
#: What `gearcache_package.h` makes beside constants: kinds of results, and of how many numbers a view consists.
_FORMS = {(kind, 0) for kind in ("output", "input", "attribute")}
_FORMS |= {(f"{kind}_view", 3) for kind, _ in _FORMS}


def header_folder() -> Path:
    """Return the folder of `gearcache_package.h`, for a compiler's `-I`."""
    return Path(__file__).resolve().parents[1] / "include"


def export(cached: Any, path: str | os.PathLike[str]) -> None:
    """Write every loaded gear of a cached method and its weights to one file, which replaces an old one atomically.

    `cached` is the result of `cache_compile` or `attach`, called or warmed before, with backend `inductor` on a CPU.
    `TypeError` for anything else, `ValueError` without gears or with another backend, `MissingTorchNames` if this torch
    lacks a name that a graph needs, `CaptureError` for a method whose variants differ in more than sizes, as a C++
    program passes only tensors, and for a result that the header cannot make.
    """
    method = cached.method if isinstance(cached, Attachment) else cached
    if not isinstance(method, CachedMethod):
        raise TypeError(f"export takes a cached method or what gearcache.attach returned, not {a_type(cached)}")
    binding = method._binding
    if binding is None or not binding.loaded_variants()[0]:
        check_torch()  # a missing name may be the reason
        raise ValueError("export: the cached method has loaded no gear yet; call it, or `.warm(...)` it, before")
    actives, store = binding.loaded_variants()
    if binding.method.backend.name != "inductor":
        raise ValueError(
            f"export: backend `{binding.method.backend.name}` makes no code that C++ could run; use 'inductor'"
        )
    if any(active.variant.call_checks != actives[0].variant.call_checks for active in actives):
        raise CaptureError(
            binding.method.name,
            "it has variants for different arguments other than tensors, which C++ cannot distinguish",
        )
    data = io.BytesIO()
    torch.save(_package(binding.method.name, actives, store) | _host(binding.method.backend.target), data)
    write_atomic(regular_target(Path(path)), data.getvalue())


def _host(target: str) -> dict[str, Any]:
    """Return the CPU features that the package needs, as the flags of `/proc/cpuinfo`."""
    return {"target": target, "flags": list(TARGETS[target].flags) if target != NATIVE else []}


def _package(name: str, actives: list[ActiveVariant], store: Store) -> dict[str, Any]:
    inputs = [stored_input.access.text for stored_input in actives[0].variant.inputs]
    tensors: dict[str, torch.Tensor] = {}
    libraries: dict[str, torch.Tensor] = {}
    gears: list[dict[str, Any]] = []
    for active in actives:
        names = [stored_input.access.text for stored_input in active.variant.inputs]
        if names != inputs:
            raise CaptureError(name, f"its gears take different tensors: {', '.join(inputs)} and {', '.join(names)}")
        own_gears = {id(gear) for gear in active.variant.gears}
        for graph in active.graphs:
            if id(graph.gear) not in own_gears:  # a padded call, by the code for larger tensors
                continue
            gears.append(_gear(name, active, graph, store, tensors, libraries))
    return {
        "format": FORMAT,
        "method": name,
        "inputs": inputs,
        "tensors": tensors,
        "libraries": libraries,
        "gears": gears,
    }


def _gear(
    name: str,
    active: ActiveVariant,
    graph: Any,
    store: Store,
    tensors: dict[str, torch.Tensor],
    libraries: dict[str, torch.Tensor],
) -> dict[str, Any]:
    gear = graph.gear
    if gear.is_dynamic:
        raise CaptureError(name, "it has a graph with dynamic dims; export takes static gears, give it `gears=`")
    if active.variant.numbers:
        raise CaptureError(
            name, "its graph takes numbers that vary, which only its Python frame has; name them in `constants=`"
        )
    if gear.groups:
        raise CaptureError(name, "it communicates in process groups of a job of Python; such a graph cannot leave it")
    if gear.header.get("extern"):
        raise CaptureError(name, "it calls an operator that has no C interface; such a graph cannot leave Python")
    digest = gear.blobs[LIBRARY]
    if digest not in libraries:
        libraries[digest] = torch.frombuffer(bytearray(store.read_blob(digest)), dtype=torch.uint8)
    constants: dict[str, Any] = {}
    if CONSTANTS in gear.blobs:
        constants = msgpack.decode(store.read_blob(gear.blobs[CONSTANTS]))
    bound: dict[str, str] = {}
    for internal, (kind, owner) in gear.header["bound"].items():
        key = f"attribute {owner}" if kind == "attribute" else f"constant {digest} {owner}"
        value = graph.attributes[owner] if kind == "attribute" else decode_tensor(constants[owner])
        tensors.setdefault(key, value.detach())
        bound[internal] = key
    forms = [gear.results[form[1]] if form[0] == "result" else form for form in gear.results]
    results = [_result(name, form, graph, tensors) for form in forms]
    return {
        "text": gear.text,
        "sizes": [list(dims) for dims in gear.sizes],
        "strides": [list(dims) for dims in gear.strides],
        "dtypes": [torch.empty(0, dtype=stored_input.dtype) for stored_input in active.variant.inputs],
        "library": digest,
        "bound": bound,
        "written": gear.written,
        "results": results,
    }


def _result(name: str, form: list[Any], graph: Any, tensors: dict[str, torch.Tensor]) -> list[Any]:
    """Return a result as the header makes it; nothing in a package is recorded, so a detached view is a view."""
    kind, owner, *view = form
    if view and view[-1] is True:
        view.pop()
    if kind == "constant" and not isinstance(owner, dict):
        return [kind, owner]
    if (kind, len(view)) not in _FORMS:
        cause = "it returns a view of another dtype, or a number that depends on sizes"
        raise CaptureError(name, f"{cause}, which a package cannot make: return a copy (`.clone()`)")
    if kind.startswith("attribute"):
        key = f"attribute {owner}"
        tensors.setdefault(key, graph.attributes[owner].detach())
        owner = key
    return [kind, owner, *view]
