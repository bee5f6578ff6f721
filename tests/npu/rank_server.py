"""What the server has done that ranks are forked from: all is imported, and a method was compiled in both modes.

Nobody else imports this.
"""

from __future__ import annotations

import gc
import tempfile

import torch
import torch._dynamo

from tests.npu.device import install

install()

import torchair  # noqa: E402, F401

import gearcache  # noqa: E402
import tests.npu.parallel  # noqa: E402, F401
from tests.npu import native  # noqa: E402


class Net(torch.nn.Module):
    def doubled(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


with tempfile.TemporaryDirectory() as _folder:
    for mode in ("max-autotune", "npugraph_ex"):
        config = gearcache.CompilerConfig(strict=True, mode=mode)
        gearcache.cache_compile(Net().doubled, config=config, cache_dir=_folder)(torch.ones(2, 4).to("npu"))
torch._dynamo.reset()
native.COUNTS["compile"] = 0

# Else the garbage collector of each rank touches all that was imported, and so copies it.
gc.collect()
gc.freeze()
