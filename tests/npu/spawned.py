"""Two ranks that export into one folder, as in torchair's documents: `python -m tests.npu.spawned PORT VALUE FOLDER`.

The program is theirs, but for VALUE, which tells one export from another.
"""

from __future__ import annotations

import os
import sys


def example(rank: int, world_size: int, value: float, folder: str) -> None:
    from tests.npu.device import install

    install()
    import torch
    import torchair
    from torchair import CompilerConfig

    import gearcache.compat.torchair

    gearcache.compat.torchair.install()

    class AllReduceSingleGroup(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p1 = torch.nn.Parameter(torch.tensor([[1.1, 1.1], [1.1, 1.1]]))
            self.p2 = torch.nn.Parameter(torch.full([2, 2], value))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x = x + y + self.p1 + self.p2
            torch.distributed.all_reduce(x)
            return x

    torch.distributed.init_process_group("gloo", rank=rank, world_size=world_size)
    x = torch.ones([2, 2], dtype=torch.int32)
    y = torch.ones([2, 2], dtype=torch.int32)
    config = CompilerConfig()
    config.export.experimental.auto_atc_config_generated = True
    config.export.experimental.enable_record_nn_module_stack = True
    torchair.dynamo_export(
        x,
        y,
        model=AllReduceSingleGroup(),
        dynamic=True,
        export_path=folder,
        export_name="mp_rank",
        config=config,
    )
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    import torch

    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": sys.argv[1]}
    torch.multiprocessing.spawn(example, args=(2, float(sys.argv[2]), sys.argv[3]), nprocs=2, join=True)
