"""Who traces or transforms an attached module, or one that has it, sees the module itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import gearcache
from tests.support.scenarios import strict_config

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).relu()


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = Part()
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.part(x))


def _functional_call(model: nn.Module, x: Tensor) -> Any:
    return lambda y: torch.func.functional_call(model, dict(model.named_parameters()), (y,))


def _recorded(model: nn.Module, x: Tensor) -> Any:
    return make_fx(lambda y: model(y))(x)


TRACERS: dict[str, Callable[[nn.Module, Tensor], Any]] = {
    "torch.compile": lambda model, x: torch.compile(model, backend="eager", fullgraph=True),
    "torch.export": lambda model, x: torch.export.export(model, (x,)).module(),
    "torch.fx": lambda model, x: torch.fx.symbolic_trace(model),
    "torch.jit.trace": lambda model, x: torch.jit.trace(model, (x,), check_trace=False),
    "functional_call": _functional_call,
    "make_fx": _recorded,
    "vmap": lambda model, x: torch.vmap(model),
    "cache_compile": lambda model, x: gearcache.cache_compile(model.forward, config=strict_config()),
}


#: A part of the model that was called before for every tracer; the model itself, not called yet, for two.
WAYS = [
    *((tracer, "part", True) for tracer in TRACERS),
    *((tracer, "whole", False) for tracer in ("torch.compile", "cache_compile")),
]


@pytest.mark.parametrize(("tracer", "place", "is_loaded"), WAYS)
def test_the_module_itself_is_traced(cache_dir: Path, tracer: str, place: str, is_loaded: bool) -> None:
    model, x, other = Whole().eval(), torch.randn(2, 4), torch.randn(2, 4)
    with torch.no_grad():
        expected = model(other)
        served = gearcache.attach(model if place == "whole" else model.part, config=strict_config())
        if is_loaded:
            model(x)
        before = served.stats.calls
        traced = TRACERS[tracer](model, x)
        assert served.stats.calls == before
        served.detach()  # what was traced has taken nothing of it
        torch.testing.assert_close(traced(other), expected)


class WithoutGrad(Part):
    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).relu()


class InInferenceMode(Part):
    @torch.inference_mode()
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).relu()


@pytest.mark.parametrize("is_attached", [True, False])
@pytest.mark.parametrize("kind", [WithoutGrad, InInferenceMode])
def test_the_decorators_of_a_method_are_traced_too(cache_dir: Path, kind: type[Part], is_attached: bool) -> None:
    part, x = kind(), torch.randn(2, 4)
    expected = part(x)
    if is_attached:
        gearcache.attach(part, config=strict_config())
    served: Any = part if is_attached else gearcache.cache_compile(part.forward, config=strict_config())
    found = torch.compile(lambda y: served(y), backend="eager")(x)
    torch.testing.assert_close(found, expected)
    assert (found.requires_grad, found.is_inference()) == (False, expected.is_inference())
