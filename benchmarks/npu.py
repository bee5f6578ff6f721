"""Compares torchair's own `cache_compile` with ours on the emulated NPU: `python -m benchmarks.npu [LAYERS]`.

Needs the environment of `make test-npu`. Only the Python around GE is compared: GE itself is emulated, and while calls
are timed its graphs return at once. One static shape, since torchair's cache holds one.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BATCH, CALLS, ROUNDS = 2, 2000, 11


def main(layers: int = 4) -> None:
    """Run the contestants cold and relaunched, in separate processes, and print the table."""
    runs: dict[tuple[str, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        # In turn, so that a host that is slower for a while affects both.
        for phase, rounds in (("cold", 1), ("relaunched", ROUNDS), ("imported", ROUNDS)):
            for name in ("torchair", "gearcache") * rounds:
                runs.setdefault((name, phase), []).append(_process(name, Path(folder) / name, layers, phase))
    rows = {
        key: {value: statistics.median(run[value] for run in found) for value in found[0]}
        for key, found in runs.items()
    }
    print(f"decoder of {layers} layers, batch {BATCH}, emulated GE; medians of {ROUNDS} relaunches")
    cold, again = (rows["gearcache", phase]["first"] for phase in ("cold", "relaunched"))
    print(
        f"gearcache: cold (trace, convert, save, call) {cold:.2f} s, relaunch {again * 1e3:.1f} ms: {cold / again:.0f}x"
    )
    for label, phase, key, factor, unit in (
        ("cold: trace + convert + save + first call", "cold", "first", 1.0, "s"),
        ("relaunch: imports + load + first call", "relaunched", "whole", 1e3, "ms"),
        ("of which imports before the first call", "relaunched", "imports", 1e3, "ms"),
        ("of which load + first call", "relaunched", "first", 1e3, "ms"),
        ("the same after `import torchair`", "imported", "first", 1e3, "ms"),
        ("one call, GE returns at once", "relaunched", "call", 1e6, "us"),
    ):
        theirs, ours = (rows[name, phase][key] * factor for name in ("torchair", "gearcache"))
        print(f"{label:<46} torchair {theirs:9.1f} {unit}   gearcache {ours:9.1f} {unit}   {theirs / ours:5.2f}x")


def _process(name: str, root: Path, layers: int, phase: str) -> dict[str, float]:
    environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-m", "benchmarks.npu", name, str(root), str(layers), phase]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def _contestant(name: str, root: str, layers: int, phase: str) -> None:
    from tests.npu.device import install

    install()
    import torch

    from tests.npu import native
    from tests.npu.decoders import Decoder, Size

    start = time.perf_counter()
    if name == "torchair" or phase == "imported":
        import torchair
    if name == "gearcache":
        import gearcache
        import gearcache.ge_cache.npu.backend
    imports = time.perf_counter() - start

    torch.manual_seed(0)
    model = Decoder(Size(layers=layers)).to("npu").eval()
    caches = model.caches(BATCH, "npu", torch.float32)
    ids, position = torch.zeros(BATCH, 1, dtype=torch.long).to("npu"), torch.zeros(BATCH, dtype=torch.long).to("npu")
    if name == "torchair":
        compiled: Callable[..., Any] = torchair.inference.cache_compile(
            model.decode, config=torchair.CompilerConfig(), dynamic=False, cache_dir=root
        )
    else:
        config = gearcache.CompilerConfig(backend="torchair", strict=True)
        compiled = gearcache.cache_compile(model.decode, config=config, dynamic=False, cache_dir=root)
    start = time.perf_counter()
    first = compiled(ids, position, caches)
    seconds = time.perf_counter() - start
    with torch.no_grad():
        expected = model.decode(ids, position, model.caches(BATCH, "npu", torch.float32))
    assert torch.allclose(first.cpu(), expected.cpu(), atol=1e-5)
    answers: dict[int, list[torch.Tensor]] = {}
    run = native.TorchNpuGraphBase.run

    def at_once(self: Any, arguments: Any) -> list[torch.Tensor]:
        if id(self) not in answers:
            answers[id(self)] = run(self, arguments)
        return answers[id(self)]

    native.TorchNpuGraphBase.run = at_once  # type: ignore[method-assign]
    for _ in range(100):
        compiled(ids, position, caches)
    best = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(CALLS // 5):
            compiled(ids, position, caches)
        best.append((time.perf_counter() - start) / (CALLS // 5))
    print(json.dumps({"first": seconds, "call": min(best), "imports": imports, "whole": imports + seconds}))


if __name__ == "__main__":
    if len(sys.argv) == 5:
        _contestant(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        main(*map(int, sys.argv[1:]))
