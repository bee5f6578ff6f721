"""`gearcache.compat.torchair` in place of torchair's own: the cases that its users live from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torchair
from torch import Tensor, nn

import gearcache
from gearcache.compat import torchair as compat
from gearcache.errors import GearSpecError, OptionError
from tests.npu import native

own_set_dim_gears = torchair.inference.set_dim_gears


@pytest.fixture
def installed(cache_dir: Path) -> Iterator[None]:
    torch.compiler.reset()
    compat.install()
    yield
    compat.uninstall()
    torch.compiler.reset()


class Model(nn.Module):
    def doubled(self, x: Tensor) -> Tensor:
        return x + x


def npu(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*sizes, dtype=dtype).to("npu")


def same(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found.cpu(), expected.cpu(), atol=1e-6)


@pytest.mark.usefixtures("installed")
def test_custom_decompositions_are_applied_and_in_the_key() -> None:
    model = Model().to("npu")
    x = npu(2, 4, dtype=torch.complex64)
    plain = torchair.inference.cache_compile(model.doubled)(x)
    changed = torchair.inference.cache_compile(
        model.doubled, custom_decompositions={torch.ops.aten.add.Tensor: lambda a, b, alpha=1: a - b}
    )(x)
    assert same(plain, x + x)
    assert same(changed, x - x)


@pytest.mark.usefixtures("installed")
def test_the_options_of_the_config_reach_ge_and_are_readable(capsys: pytest.CaptureFixture[str]) -> None:
    config = torchair.CompilerConfig()
    config.experimental_config.topology_sorting_strategy = "BFS"
    cached = torchair.inference.cache_compile(Model().doubled, config=config)
    cached(npu(2, 4))
    assert native.OPTIONS[-1]["ge.topoSortingMode"] == "0"
    text = torchair.inference.readable_cache(cached.entry_path, print_output=False)
    assert capsys.readouterr().out == ""
    shown = "Model.doubled", "backend.config.experimental_config.topology_sorting_strategy", "aten::add.Tensor"
    for part in (*shown, "Gears", "Frame"):
        assert part in text, part


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: compat.cache_compile(len), ValueError, "Only method can be cached now"),
        (lambda: compat.cache_compile(Path().exists), ValueError, "Only torch.nn.Module method"),
        (lambda: compat.cache_compile(Model().doubled, optoins={}), TypeError, "optoins"),
        (lambda: compat.cache_compile(Model().doubled, fullgraph=False), ValueError, "fullgraph is False"),
        (
            lambda: compat.cache_compile(Model().doubled, config=5),
            OptionError,
            r"config is an int; it must be a torchair\.CompilerConfig",
        ),
    ],
)
def test_what_torchair_refused_or_dropped_is_an_error(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


# -- `set_dim_gears`: what it sets and marks, and that its marks change nothing of our own traces ---------------


class Scale(nn.Module):
    def scaled(self, x: Tensor) -> Tensor:
        return x * x.size(0) + 1


def rows(count: int, gears: Any = None, marker: Any = compat.set_dim_gears) -> Tensor:
    x = torch.randn(count, 3).to("npu")
    if gears is not None:
        marker(x, {0: gears})
    return x


def marks(x: Tensor) -> set[int]:
    return set(getattr(x, "_dynamo_dynamic_indices", ()))


def test_gears_are_set_and_their_dims_marked_under_torchairs_names_of_the_parameters() -> None:
    x = rows(2)
    compat.set_dim_gears(t=x, dim_gears={0: (2, 4), 1: [3, 5]})
    compat.set_dim_gears(x, {0: [2, 4], 1: (3, 5)})
    assert x.dim_gears == {0: [2, 4], 1: [3, 5]}  # type: ignore[attr-defined]
    assert marks(x) == {0, 1}


def test_a_fault_at_the_second_dim_leaves_nothing_set_or_marked() -> None:
    for second in ({1: [0, 3]}, {5: [2, 3]}, {1: [3]}, {1: 3}):
        x = rows(2)
        with pytest.raises(GearSpecError):
            compat.set_dim_gears(x, {0: [2, 4], **second})
        assert not hasattr(x, "dim_gears")
        assert marks(x) == set()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("first", "marker"), [(1, compat.set_dim_gears), (2, own_set_dim_gears)], ids=["ours", "before install"]
)
def test_a_cached_method_takes_no_notice_of_the_marks(first: int, marker: Any) -> None:
    model = Scale()
    cached: Any = torchair.inference.cache_compile(model.scaled)
    for count in (first, 4, 1, 2):
        x = rows(count, [1, 2, 4], marker)
        torch._dynamo.mark_static(x)
        assert torch.equal(cached(x).cpu(), model.scaled(x).cpu())
        assert marks(x) == {0}, "the mark was not put back"
        assert x._dynamo_static_indices == {0, 1}  # type: ignore[attr-defined]
    bare: Any = gearcache.cache_compile(
        model.scaled, config=gearcache.CompilerConfig(torchair=torchair.CompilerConfig(), backend="torchair")
    )
    x = rows(2)
    gearcache.set_dim_gears(x, {0: [1, 2, 4]})
    torch._dynamo.mark_static(x, 1)
    assert torch.equal(bare(x).cpu(), model.scaled(x).cpu())
    assert bare.stats.traces == 0, "the marks of torchair are in the key"


@pytest.mark.usefixtures("installed")
def test_one_tensor_goes_to_torch_compile_and_to_a_cached_method() -> None:
    model, before = Scale(), len(native.OPTIONS)
    cached: Any = torchair.inference.cache_compile(model.scaled)
    compiled: Any = torch.compile(model.scaled, fullgraph=True, backend=compat.get_npu_backend())
    for count in (2, 4):
        x = rows(count, [2, 4])
        expected = model.scaled(x).cpu()
        assert torch.equal(cached(x).cpu(), expected)
        assert torch.equal(compiled(x).cpu(), expected)
    geared = [options["ge.dynamicDims"] for options in native.OPTIONS[before:] if "ge.dynamicDims" in options]
    assert [sorted(gears.split(";")) for gears in geared] == [["2", "4"]]
