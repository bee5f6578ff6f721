"""A rank that exports into one folder with others: `python -m tests.npu.exporting RANK FOLDER VALUE`.

The program is that of torchair's documents, but for VALUE, which tells one export from another.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    from tests.npu.device import install

    install()
    import torch
    import torchair
    from torchair import CompilerConfig

    import gearcache.compat.torchair

    gearcache.compat.torchair.install()
    rank, folder, value = int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])

    class AllReduceSingleGroup(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p1 = torch.nn.Parameter(torch.tensor([[1.1, 1.1], [1.1, 1.1]]))
            self.p2 = torch.nn.Parameter(torch.full([2, 2], value))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x = x + y + self.p1 + self.p2
            torch.distributed.all_reduce(x)
            return x

    meeting = f"file://{folder.parent}/meet-{value}"
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
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
        export_path=str(folder),
        export_name="mp_rank",
        config=config,
        overwrite=True,
    )
    torch.distributed.destroy_process_group()
    print("{}")


if __name__ == "__main__":
    main()
