"""A decode step in tensor parallel, and what one rank of a job does with it.

`python -m tests.npu.parallel RANK WORLD ROOT TASK MODE GROUPS`, where GROUPS is a JSON list: the ranks of each group
that the job makes, in order; the last one that holds the rank is its group for tensor parallel. Words of TASK: `own`
keeps GE's files, `named` gives the model the name `"1"` instead of a group, `fails` reports the error of the first
call, `static` turns static kernels on.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import Tensor, nn

from tests.npu.decoders import Size

SIZE = Size()


class ParallelDecoder(nn.Module):
    """What it has seen, a sum over all ranks, and a head whose vocabulary is split over the ranks."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group
        self.embed = nn.Embedding(SIZE.vocabulary, SIZE.hidden)
        self.down = nn.Linear(SIZE.hidden, SIZE.hidden, bias=False)
        self.head = nn.Linear(SIZE.hidden, SIZE.vocabulary, bias=False)

    def decode(self, ids: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        seen.add_(self.embed(ids))
        x = self.down(seen)
        dist.all_reduce(x, group=self.group)
        logits = collectives.all_gather_tensor(self.head(x), 0, self.group)
        share = collectives.reduce_scatter_tensor(x.squeeze(1).sum(-1), "sum", 0, self.group)
        return logits, share


class Named(nn.Module):
    """Knows its group by name only, as a config file would give it."""

    def __init__(self, group: str) -> None:
        super().__init__()
        self.group = group

    def decode(self, x: Tensor) -> tuple[Tensor]:
        return (collectives.all_reduce(x * 2, "sum", self.group) + 1,)


def main() -> None:
    from tests.npu.device import install
    from tests.npu.hccl import install_hccl

    install()
    install_hccl()
    rank, world, root, task, mode = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], sys.argv[5]
    meeting = f"file://{root}/meet-{task}-{mode}"
    dist.init_process_group("hccl", init_method=meeting, rank=rank, world_size=world)
    try:
        groups = [dist.new_group(ranks) for ranks in json.loads(sys.argv[6])]
        mine = [group for group, ranks in zip(groups, json.loads(sys.argv[6]), strict=True) if rank in ranks]
        report = serve(root, mode, mine[-1] if mine else dist.group.WORLD, task)
        print(json.dumps(report))
    finally:
        dist.destroy_process_group()


def serve(root: Path, mode: str, group: Any, task: str) -> dict[str, Any]:
    """Decode with a cached method and without; one report."""
    import gearcache
    from tests.npu import native

    torch.manual_seed(0)
    options = {"static_kernel_compile": True} if "static" in task else {}
    config = gearcache.CompilerConfig(strict=True, mode=mode, options=options)
    model: Any = Named("1") if "named" in task else ParallelDecoder(group)
    model = model.to("npu").eval()
    cached = gearcache.cache_compile(
        model.decode, config=config, cache_dir=root / "cache", dynamic=False, ge_cache="own" in task
    )
    ours, theirs = ([] if "named" in task else [torch.zeros(4, 1, SIZE.hidden).to("npu")] for _ in range(2))
    wrong: list[str] = []
    for step in range(2):
        torch.manual_seed(step)  # all ranks of a tensor parallel group see the same tokens
        ids = torch.randint(0, SIZE.vocabulary, (4, 1)).to("npu")
        passed = (ids.float(),) if "named" in task else (ids,)
        try:
            found = cached(*passed, *ours)
        except Exception as error:
            if "fails" in task:
                return {"error": f"{type(error).__name__}: {error}", "traces": cached.stats.traces}
            raise
        with torch.no_grad():
            expected = model.decode(*passed, *theirs)
        for number, (mine, other) in enumerate(zip((*found, *ours), (*expected, *theirs), strict=True)):
            if not torch.allclose(mine.cpu(), other.cpu(), atol=1e-5):
                wrong.append(f"{number} at step {step}")
    counts = {name: native.COUNTS[name] for name in ("compile", "cached")}
    return {"wrong": wrong, "traces": cached.stats.traces, "path": cached.entry_path, **counts}


if __name__ == "__main__":
    main()
