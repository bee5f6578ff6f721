"""`gearcache.compat.torchair` in place of torchair's own: the cases that its users live from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torchair
from torch import Tensor, nn

from gearcache.compat import torchair as compat
from gearcache.errors import InputError, OptionError
from tests.npu import native

SCALE = 3.0


@pytest.fixture
def installed(cache_dir: Path) -> Iterator[None]:
    compat.install()
    yield
    compat.uninstall()


@dataclasses.dataclass
class Answer:
    total: Tensor
    note: str


class Model(nn.Module):
    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        self.factor = factor
        self.linear = nn.Linear(4, 4)
        self.pools = [torch.full((4,), 5.0).to("npu")]

    def keywords(self, x: Tensor, y: Tensor | None = None, *, scale: float = 2.0) -> Tensor:
        return self.linear(x) * scale + (y if y is not None else 0.0)

    def outer(self, x: Tensor) -> Tensor:
        return x * SCALE * self.factor

    def anonymous(self, x: Tensor) -> Tensor:
        return x + self.pools[0]

    def answer(self, x: Tensor) -> Answer:
        return Answer(x.sum(-1), "sum")

    def complexes(self, x: Tensor) -> Tensor:
        return x + x

    def branch(self, x: Tensor, double: bool) -> Tensor:
        return x * 2 if double else x - 1


def npu(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*sizes, dtype=dtype).to("npu")


def same(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found.cpu(), expected.cpu(), atol=1e-6)


CASES: dict[str, Callable[[Model], tuple[str, tuple[Any, ...], dict[str, Any]]]] = {
    "defaults": lambda model: ("keywords", (npu(2, 4),), {}),
    "a keyword": lambda model: ("keywords", (npu(2, 4),), {"y": npu(2, 4)}),
    "a keyword-only number": lambda model: ("keywords", (npu(2, 4),), {"scale": 0.5}),
    "a global of its module": lambda model: ("outer", (npu(2, 4),), {}),
    "a tensor in a list": lambda model: ("anonymous", (npu(2, 4),), {}),
    "complex numbers": lambda model: ("complexes", (npu(2, 4, dtype=torch.complex64),), {}),
    "a branch": lambda model: ("branch", (npu(2, 4), False), {}),
}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", CASES)
def test_a_call_equals_eager(name: str) -> None:
    model = Model().to("npu")
    method, args, keywords = CASES[name](model)
    cached = torchair.inference.cache_compile(getattr(model, method), config=torchair.CompilerConfig())
    with torch.no_grad():
        assert same(cached(*args, **keywords), getattr(model, method)(*args, **keywords))


@pytest.mark.usefixtures("installed")
def test_a_closure_is_read_as_the_method_reads_it() -> None:
    factor, offset = npu(4), 3.0

    class Closing(Model):
        def closed(self, x: Tensor) -> Tensor:
            return x * factor + offset

    model, x = Closing().to("npu"), npu(2, 4)
    cached = torchair.inference.cache_compile(model.closed, config=torchair.CompilerConfig())
    with torch.no_grad():
        assert same(cached(x), model.closed(x))
        factor.mul_(2)
        assert same(cached(x), model.closed(x)), "a tensor of the closure that was written in place was not seen"
        factor = npu(4)
        assert same(cached(x), model.closed(x)), "a tensor that replaced one of the closure was not seen"


@pytest.mark.usefixtures("installed")
def test_a_dataclass_comes_back_as_one() -> None:
    cached = torchair.inference.cache_compile(Model().to("npu").answer)
    found = cached(x := npu(2, 4))
    assert type(found) is Answer
    assert found.note == "sum"
    assert same(found.total, x.sum(-1))


@pytest.mark.usefixtures("installed")
def test_two_instances_and_a_changed_attribute_get_their_own_answers() -> None:
    x = npu(2, 4)
    for factor in (2.0, 5.0):
        model = Model(factor).to("npu")
        assert same(torchair.inference.cache_compile(model.outer)(x), x * SCALE * factor)


@pytest.mark.usefixtures("installed")
def test_another_flag_or_shape_is_answered_and_nothing_is_deleted() -> None:
    model = Model().to("npu")
    cached = torchair.inference.cache_compile(model.branch, dynamic=False)
    for rows, flag in ((2, True), (2, False), (3, True), (2, True)):
        x = npu(rows, 4)
        assert same(cached(x, flag), model.branch(x, flag))
    entry = Path(cached.entry_path)
    assert entry.exists()


@pytest.mark.usefixtures("installed")
def test_gears_are_set_and_checked() -> None:
    model = Model().to("npu")
    config = torchair.CompilerConfig()
    cached = torchair.inference.cache_compile(model.outer, config=config)
    x = npu(2, 4)
    torchair.inference.set_dim_gears(x, {0: [2, 4]})
    assert same(cached(x), model.outer(x))
    wide = npu(4, 4)
    assert same(cached(wide), model.outer(wide))
    with pytest.raises(InputError, match="outside all gears"):
        cached(npu(3, 4))


@pytest.mark.usefixtures("installed")
def test_custom_decompositions_are_applied_and_in_the_key() -> None:
    model = Model().to("npu")
    x = npu(2, 4)

    def doubled(self: Tensor, other: Tensor) -> Tensor:
        return torch.ops.aten.mul.Tensor(self, other) * 2

    plain = torchair.inference.cache_compile(model.complexes)(x)
    changed = torchair.inference.cache_compile(
        model.complexes, custom_decompositions={torch.ops.aten.add.Tensor: lambda a, b, alpha=1: a - b}
    )(x)
    assert same(plain, x + x)
    assert same(changed, x - x)


@pytest.mark.usefixtures("installed")
def test_the_options_of_the_config_reach_ge() -> None:
    config = torchair.CompilerConfig()
    config.experimental_config.topology_sorting_strategy = "BFS"
    torchair.inference.cache_compile(Model().to("npu").outer, config=config)(npu(2, 4))
    assert native.OPTIONS[-1]["ge.topoSortingMode"] == "0"


@pytest.mark.usefixtures("installed")
def test_an_aclgraph_mode_of_torchairs_config_is_served_by_torchair() -> None:
    model = Model().to("npu")
    config = torchair.CompilerConfig()
    config.mode = "reduce-overhead"
    cached = torchair.inference.cache_compile(model.keywords, config=config)
    x = npu(2, 4)
    with pytest.warns(DeprecationWarning, match="npugraph_ex"):
        first = cached(x)
    with torch.no_grad():
        assert same(first, model.keywords(x))
        model.linear.weight.data = model.linear.weight.data * 2
        assert same(cached(x), model.keywords(x)), "a replaced `.data` of a weight was not seen"


@pytest.mark.usefixtures("installed")
def test_readable_cache_shows_key_graph_gears_and_frame(capsys: pytest.CaptureFixture[str]) -> None:
    cached = torchair.inference.cache_compile(Model().to("npu").outer)
    cached(npu(2, 4))
    text = torchair.inference.readable_cache(cached.entry_path, print_output=False)
    assert capsys.readouterr().out == ""
    for part in (
        "Model.outer",
        "backend.config.experimental_config.frozen_parameter",
        "aten::mul.Tensor",
        "gears",
        "frame",
    ):
        assert part in text, part


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: compat.cache_compile(len), ValueError, "Only method can be cached now"),
        (lambda: compat.cache_compile(Path().exists), ValueError, "Only torch.nn.Module method"),
        (lambda: compat.cache_compile(Model().outer, optoins={}), TypeError, "optoins"),
        (lambda: compat.cache_compile(Model().outer, fullgraph=False), ValueError, "fullgraph is False"),
    ],
)
def test_what_torchair_refused_or_dropped_is_an_error(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_a_config_other_than_the_backends_is_refused() -> None:
    other = torchair.CompilerConfig()
    other.experimental_config.frozen_parameter = True
    backend = compat.get_npu_backend(compiler_config=other)
    with pytest.raises(ValueError, match="different from the config"):
        compat.cache_compile(Model().outer, config=torchair.CompilerConfig(), backend=backend)


def test_uninstall_puts_torchairs_own_back() -> None:
    own = torchair.inference.cache_compile
    compat.install()
    assert torchair.inference.cache_compile.__module__ == compat.__name__
    compat.uninstall()
    assert torchair.inference.cache_compile is own


def test_a_config_that_is_none_is_refused_at_once(installed: None) -> None:
    with pytest.raises(OptionError, match=r"config is an int; it must be a torchair\.CompilerConfig"):
        torchair.inference.cache_compile(Model().outer, config=5)
