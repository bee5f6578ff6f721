"""What one rank of two does: `python -m tests.npu.ranked RANK ROOT serve|export`."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    from tests.npu.device import install

    install()
    import torch

    rank, root, task = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    torch.distributed.init_process_group("gloo", init_method=f"file://{root}/meet-{task}", rank=rank, world_size=2)
    try:
        print(json.dumps(serve(rank, root) if task.startswith("serve") else export(root)))
    finally:
        torch.distributed.destroy_process_group()


def serve(rank: int, root: Path) -> dict[str, object]:
    """Serve a method that differs by rank, from one cache of both ranks."""
    import torch

    import gearcache
    from tests.npu.served import Mlp

    torch.manual_seed(rank)
    model = Mlp().to("npu")
    config = gearcache.CompilerConfig(strict=True)
    cached = gearcache.cache_compile(model.score, config=config, gears={"x": {0: [2, 4]}}, cache_dir=root / "cache")
    x = torch.randn(2, 8).to("npu")
    with torch.no_grad():
        equal = torch.allclose(cached(x).cpu(), model.score(x).cpu(), atol=1e-6)
    return {"equal": equal, "path": cached.entry_path, "traces": cached.stats.traces}


def export(root: Path) -> dict[str, object]:
    """Export a model that communicates, with the config files for ATC."""
    import torch
    import torchair

    import gearcache

    class Reducing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p1 = torch.nn.Parameter(torch.tensor([[1.1, 1.1], [1.1, 1.1]]))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x = x + y + self.p1
            torch.distributed.all_reduce(x)
            return x

    config = torchair.CompilerConfig()
    config.export.experimental.auto_atc_config_generated = True
    config.export.experimental.enable_record_nn_module_stack = True
    x, y = torch.ones(2, 2), torch.ones(2, 2)
    gearcache.dynamo_export(x, y, model=Reducing(), export_path=root / "mp", export_name="mp_rank", config=config)
    torch.distributed.barrier()
    return {"files": sorted(str(path.relative_to(root / "mp")) for path in (root / "mp").rglob("*"))}


if __name__ == "__main__":
    main()
