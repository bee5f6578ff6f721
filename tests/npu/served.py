"""Scenarios for the torchair backend; see `tests/support/scenarios.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import gearcache
from tests.npu.decoders import Decoder, Size
from tests.support.scenarios import Run

NPU = "npu"


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 4)

    def score(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.silu(self.up(x))).softmax(-1)

    def step(self, x: Tensor, seen: Tensor) -> Tensor:
        """Writes an input, as a decode step writes its caches."""
        return self.score(seen.add_(x))


def _cache(of: Run, method: Any, *, ge_cache: bool = False, gears: Any = None, **options: Any) -> Any:
    config = gearcache.CompilerConfig(strict=True, **options)
    return of.watch(gearcache.cache_compile(method, config=config, gears=gears, ge_cache=ge_cache))


def a_llama_decodes_in_float16_with_ges_own_cache(run: Run) -> None:
    run.tolerance = 4e-3
    model = Decoder(Size(layers=1)).half()
    model.frequencies = model.frequencies.float()
    model = model.to(NPU).eval()
    cached = _cache(run, model.decode, gears={"ids": {0: [1, 4]}}, ge_cache=True)
    for batch in (4, 1):
        ours, theirs = model.caches(batch, NPU, torch.float16), model.caches(batch, NPU, torch.float16)
        for step in range(2):
            ids = torch.randint(0, model.size.vocabulary, (batch, 1)).to(NPU)
            position = torch.full((batch,), step).to(NPU)
            with torch.no_grad():
                expected = model.decode(ids, position, theirs)
            label = f"batch {batch}, step {step}"
            run.check(f"{label}, logits", cached(ids, position, ours).float().cpu(), expected.float().cpu())
            for name, mine, other in zip(("keys", "values"), ours[0], theirs[0], strict=True):
                run.check(f"{label}, {name}", mine.float().cpu(), other.float().cpu())


def _step(of: Run, cached: Any, model: Mlp, batches: tuple[int, ...]) -> None:
    for call, batch in enumerate(batches):
        ours, theirs = torch.zeros(batch, 8).to(NPU), torch.zeros(batch, 8).to(NPU)
        for step in range(2):
            x = torch.randn(batch, 8).to(NPU)
            with torch.no_grad():
                expected = model.step(x, theirs)
            label = f"call {call}, batch {batch}, step {step}"
            of.check(label, cached(x, ours).cpu(), expected.cpu())
            of.check(f"{label}, seen", ours.cpu(), theirs.cpu())


def ge_switches_between_the_gears(run: Run) -> None:
    model = Mlp().to(NPU)
    cached = _cache(run, model.step, gears={"x": {0: [2, 4]}}, gear_execution="ge")
    _step(run, cached, model, (2, 4, 2))


class Pair(nn.Module):
    def both(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2 + 1, y @ y.transpose(0, 1)


def gears_as_a_product(run: Run) -> None:
    config = gearcache.CompilerConfig(strict=True, gear_execution="ge")
    config.inference_config.dynamic_gears_merge_policy = "product"
    model = Pair()
    cached = run.watch(gearcache.cache_compile(model.both, config=config))
    for sizes in ((2, 3), (4, 5), (2, 5), (4, 3)):
        x, y = torch.randn(sizes[0], 4).to(NPU), torch.randn(6, sizes[1]).to(NPU)
        gearcache.set_dim_gears(x, {0: [2, 4]})
        gearcache.set_dim_gears(y, {1: [3, 5]})
        expected = model.both(x, y)
        for index, found in enumerate(cached(x, y)):
            run.check(f"{sizes} {index}", found.cpu(), expected[index].cpu())


class Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4, 3))

    def strided(self, target: Tensor, x: Tensor) -> Tensor:
        """Writes an input that is not contiguous."""
        target.mul_(0.5).add_(x)
        return target.sum(-1)

    def buffered(self, x: Tensor) -> Tensor:
        """Writes a buffer of the module."""
        self.seen.add_(x)
        return self.seen * 2

    def indexed(self, table: Tensor, rows: Tensor, x: Tensor) -> Tensor:
        """Writes with operators that torchair does not convert."""
        table.index_copy_(0, rows, x)
        table[rows, 1] = 7.0
        return table.amax(-1) + table.index_put((rows,), x, accumulate=True).sum()

    def attends(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v)


def writes_in_every_form(run: Run) -> None:
    model, twin = Steps().to(NPU), Steps().to(NPU)
    strided, buffered = _cache(run, model.strided), _cache(run, model.buffered)
    indexed, attends = _cache(run, model.indexed), _cache(run, model.attends)
    for step in range(2):
        x = torch.randn(3, 4).to(NPU)
        base = torch.randn(4, 3).to(NPU)
        other = base.clone()
        found, expected = strided(base.t(), x), twin.strided(other.t(), x)
        run.check(f"strided {step}", found.cpu(), expected.cpu())
        run.check(f"strided target {step}", base.cpu(), other.cpu())
        x = torch.randn(4, 3).to(NPU)
        run.check(f"buffered {step}", buffered(x).cpu(), twin.buffered(x).cpu())
        run.check(f"buffer {step}", model.seen.cpu(), twin.seen.cpu())
        rows, table = torch.tensor([2, 0]).to(NPU), torch.randn(5, 3).to(NPU)
        other, x = table.clone(), torch.randn(2, 3).to(NPU)
        run.check(f"indexed {step}", indexed(table, rows, x).cpu(), twin.indexed(other, rows, x).cpu())
        run.check(f"table {step}", table.cpu(), other.cpu())
        q, k, v = (torch.randn(2, 2, 4, 8).to(NPU) for _ in range(3))
        run.check(f"attends {step}", attends(q, k, v).cpu(), twin.attends(q, k, v).cpu())


def npu_graphs_are_captured_once_per_gear_and_process(run: Run) -> None:
    mlp = Mlp().to(NPU)
    _step(run, _cache(run, mlp.step, gears={"x": {0: [2, 4]}}, mode="npugraph_ex"), mlp, (2, 4, 2))
    score = _cache(run, mlp.score, gears={"x": {0: [2, 4]}}, mode="npugraph_ex")
    kept = []
    for call, rows in enumerate((2, 4, 2)):
        x = torch.randn(rows, 8).to(NPU)
        with torch.no_grad():
            kept.append((score(x), mlp.score(x)))
            run.check(f"score {call}", kept[-1][0].cpu(), kept[-1][1].cpu())
            mlp.up.weight.add_(0.5)
    for call, (found, expected) in enumerate(kept):
        run.check(f"score {call}, kept over later calls", found.cpu(), expected.cpu())
