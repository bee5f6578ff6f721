"""Methods whose calls between gears are padded."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.scenarios import Run, traced


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.table = nn.Embedding(16, 4)
        self.norm = nn.LayerNorm(4)
        self.register_buffer("seen", torch.zeros(()))

    def plain(self, x: Tensor) -> Tensor:
        return self.linear(x) + 1

    def rows(self, x: Tensor) -> tuple[Tensor, int]:
        return self.linear(x) + 1, x.size(0) * 2

    def attention(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.norm(self.table(ids))
        q = self.linear(x).view(ids.size(0), -1, 2, 2).transpose(1, 2)
        out = functional.scaled_dot_product_attention(q, q, q, mask[:, None, None, :])
        hidden = out.transpose(1, 2).reshape(ids.size(0), ids.size(1), 4)
        return hidden[torch.arange(ids.size(0)), -1].softmax(-1)

    def causal(self, ids: Tensor) -> Tensor:
        q = self.linear(self.table(ids)).unsqueeze(1)
        return functional.scaled_dot_product_attention(q, q, q, is_causal=True).squeeze(1)

    def decode(self, ids: Tensor, position: Tensor, cache: SimpleNamespace) -> Tensor:
        """One step with a cache that is written in place, a returned input, and a view of an output."""
        x = self.table(ids)
        cache.keys.index_copy_(1, position, x)
        scores = torch.bmm(x, cache.keys.transpose(1, 2)).softmax(-1)
        return torch.bmm(scores, cache.keys).flatten(1)

    def aliases(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.linear(x)
        x.mul_(2)
        return x, y, y[:, 1:]

    def one_is_special(self, x: Tensor) -> Tensor:
        if x.size(0) == 1:
            return x * 100
        return x * 2

    def folded(self, x: Tensor) -> Tensor:
        return (x.reshape(-1, 2) * 3).view(x.size(0), -1)

    def columns(self, x: Tensor) -> Tensor:
        return self.table.weight[:4].t() @ x


@traced(2)
def rows_are_padded_and_cut(run: Run) -> None:
    net = Net()
    cached = run.pad(net.rows, {"x": {0: [2, 4, 8]}}, {"x": 0.0})
    for size in (3, 4, 7, 2, 5, 3):
        run.compare(f"{size}, {len(run.checks)}", cached, net.rows, torch.randn(size, 4))
    run.check("gears", sorted(cached.stats.gears.values()), [0, 1, 1, 1, 1, 2])


@traced(2)
def attention_over_a_padded_batch(run: Run) -> None:
    net = Net()
    cached = run.pad(net.attention, {"ids": {0: [2, 4]}, "mask": {0: [2, 4]}}, {"ids": 0, "mask": True})
    for size in (3, 1, 4):
        ids, mask = torch.randint(0, 16, (size, 5)), torch.rand(size, 5) > 0.3
        mask[:, 0] = True
        run.compare(f"{size}", cached, net.attention, ids, mask)


@traced(2)
def a_cache_that_is_written_in_place(run: Run) -> None:
    net = Net()
    gears = {"ids": {0: [2, 4]}, "cache.keys": {0: [2, 4]}}
    cached = run.pad(net.decode, gears, {"ids": 0, "cache.keys": 0.0})
    for size in (3, 4, 1):
        cache = SimpleNamespace(keys=torch.randn(size, 6, 4))
        for position in (0, 3):
            ids = torch.randint(0, 16, (size, 1))
            run.compare(f"{size} {position}", cached, net.decode, ids, torch.tensor([position]), cache)


@traced(2)
def results_that_are_inputs_or_views(run: Run) -> None:
    net = Net()
    cached = run.pad(net.aliases, {"x": {0: [4]}}, {"x": 7.0})
    for size in (3, 4):
        x = torch.randn(size, 4)
        first, second, third = run.compare(f"{size}", cached, net.aliases, x)
        run.check(f"{size}: the input itself", first is x, True)
        run.check(f"{size}: a view", third.data_ptr() == second[:, 1:].data_ptr(), True)
        run.check(f"{size}: strides", [first.stride(), second.stride(), third.stride()], [(4, 1)] * 3)


@traced(4)
def two_dims_at_once(run: Run) -> None:
    net = Net()
    gears = {"ids": {0: [2, 4], 1: [4, 8]}}
    cached = run.pad(net.causal, gears, {"ids": 0}, policy="product")
    for batch, length in ((2, 4), (3, 5), (1, 7), (4, 1), (1, 1), (3, 8)):
        run.compare(f"{batch} {length}", cached, net.causal, torch.randint(0, 16, (batch, length)))


@traced(2)
def a_padded_column_is_copied_to_eager_strides(run: Run) -> None:
    net = Net()
    cached = run.pad(net.columns, {"x": {1: [4, 8]}}, {"x": 0.0})
    for size in (3, 8):
        found = run.compare(f"{size}", cached, net.columns, torch.randn(4, size))
        run.check(f"{size}: contiguous", found.is_contiguous(), True)
