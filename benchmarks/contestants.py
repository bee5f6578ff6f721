"""The contestants, each of which runs a decode step in a fresh process: eager, torch's variants, gearcache.

Every clock starts when the model and the arguments exist and stops when every gear has answered: `whole` starts before
the imports that a contestant needs beside torch (Dynamo and Inductor; gearcache), `seconds` after them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from benchmarks import models


def eager(order: dict[str, Any]) -> dict[str, Any]:
    """Without a compiler."""
    decoder, calls = _model(order)
    return _answers(decoder.decode, calls)


def compiled(order: dict[str, Any]) -> dict[str, Any]:
    """`torch.compile`, one static graph per shape; cold or warm, depending on the disk cache."""
    decoder, calls = _model(order)
    first = time.perf_counter()
    _import_compiler()
    begin = time.perf_counter()
    method = torch.compile(decoder.decode, dynamic=False, fullgraph=True)
    found = _answers(method, calls, begin)
    return {**found, "whole": begin - first + found["seconds"]}


def aot_saved(order: dict[str, Any]) -> dict[str, Any]:
    """Save one compiled function per shape, for `aot_loaded`."""
    decoder, calls = _model(order)
    _import_compiler()
    begin = time.perf_counter()
    with torch.no_grad():
        for number, call in enumerate(calls):
            torch._dynamo.reset()
            # Its default guards on a transformers module cannot be serialized (`ID_MATCH`).
            kept: Any = {"guard_filter_fn": torch.compiler.keep_portable_guards_unsafe}
            compiled: Any = torch.compile(_step, fullgraph=True, dynamic=False, options=kept)
            compiled.aot_compile(((decoder, *call), {})).save_compiled_function(f"{order['files']}{number}")
    return {"seconds": time.perf_counter() - begin}


def aot_loaded(order: dict[str, Any]) -> dict[str, Any]:
    """`torch.compiler.load_compiled_function`, one file per shape, with its portable guards."""
    decoder, calls = _model(order)
    _import_compiler()
    functions = []
    begin = time.perf_counter()
    for number in range(len(calls)):
        with Path(f"{order['files']}{number}").open("rb") as file:
            functions.append(torch.compiler.load_compiled_function(file))
    tokens = []
    with torch.no_grad():
        for function, call in zip(functions, calls, strict=True):
            tokens.append(function(decoder, *call).flatten().tolist())
    return {"seconds": time.perf_counter() - begin, "tokens": tokens}


def ours(order: dict[str, Any]) -> dict[str, Any]:
    """gearcache; cold or relaunched, depending on the cache folder. Reports the parts of a relaunch."""
    decoder, calls = _model(order)
    begin = time.perf_counter()
    import gearcache

    gearcache.cache_compile  # noqa: B018  (names are imported at first use)
    import gearcache.serving.find.evidence
    import gearcache.serving.find.variants

    imported = time.perf_counter() - begin
    evidence = _watch(gearcache.serving.find.evidence.EvidenceCheck, "stale_reason")
    activated = _watch(gearcache.serving.find.variants, "activate")
    begin, worked = time.perf_counter(), time.process_time()
    method = models.cached(
        decoder,
        order["cache_dir"],
        batches=tuple(order["batches"]),
        options=order["options"],
        backend=order["backend"],
    )
    method.warm(*calls[0])
    loaded, worked = time.perf_counter() - begin, time.process_time() - worked
    found = _answers(method, calls, begin)
    stats = method.stats
    if order["relaunch"] and (stats.traces or stats.compiles or stats.misses):
        raise RuntimeError(f"this was to be a relaunch: {stats}, {stats.miss_reasons}")
    split = {
        "whole": imported + found["seconds"],
        "import": imported,
        "load": loaded,
        "load_cpu": worked,
        "evidence": sum(evidence),
    }
    return {**found, **split, "gear": sum(activated) / len(calls), "compiles": stats.compiles}


def background(order: dict[str, Any]) -> dict[str, Any]:
    """gearcache on an empty cache with `on_miss="background"`: calls at the first gear until a graph serves them."""
    decoder, calls = _model(order)
    call = calls[0]

    method = models.cached(
        decoder,
        order["cache_dir"],
        batches=tuple(order["batches"]),
        options=order["options"],
        backend=order["backend"],
        on_miss="background",
    )
    begin = time.perf_counter()
    with torch.no_grad():
        tokens = method(*call).flatten().tolist()
        first = time.perf_counter() - begin
        meanwhile = []
        while not method.stats.loads:
            models.reset(call)
            start = time.perf_counter()
            method(*call)
            meanwhile.append(time.perf_counter() - start)
            # As a server that is busy half of the time: a busier one would leave little time to low-priority processes.
            time.sleep(meanwhile[-1])
        served, alone = time.perf_counter() - begin, []
        for _ in range(60):
            models.reset(call)
            start = time.perf_counter()
            decoder.decode(*call)
            alone.append(time.perf_counter() - start)
            time.sleep(alone[-1])
    # The last call loaded the graphs.
    return {"first": first, "served": served, "meanwhile": meanwhile[:-1], "alone": alone[10:], "tokens": tokens}


def _step(decoder: models.Decoder, ids: Any, positions: Any, mask: Any, cache: Any) -> Any:
    return decoder.decode(ids, positions, mask, cache)


def _model(order: dict[str, Any]) -> tuple[models.Decoder, list[tuple[Any, ...]]]:
    decoder = models.load(order["model"])
    return decoder, [decoder.call(batch) for batch in order["batches"]]


def _import_compiler() -> None:
    import torch._dynamo
    import torch._inductor.compile_fx  # noqa: F401


def _answers(method: Any, calls: list[tuple[Any, ...]], begin: float | None = None) -> dict[str, Any]:
    start = time.perf_counter() if begin is None else begin
    with torch.no_grad():
        each, tokens = models.first_answers(method, calls)
    return {"seconds": time.perf_counter() - start, "each": each, "tokens": tokens}


def _watch(owner: Any, name: str) -> list[float]:
    """Record the seconds of every call of a function of a module or class from now on."""
    seconds: list[float] = []
    function = getattr(owner, name)

    def timed(*arguments: Any, **keywords: Any) -> Any:
        begin = time.perf_counter()
        try:
            return function(*arguments, **keywords)
        finally:
            seconds.append(time.perf_counter() - begin)

    setattr(owner, name, timed)
    return seconds
