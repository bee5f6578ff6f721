"""What a server's second request brings: another position, length, batch, or a cache of another size."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.support.scenarios import Run


class Decoder(nn.Module):
    def __init__(self, blocks: int = 100) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)
        self.keys = [torch.zeros(2, 64, 8)]
        self.pages = [torch.zeros(blocks, 4, 8)]

    def decode(self, x: Tensor, start_pos: int) -> Tensor:
        keys = self.keys[0]
        keys[:, start_pos : start_pos + x.size(1)] = self.project(x)
        met = keys[:, : start_pos + x.size(1)]
        return torch.softmax(x @ met.transpose(1, 2), -1) @ met

    def paged(self, x: Tensor, page: int) -> Tensor:
        self.pages[0][page] = x
        return self.pages[0].sum(0) + page


def _twins(blocks: int = 100) -> tuple[Decoder, Decoder]:
    made = []
    for _ in range(2):
        with torch.random.fork_rng():
            torch.manual_seed(1)
            made.append(Decoder(blocks).eval())
    return made[0], made[1]


def a_decode_step(run: Run) -> None:
    ours, theirs = _twins()
    cached = run.cache(ours.decode)
    for step in range(5):
        run.compare(f"step {step}", cached, theirs.decode, torch.randn(2, 1, 8), step)
        run.check(f"keys {step}", ours.keys[0], theirs.keys[0])
    run.check("few graphs", cached.stats.traces <= 2, True)


def a_cache_of_another_size(run: Run) -> None:
    for blocks in (100, 103):
        ours, theirs = _twins(blocks)
        cached = run.cache(ours.paged, dynamic=None)
        for page in (3, 0, 7, 60):
            run.compare(f"{blocks} {page}", cached, theirs.paged, torch.randn(4, 8), page)
            run.check(f"pages {blocks} {page}", ours.pages[0], theirs.pages[0])
        # A static one, one for page 0 in compiled code, one for all others.
        run.check(f"few graphs {blocks}", cached.stats.traces <= 3, True)
