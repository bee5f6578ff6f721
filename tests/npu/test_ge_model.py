"""A GE model in two parts: what reaches GE is what torchair itself would hand over."""

from __future__ import annotations

import hashlib
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchair._ge_concrete_graph.ge_ir_pb2 import ModelDef

import gearcache
from gearcache.ge_cache.npu.ge_model import READ_FROM, join_model, split_model
from gearcache.ge_cache.npu.ge_text import CompileOnly, compile_only
from gearcache.ge_cache.npu.load import CODE
from tests.npu import device, native
from tests.npu.decoders import Decoder, Size

#: Of all Python below `torch_npu/dynamo`, the same in all of `READ_FROM`.
PYTHON_READ = "178d3f7c2a6ffa5f441eea305716a43bba2b31964fb50b9f7bf16b129856b977"
KINDS = ("Data", "RefData", "NetOutput", "Const", "MatMul", "HcomAllReduce")


def a_model(kinds: list[str]) -> Any:
    model = ModelDef(name="model", version=3)
    graph = model.graph.add(name="graph", input=["a", "b"], output=["c"])
    graph.attr["_executor_type"].i = 1
    for index, kind in enumerate(kinds):
        operator = graph.op.add(name=f"{kind}_{index}", type=kind, input=[f"other_{index - 1}:0"])
        operator.attr["index"].i = index
        operator.attr["value"].f = float("nan")
        operator.attr["bytes"].t.data = bytes(300 * index)
        if kind == "HcomAllReduce":
            operator.attr["group"].s = b"tag=;rank_list=0,1"
    return model


def same(first: bytes | Any, second: bytes | Any) -> bool:
    parsed = [ModelDef.FromString(item) if isinstance(item, bytes) else item for item in (first, second)]
    return bool(
        parsed[0].SerializeToString(deterministic=True) == parsed[1].SerializeToString(deterministic=True)
        and [op.name for op in parsed[0].graph[0].op] == [op.name for op in parsed[1].graph[0].op]
    )


@pytest.mark.parametrize("seed", range(3))
def test_changes_to_what_torchair_handles_reach_the_whole_model(seed: int) -> None:
    chosen = random.Random(seed)
    model = a_model(chosen.choices(KINDS, k=chosen.randrange(30)))
    split = split_model(model, f"{chosen.choice(READ_FROM)}+cpu")
    assert split is not None
    handled = ModelDef.FromString(split.handled)
    assert len(handled.graph[0].op) == sum(op.type not in ("Const", "MatMul") for op in model.graph[0].op)
    assert same(join_model(handled, split.others, split.plan), model)
    for graph in (handled.graph[0], model.graph[0]):
        graph.attr["added"].s = b"later"
        for operator in graph.op:
            if operator.type not in ("Const", "MatMul"):
                operator.name = f"{operator.name}_{'x' * 200}"
                operator.output_desc.add().attr["format_for_int"].i = 29
    assert same(join_model(handled, split.others, split.plan), model)


@pytest.mark.parametrize(
    ("kinds", "graphs", "version"),
    [
        (["Data", "ConstPlaceHolder", "NetOutput"], 1, READ_FROM[0]),
        (["Data", "NetOutput"], 2, READ_FROM[-1]),
        (["Data", "NetOutput"], 1, "2.14.0.post2+git1"),
    ],
)
def test_what_torchair_may_handle_as_a_whole_stays_whole(kinds: list[str], graphs: int, version: str) -> None:
    model = a_model(kinds)
    for _ in range(1, graphs):
        model.graph.add()
    assert split_model(model, version) is None


def test_the_wheel_has_the_python_that_was_read() -> None:
    """When this fails, read what changed: what torchair handles of a graph at a load, and the text it generates."""
    root = device.wheel_folder() / "dynamo"
    digest = hashlib.sha256()
    for path in sorted([*root.rglob("*.py")]):
        digest.update(f"{path.relative_to(root)} ".encode() + path.read_bytes())
    assert sys.modules["torch_npu"].__version__ in READ_FROM
    assert digest.hexdigest() == PYTHON_READ


# -- at a load -------------------------------------------------------------------------------------------------


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What GE was given to load, in order."""
    found: list[bytes] = []
    load = native.TorchNpuGraphBase.load

    def noted(self: Any, model: bytes, *arguments: Any) -> None:
        found.append(bytes(model))
        load(self, model, *arguments)

    monkeypatch.setattr(native.TorchNpuGraphBase, "load", noted)
    return found


def test_ge_is_given_what_torchairs_own_text_gives_it(
    tmp_path: Path, handed_over: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for weights of private format."""
    torch.manual_seed(0)
    model = Decoder(Size(layers=1)).to("npu").eval()
    for weight in list(model.parameters())[:2]:
        monkeypatch.setitem(device.FORMATS, weight.data_ptr(), 29)
    ids, position = torch.zeros(2, 1, dtype=torch.long).to("npu"), torch.zeros(2, dtype=torch.long).to("npu")
    caches = model.caches(2, "npu", torch.float32)
    for _ in range(2):
        config = gearcache.CompilerConfig(backend="torchair", strict=True)
        cached = gearcache.cache_compile(model.decode, config=config, cache_dir=tmp_path, dynamic=False)
        cached.warm(ids, position, caches)
    assert cached.stats.traces == 0
    active, store = cached._binding.loaded_variants()
    (gear,), attributes = active[0].variant.gears, active[0].graphs[0].attributes
    assert (
        sum(count for count, _ in gear.header["operators"]) < len(ModelDef.FromString(handed_over[0]).graph[0].op) / 9
    )
    namespace: dict[str, Any] = {}
    exec(store.read_blob(gear.blobs[CODE]), namespace)  # noqa: S102
    tensors = [ids, position, *(tensor for layer in caches for tensor in layer), *attributes.values()]
    namespace["ge_graph"] = CompileOnly(namespace["ge_graph"])  # the emulator runs no private formats
    compile_only(namespace["kernel"], tensors)
    cold, relaunched, torchairs = handed_over
    assert same(cold, torchairs)
    assert same(relaunched, torchairs)


class Times(nn.Module):
    def times(self, x: Tensor, factor: float) -> Tensor:
        return x * factor


@pytest.mark.parametrize("execution", ["static", "ge"])
def test_graphs_that_differ_in_other_operators_only_are_never_taken_for_each_other(
    execution: str, tmp_path: Path
) -> None:
    x = torch.randn(2, 3).to("npu")
    for _ in range(2):
        config = gearcache.CompilerConfig(strict=True, gear_execution=execution)
        cached = gearcache.cache_compile(
            Times().times, config=config, cache_dir=tmp_path, gears={"x": {0: [2, 4]}}, ge_cache=True
        )
        for factor in (2.0, 3.0):
            assert torch.equal(cached(x, factor).cpu(), x.cpu() * factor)
    names = [path.name for path in tmp_path.rglob("*.idx")]
    assert len(set(names)) == len(names) == (4 if execution == "static" else 2)
