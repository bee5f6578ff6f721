"""What one rank of two does: `python -m tests.npu.ranked RANK ROOT TASK`, where TASK names the meeting."""

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
        print(json.dumps(serve(rank, root)))
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


if __name__ == "__main__":
    main()
