"""Models whose ranks do the same, or what looks like it: tensor-parallel decode, and methods with a rank in them."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import Tensor, nn

WIDTH = 8


class ParallelDecoder(nn.Module):
    """Attention over a cache and a parallel block, whose heads and columns are split over the ranks of a group."""

    def __init__(self, group: Any, rank: int, world: int) -> None:
        super().__init__()
        self.group = group
        generator = torch.Generator().manual_seed(rank)  # each rank has its own share of the weights

        def share(*sizes: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*sizes, generator=generator) / WIDTH)

        self.query, self.out = share(WIDTH, WIDTH // world), share(WIDTH // world, WIDTH)
        self.up, self.down = share(WIDTH, 4 * WIDTH // world), share(4 * WIDTH // world, WIDTH)

    def decode(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        found = torch.softmax((x @ self.query) @ keys.transpose(-1, -2), -1) @ values @ self.out
        dist.all_reduce(found, group=self.group)
        x = x + found
        found = torch.relu(x @ self.up) @ self.down
        dist.all_reduce(found, group=self.group)
        return x + found, collectives.all_gather_tensor(found[:, :1].contiguous(), 0, self.group)


class RankBound(nn.Module):
    """Methods of which each rank has another trace, however it comes to know its rank, beside some that are shared."""

    def __init__(self, rank: int, world: int, group: Any, across: Any, again: Any) -> None:
        super().__init__()
        self.rank, self.world, self.group, self.across = rank, world, group, across
        self.first, self.second = group, group if rank < 2 else again
        self.group_name = group.group_name
        self.scale = nn.Parameter(torch.tensor(float(rank + 1)))

    def reduced(self, x: Tensor) -> Tensor:
        count = torch.tensor(2.0)  # its value is known, and that of the sum is not
        dist.all_reduce(count)
        found = x * self.scale
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return found * count

    def asked(self, x: Tensor) -> Tensor:
        return x * dist.get_rank() + 1

    def asked_of_group(self, x: Tensor) -> Tensor:
        return x * dist.get_rank(self.group) + 1

    def of_group_object(self, x: Tensor) -> Tensor:
        return x * self.group.rank() + 1

    def constant(self, x: Tensor) -> Tensor:
        return x + self.rank

    def new_tensor(self, x: Tensor) -> Tensor:
        return x + torch.tensor([self.rank, 1.0, 2.0, 3.0])

    def branch(self, x: Tensor) -> Tensor:
        return x + 1 if self.rank == 0 else x * 3

    def grid(self, x: Tensor) -> Tensor:
        return collectives.all_gather_tensor(collectives.all_reduce(x * self.scale, "sum", self.group), 0, self.across)

    def one_or_two_groups(self, x: Tensor) -> Tensor:
        return collectives.all_reduce(collectives.all_reduce(x * self.scale, "sum", self.first), "sum", self.second)

    def named_group(self, x: Tensor) -> Tensor:
        return collectives.all_reduce(x * self.scale, "sum", self.group_name)


class Uneven(nn.Module):
    """A share of the weights that is of another size on each rank, and a part that one rank alone has."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.uneven = nn.Parameter(torch.ones(2 + rank))
        self.last = nn.Linear(4, 4) if rank == 0 else nn.Identity()

    def uneven_weight(self, x: Tensor) -> Tensor:
        return self.last(x * self.uneven.sum())  # type: ignore[no-any-return]


#: What the two ranks of a pair share, and no others.
PAIRED = ("one_or_two_groups", "named_group")
#: What ranks of equal place in their groups share.
PLACED = ("asked_of_group", "of_group_object")
#: What no other rank shares.
BOUND = ("asked", "constant", "new_tensor", "branch", "uneven_weight")
