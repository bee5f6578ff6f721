"""What the server has done that ranks are forked from: all is imported, and one method traced and loaded.

Nobody else imports this.
"""

from __future__ import annotations

import gc
import os
import tempfile

import torch

from tests.support.rank_actors import Net, geared

with tempfile.TemporaryDirectory() as _folder:
    os.environ |= {"TORCHAIR_CACHE_HOME": _folder, "GEARCACHE_PROGRESS": "0"}
    torch.set_num_threads(1)
    geared(Net())(torch.ones(2, 4))

# Else the garbage collector of each rank touches all that was imported, and so copies it.
gc.collect()
gc.freeze()
