"""Operators of a user's: what of them a stored graph holds is compared, what runs in each process may change."""

from __future__ import annotations

import types
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.library import Library, register_fake

import gearcache
from gearcache import errors
from gearcache.ge_cache.inductor.backend import InductorBackend
from gearcache.guards.evidence.operators import is_outside, operator_plain
from tests.support.relaunch import IMPORT_MUCH_OF_TORCH, run_python
from tests.support.scenarios import strict_config

NAME = "gearcache_operators"
FACTOR = 2.0


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]), requires_grad=False)

    def run(self, x: Tensor) -> Tensor:
        y = x * self.weight
        return torch.ops.gearcache_operators.turn(y).sum(1) + y.sum(1)


@contextmanager
def library(register: Callable[[Library], None]):  # type: ignore[no-untyped-def]
    with torch.library._scoped_library(NAME, "DEF") as lib:
        try:
            register(lib)
            yield
        finally:
            if made := torch._library.custom_ops.OPDEF_TO_LIB.pop(f"{NAME}::turn", None):
                made._destroy()
            torch._library.custom_ops.OPDEFS.pop(f"{NAME}::turn", None)  # weak, but in cycles
            vars(torch.ops).pop(NAME, None)  # it remembers operators that are gone, which confuses Inductor


def define(schema: str, **kernels: Callable[..., Tensor]) -> Callable[[Library], None]:
    """Return what registers `turn` with functions by dispatch key; `fake` is the one that tells sizes."""

    def register(lib: Library) -> None:
        lib.define(f"turn({schema}) -> Tensor")
        for key, function in kernels.items():
            if key == "fake":
                register_fake(f"{NAME}::turn", function, lib=lib)
            else:
                lib.impl("turn", function, key)

    return register


def real_and_fake(times: int) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    def real(x: Tensor) -> Tensor:
        return x.repeat(1, times)

    def fake(x: Tensor) -> Tensor:
        return x.new_empty(x.shape[0], x.shape[1] * times)

    return real, fake


def repeated(times: int) -> Callable[[Library], None]:
    real, fake = real_and_fake(times)
    return define("Tensor x", CPU=real, fake=fake)


def scaled(x: Tensor) -> Tensor:
    return x * FACTOR


def with_inner(times: int) -> Callable[[Library], None]:
    real, fake = real_and_fake(times)

    def register(lib: Library) -> None:
        lib.define("inner(Tensor x) -> Tensor")
        lib.impl("inner", real, "CPU")
        register_fake(f"{NAME}::inner", fake, lib=lib)
        define("Tensor x", CompositeImplicitAutograd=lambda x: torch.ops.gearcache_operators.inner(x + 1))(lib)

    return register


def custom_op(times: int) -> Callable[[Library], None]:
    real, fake = real_and_fake(times)

    def register(lib: Library) -> None:
        real.__annotations__ = {"x": Tensor, "return": Tensor}  # texts, here, as of this file
        torch.library.custom_op(f"{NAME}::turn", real, mutates_args=()).register_fake(fake)

    return register


def empty_like(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@dataclass
class Case:
    before: Callable[[Library], None]
    after: Callable[[Library], None]
    #: What the reason of the miss says; empty where the entry serves on.
    reason: str


CASES = {
    "it writes its argument": Case(
        define("Tensor x", CPU=lambda x: x * 2, fake=empty_like),
        define("Tensor(a!) x", CPU=lambda x: x.add_(1) * 2, fake=empty_like),
        "had the schema",
    ),
    "the fake": Case(repeated(2), repeated(3), "its fake was changed"),
    "the fake of a `custom_op`": Case(custom_op(2), custom_op(3), "its fake function was changed"),
    "a kernel for Meta": Case(
        define("Tensor x", CPU=lambda x: x.repeat(1, 2), Meta=lambda x: x.new_empty(x.shape[0], x.shape[1] * 2)),
        define("Tensor x", CPU=lambda x: x.repeat(1, 3), Meta=lambda x: x.new_empty(x.shape[0], x.shape[1] * 3)),
        "its Meta kernel was changed",
    ),
    "the kernel of the device": Case(
        define("Tensor x", CPU=lambda x: x * 2, fake=empty_like),
        define("Tensor x", CPU=lambda x: x - 2, fake=empty_like),
        "",
    ),
    "a composite": Case(
        define("Tensor x", CompositeImplicitAutograd=lambda x: x * 2),
        define("Tensor x", CompositeImplicitAutograd=lambda x: x * 3),
        "its CompositeImplicitAutograd kernel was changed",
    ),
    "a kernel for autograd": Case(
        define("Tensor x", CPU=empty_like, fake=empty_like, Autograd=lambda x: x * 2),
        define("Tensor x", CPU=empty_like, fake=empty_like, Autograd=lambda x: x * 3),
        "its Autograd kernel was changed",
    ),
    "an operator that a composite calls": Case(with_inner(2), with_inner(3), "`gearcache_operators::inner`: its fake"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_graph_holds_of_an_operator_is_compared(
    name: str, cache_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    case, net, x = CASES[name], Net(), torch.arange(6.0).view(2, 3)

    def served() -> tuple[Tensor, gearcache.api.CachedMethod]:
        method = net.run
        cached = gearcache.cache_compile(method, cache_dir=cache_dir, dynamic=False, config=strict_config())
        result = cached(x.clone())
        assert torch.equal(result, method(x.clone()))
        return result, cached

    with library(case.before):
        first, cold = served()
        again, warm = served()
        assert (cold.stats.misses, warm.stats.misses) == (1, 0)
        assert torch.equal(first, again)
    with library(case.after), caplog.at_level("INFO", logger="gearcache"):
        other, changed = served()
        assert not (other.shape == first.shape and torch.equal(other, first)), "the case changes nothing"
    assert changed.stats.misses == (1 if case.reason else 0)
    assert case.reason in caplog.text


def test_a_fake_that_nothing_can_compare_is_refused(cache_dir: Path) -> None:
    unknown = types.SimpleNamespace(width=2)

    def fake(x: Tensor) -> Tensor:
        return x.new_empty(x.shape[0], x.shape[1] * unknown.width)

    with library(define("Tensor x", CPU=lambda x: x.repeat(1, 2), fake=fake)):
        cached = gearcache.cache_compile(Net().run, cache_dir=cache_dir, dynamic=False, config=strict_config())
        with pytest.raises(errors.CaptureError, match=f"the fake of operator {NAME}::turn uses it.*SimpleNamespace"):
            cached(torch.ones(2, 3))


@pytest.mark.usefixtures("compiled_here")
@pytest.mark.slow
def test_a_decomposition_or_lowering_that_only_inductor_knows_is_refused(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import decomposition, lowering

    monkeypatch.setattr(InductorBackend, "warm_up", lambda *_: None)  # no code is made
    with library(define("Tensor x", CPU=scaled, fake=empty_like)):
        own = torch.ops.gearcache_operators.turn.default
        for table, operator, name in (
            (decomposition.decompositions, own, f"{NAME}::turn"),
            (lowering.lowerings, torch.ops.aten.sin.default, "aten::sin"),
        ):
            config = strict_config("inductor")
            cached = gearcache.cache_compile(Net().run, cache_dir=cache_dir, dynamic=False, config=config)
            with monkeypatch.context() as patch:
                patch.setitem(table, operator, scaled)
                with pytest.raises(errors.CompileError, match=f"{name} has a decomposition or lowering"):
                    cached(torch.ones(2, 3))


def test_code_in_cpp_is_told_by_its_place_and_composites_of_it_are_refused() -> None:
    assert is_outside("torchvision::nms")
    assert not is_outside("aten::matmul")
    assert operator_plain("aten::add.Tensor")["schema"].startswith("aten::add.Tensor(Tensor self")
    assert ".cpp:" in str(operator_plain("aten::add.Tensor")["Autograd kernel"])
    with pytest.raises(errors.UnkeyableValue, match="made of other operators by code in C"):
        operator_plain("aten::matmul")


#: Namespaces of torch 2.14 and 2.15, compared as a user's are: with torch 2.13 a user's may have this name.
_LATER = ("_native_aot::", "coor::", "flex_gemm::", "mempool::")


def test_every_operator_of_torch_is_its_own_and_none_of_its_kernels_is_a_users() -> None:
    code = (
        f"{IMPORT_MUCH_OF_TORCH}\n"
        "from gearcache.guards.evidence.operators import is_outside\n"
        "from gearcache.guards.evidence.overrides import overrides_component\n"
        "print(json.dumps([[name for name in torch._C._dispatch_get_all_op_names() if is_outside(name)], "
        "overrides_component('Net.run', compiled=True)]))"
    )
    outside, overridden = run_python(code, compiles=True)
    assert [name for name in outside if not name.startswith(_LATER)] == []
    assert overridden == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        "a_kernel_above_the_device_is_refused_where_a_compiler_takes_the_graph",
        "without_a_compiler_it_is_called_as_the_process_has_it",
        "a_composite_that_the_device_has_a_kernel_for_is_another_key",
        "fakes_are_compared",
        "a_fallback_for_all_operators_is_refused",
    ],
)
def test_a_kernel_in_place_of_torchs_own_is_compared_or_refused(case: str, cache_dir: Path) -> None:
    code = "from tests.scenarios import overridden; overridden.run()"
    assert run_python(code, case, str(cache_dir), compiles=True) == case
