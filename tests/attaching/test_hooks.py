"""Hooks of an attached module run as those of a plain one, whenever they were registered."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as of_all

import gearcache
from gearcache.errors import CaptureError
from tests.support.scenarios import plain, strict_config

X = torch.arange(8.0).view(2, 4)
#: What hooks were given, in order.
MET: list[Any] = []


class Net(nn.Module):
    def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
        if x.shape[0] == 3:
            raise ValueError("three rows")
        return x * 2 if mask is None else x * mask


def _note(*what: Any) -> None:
    MET.append(plain([item if not isinstance(item, nn.Module) else type(item).__name__ for item in what]))


def before(module: nn.Module, args: Any) -> None:
    _note("before", args)


def change_before(module: nn.Module, args: Any) -> Any:
    _note("change before", args)
    return args[0] + 1 if args else None


def before_with_kwargs(module: nn.Module, args: Any, kwargs: Any) -> Any:
    _note("before with kwargs", args, kwargs)
    return args, {**kwargs, "mask": torch.full((2, 4), 3.0)}


def failing_before(module: nn.Module, args: Any) -> None:
    raise LookupError("before")


def after(module: nn.Module, args: Any, result: Any) -> None:
    _note("after", args, result)


def change_after(module: nn.Module, args: Any, result: Any) -> Any:
    _note("change after", args, result)
    return result + 0.5


def after_with_kwargs(module: nn.Module, args: Any, kwargs: Any, result: Any) -> Any:
    _note("after with kwargs", args, kwargs, result)
    return [result]


def failing_after(module: nn.Module, args: Any, result: Any) -> None:
    _note("failing after", args, result)
    raise LookupError("after")


Register = Callable[[nn.Module], Any]
REGISTER: dict[str, Register] = {
    "before": lambda net: net.register_forward_pre_hook(before),
    "change before": lambda net: net.register_forward_pre_hook(change_before),
    "before with kwargs": lambda net: net.register_forward_pre_hook(before_with_kwargs, with_kwargs=True),
    "failing before": lambda net: net.register_forward_pre_hook(failing_before),
    "after": lambda net: net.register_forward_hook(after),
    "change after": lambda net: net.register_forward_hook(change_after),
    "after with kwargs": lambda net: net.register_forward_hook(after_with_kwargs, with_kwargs=True),
    "after, first": lambda net: net.register_forward_hook(after, prepend=True),
    "failing after": lambda net: net.register_forward_hook(failing_after),
    "all before": lambda net: of_all.register_module_forward_pre_hook(change_before),
    "all after": lambda net: of_all.register_module_forward_hook(change_after),
    "all after with kwargs": lambda net: of_all.register_module_forward_hook(after_with_kwargs, with_kwargs=True),
}
#: Hooks that are there together.
SETS = [
    ["change after", "after", "after, first", "all after", "change before", "before", "all before"],
    ["before with kwargs", "change before", "all after with kwargs", "after with kwargs"],
    ["failing before", "after"],
    ["all after", "failing after", "after"],
]


def _forget_hooks_of_all() -> None:
    for name, held in vars(of_all).items():  # torch leaves numbers of hooks that take keywords
        if name.startswith("_global_") and isinstance(held, dict):
            held.clear()


@pytest.fixture
def net(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Net]:
    monkeypatch.setattr(of_all, "_global_is_full_backward_hook", None)
    yield Net()
    _forget_hooks_of_all()


def _called(net: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """What a call gives and what its hooks meet; an exception by its text."""
    MET.clear()
    with warnings.catch_warnings(record=True) as told, torch.no_grad():
        warnings.simplefilter("always")
        try:
            found = plain(net(*args, **kwargs))
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
    return found, list(MET), [str(warning.message) for warning in told]


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((X,), {}),
    ((X,), {"mask": X + 2}),
    ((), {"x": X}),
    ((torch.ones(3, 4),), {}),
]


def test_hooks_run_as_without_it_when_they_come_and_go(net: Net, subtests: pytest.Subtests) -> None:
    for names in SETS:
        with subtests.test(" and ".join(names)):
            net, other = Net(), Net()
            served = gearcache.attach(net, dynamic=False, config=strict_config())
            net(X)
            handles = [
                REGISTER[name](each) for name in names for each in ((other, net) if name[:3] != "all" else (net,))
            ]
            for args, kwargs in CALLS:
                assert _called(net, *args, **kwargs) == _called(other, *args, **kwargs)
            assert served.stats.calls > 0
            for handle in handles:
                handle.remove()
            assert _called(net, X) == _called(other, X)
            assert MET == []
        _forget_hooks_of_all()


def test_a_backward_hook_is_refused_by_name_where_it_would_run(net: Net) -> None:
    def spy(module: nn.Module, given: Any, found: Any) -> None:
        pass

    gearcache.attach(net, config=strict_config())
    handles = (net.register_full_backward_hook, net.register_full_backward_pre_hook)
    for register in (*handles, of_all.register_module_full_backward_hook):
        handle = register(spy if register != net.register_full_backward_pre_hook else lambda module, given: None)
        with pytest.raises(CaptureError, match=r"`Net.forward` .* it has a backward hook, `.*<locals>"):
            net(X)
        with torch.no_grad():
            torch.testing.assert_close(net(X), X * 2)
        handle.remove()
    torch.testing.assert_close(net(X), X * 2)


def test_a_hook_that_always_runs_is_refused_by_name(net: Net) -> None:
    gearcache.attach(net, config=strict_config())
    for register in (net.register_forward_hook, of_all.register_module_forward_hook):
        handle = register(after, always_call=True)
        with torch.no_grad():
            with pytest.raises(CaptureError, match=r"`Net.forward` .* with `always_call=True`, `after`: register it"):
                net(X)
            handle.remove()
            torch.testing.assert_close(net(X), X * 2)


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part, self.head = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.part(x))


def names(module: nn.Module, args: Any, result: Any) -> None:
    MET.append(type(module).__name__)


def shout(module: nn.Module, args: Any, result: Any) -> None:
    print("called", file=sys.stderr)


@pytest.mark.parametrize("hook", [names, lambda module, args, result: result + 1])
def test_hooks_of_all_modules_run_for_those_inside_as_well(net: Net, hook: Callable[..., Any]) -> None:
    whole = Whole()
    served = gearcache.attach(whole, config=strict_config())
    with torch.no_grad():
        whole(X)
    handle = of_all.register_module_forward_hook(hook)
    found = [_called(whole, X) for _ in range(2)]
    served.detach()
    assert found == [_called(whole, X)] * 2
    handle.remove()


def test_a_hook_inside_that_forms_no_graph_is_refused_by_name(net: Net) -> None:
    whole = Whole()
    gearcache.attach(whole, config=strict_config())
    with torch.no_grad():
        expected = whole(X)
        handle = whole.part.register_forward_hook(shout)
        with pytest.raises(CaptureError, match=r"`Whole.forward` cannot be cached: .*`print`"):
            whole(X)
        handle.remove()
        assert torch.equal(whole(X), expected)
