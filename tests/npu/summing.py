"""Serves a method with static kernels, see `main`: `python -m tests.npu.summing ROOT FACTOR MODE ROWS`.

FACTOR stands in the source of the model, which ROOT holds.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

MODEL = """
import torch
class Model(torch.nn.Module):
    def step(self, total, x):
        total.add_(x)
        return (total * FACTOR).sum(-1)
"""


def main() -> None:
    from tests.npu.device import install

    install()
    import gearcache

    root, factor, mode, rows = Path(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
    os.chdir(root)
    if mode == "npugraph_ex":
        config = gearcache.CompilerConfig(strict=True, mode=mode, options={"static_kernel_compile": True})
    else:
        import torchair

        own = torchair.CompilerConfig()
        own.mode = mode
        own.experimental_config.aclgraph._aclnn_static_shape_kernel = True
        config = gearcache.CompilerConfig(strict=True, torchair=own)
    model = model_in(root / f"model_{factor}.py", factor)
    gears = {"x": {0: [2, 4]}, "total": {0: [2, 4]}}
    cached = gearcache.cache_compile(model.step, config=config, gears=gears, cache_dir=root / "cache")
    wrong = []
    for number in rows:
        total, other = torch.zeros(number, 3).to("npu"), torch.zeros(number, 3).to("npu")
        for call in range(2):
            x = torch.randn(number, 3).to("npu")
            found, expected = cached(total, x), model.step(other, x)
            if not torch.allclose(found.cpu(), expected.cpu()) or not torch.allclose(total.cpu(), other.cpu()):
                wrong.append([number, call])
    print(json.dumps({"wrong": wrong, "traces": cached.stats.traces, "path": cached.entry_path}))


def model_in(source: Path, factor: str) -> Any:
    source.write_text(MODEL.replace("FACTOR", factor))
    spec = importlib.util.spec_from_file_location("model", source)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["model"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Model()


if __name__ == "__main__":
    main()
