"""Programs written for torchair run under `install()` as they are printed, but for typos of their documents.

The first are those of torchair's documents on gears, marks and cached compiles; then the part of SGLang's
`NpuGraphRunner` that sets gears. Both are in one process: `torch.compile` with torchair's backend, and our cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torchair
from torch import Tensor, nn
from torchair.configs.compiler_config import CompilerConfig

from gearcache.compat import torchair as compat
from tests.npu import native


@pytest.fixture(autouse=True)
def installed(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(nn.Module, "npu", lambda self: self.to("npu"), raising=False)
    torch.compiler.reset()
    compat.install()
    yield
    compat.uninstall()
    torch.compiler.reset()


def gears_since(before: int) -> list[list[str]]:
    """What GE was told of gears, a list per graph that it was given since `before` graphs."""
    return [sorted(options.get("ge.dynamicDims", "").split(";")) for options in native.OPTIONS[before:]]


class Add(nn.Module):
    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return x1 + x2


def test_the_page_on_gears() -> None:
    before = len(native.OPTIONS)
    config = CompilerConfig()
    npu_backend = torchair.get_npu_backend(compiler_config=config)
    model: Any = Add().npu()
    model = torch.compile(model, fullgraph=True, backend=npu_backend)
    npu_input0 = torch.ones([2, 2]).npu()
    npu_input1 = torch.ones([2, 2]).npu()
    torchair.inference.set_dim_gears(npu_input0, {0: [2, 4]})
    torchair.inference.set_dim_gears(npu_input1, {0: [2, 4]})
    assert torch.equal(model(npu_input0, npu_input1).cpu(), torch.full((2, 2), 2.0))
    npu_input0 = torch.ones([4, 2]).npu()
    npu_input1 = torch.ones([4, 2]).npu()
    assert torch.equal(model(npu_input0, npu_input1).cpu(), torch.full((4, 2), 2.0))
    assert gears_since(before) == [["2,2", "4,4"]], "it compiled again for a gear"


def test_the_guide_with_a_product_of_gears() -> None:
    before = len(native.OPTIONS)
    input1 = torch.ones(2, 2).npu()
    input2 = torch.ones(2, 2).npu()
    config = torchair.CompilerConfig()
    config.inference_config.dynamic_gears_merge_policy = "product"
    model: Any = torch.compile(Add().npu(), fullgraph=True, backend=torchair.get_npu_backend(compiler_config=config))
    torchair.inference.set_dim_gears(input1, dim_gears={0: [2, 4]})
    torchair.inference.set_dim_gears(input2, dim_gears={0: [2, 4]})
    model(input1, input2)
    assert gears_since(before) == [["2,2", "2,4", "4,2", "4,4"]]


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.logits = nn.Linear(8, 8), nn.Linear(8, 16)
        self.kv_cache = [{"attn": {name: torch.zeros(2, 4, 8).npu() for name in ("key", "value")}} for _ in range(2)]

    def decode(self, x: Tensor, positional_embedding: Tensor, kv_cache: Any, actual_seq_len: list[int]) -> Tensor:
        x = x + positional_embedding
        for layer in kv_cache:
            scores = self.query(x) @ layer["attn"]["key"].transpose(1, 2)
            x = x + scores.softmax(-1) @ layer["attn"]["value"] * actual_seq_len[0]
        return self.logits(x)


def test_the_guide_with_static_marks() -> None:
    decoder: Any = Decoder().npu()
    eager = decoder.decode
    backend = torchair.get_npu_backend(compiler_config=torchair.CompilerConfig())
    decoder.decode = torch.compile(decoder.decode, dynamic=True, fullgraph=True, backend=backend)
    x, positions = torch.randn(2, 1, 8).npu(), torch.randn(1, 1, 8).npu()
    for tensor in (x, positions, *(tensor for layer in decoder.kv_cache for tensor in layer["attn"].values())):
        torch._dynamo.mark_static(tensor)
    with torch.no_grad():
        found = decoder.decode(x, positions, decoder.kv_cache, actual_seq_len=[3])
        assert torch.allclose(found.cpu(), eager(x, positions, decoder.kv_cache, [3]).cpu(), atol=1e-6)


class Phases(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        config = torchair.CompilerConfig()
        self.table = nn.Embedding(16, 4)
        self.cached_prefill = torchair.inference.cache_compile(self.prefill, config=config)
        self.cached_decode = torchair.inference.cache_compile(self.decode, config=config)

    @torch.inference_mode()
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.cached_prefill(x, y) if x.size(1) > 1 else self.cached_decode(x, y)

    def prefill(self, x: Tensor, y: Tensor) -> Tensor:
        return self.table(x).cumsum(1) + y

    def decode(self, x: Tensor, y: Tensor) -> Tensor:
        return self.table(x) + y


def test_the_guide_with_a_cached_prefill_and_decode() -> None:
    model, y = Phases().npu(), torch.randn(4).npu()
    ids = torch.randint(0, 16, (2, 3)).npu()
    assert torch.allclose(model(ids, y).cpu(), (model.table(ids).cumsum(1) + y).detach().cpu(), atol=1e-6)
    step = ids[:, :1].contiguous()
    assert torch.allclose(model(step, y).cpu(), (model.table(step) + y).detach().cpu(), atol=1e-6)
    assert Path(model.cached_prefill.entry_path).exists()
    assert Path(model.cached_decode.entry_path).exists()


class Runner:
    """As SGLang's `NpuGraphRunner.warm_up`: gears on the ids alone, and every input marked static."""

    def __init__(self, model: nn.Module, compile_bs: list[int]) -> None:
        self.compile_bs = compile_bs
        backend = torchair.get_npu_backend(compiler_config=torchair.CompilerConfig())
        self.compile_forward = torch.compile(
            torch.no_grad()(model.forward), fullgraph=True, dynamic=True, backend=backend
        )

    def warm_up(self) -> Iterator[tuple[Tensor, Tensor, tuple[Tensor, Tensor]]]:
        for bs in reversed(self.compile_bs):
            ids, positions = torch.arange(bs).npu(), torch.arange(bs).npu()
            torchair.inference.set_dim_gears(ids, dim_gears={0: self.compile_bs})
            for _ in range(2):
                torch._dynamo.mark_static(ids)
                torch._dynamo.mark_static(positions)
                yield ids, positions, self.compile_forward(ids, positions)


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(16, 4), nn.Embedding(16, 4)

    def forward(self, ids: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return self.table(ids), self.places(positions)  # a sum would make the ids static too, in torchair as here


def test_the_runner_of_sglang() -> None:
    before = len(native.OPTIONS)
    model = Tokens().npu()
    with torch.no_grad():
        for ids, positions, found in Runner(model, [2, 4, 8]).warm_up():
            for mine, eager in zip(found, model(ids, positions), strict=True):
                assert torch.equal(mine.cpu(), eager.cpu())
    assert gears_since(before) == [["2", "4", "8"]] * 3
