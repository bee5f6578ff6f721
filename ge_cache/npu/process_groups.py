"""Process groups in a graph, and whether their names denote the same ranks in this process.

Group names are counted per process in the order in which groups are made: a job that makes other groups first has
another group under the same name. HCCL's own names are valid in one process only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from gearcache.errors import CacheError
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.process_groups import named_groups


def groups_of(graph: fx.Graph) -> dict[str, list[int]]:
    """Return name -> ranks of the groups of a graph; `CacheError` for one that does not exist in this process."""
    ranks_by_name = named_groups(graph)
    for name, ranks in ranks_by_name.items():
        if ranks is None:
            raise CacheError(f"its graph communicates in a process group {name!r}, which has no name of its own")
    return {name: ranks for name, ranks in ranks_by_name.items() if ranks is not None}


def check_groups(method: str, groups: Mapping[str, Sequence[int]]) -> None:
    """Raise `CacheError` for a group that does not exist in this process, or whose name denotes other ranks."""
    for name, ranks in groups.items():
        ranks_here = private_core.process_group_ranks(name)
        if ranks_here != list(ranks):
            difference = f"is of the ranks {ranks_here} here" if ranks_here is not None else "does not exist here"
            raise CacheError(
                f"the graph of `{method}` communicates in the process group {name!r} of the ranks {list(ranks)}, which "
                f"{difference}; make the same groups in the same order with torch.distributed before the first call"
            )


def communicators(model: Any) -> list[str]:
    """Return HCCL's names of the groups in a GE graph, as in this process."""
    return sorted({op.attr["group"].s.decode() for op in model.op if "group" in op.attr})


def names_survive(torch_npu: Any) -> bool:
    """Return whether this CANN reuses a communicator's name from another process, so that GE may keep it."""
    supports = getattr(getattr(torch_npu, "distributed", None), "_is_support_hccl_comm_name", None)
    return torch.distributed.is_available() and supports is not None and bool(supports())
