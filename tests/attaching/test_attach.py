"""`gearcache.attach`: who is served, what is put back, and what copies of the module are."""

from __future__ import annotations

import copy
import functools
import pickle
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import AlreadyAttached, UnsupportedMethod
from tests.support.scenarios import strict_config

GEARS = {"x": {0: [2, 4]}}
X = torch.arange(8.0).view(2, 4)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.factor = 2.0

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = self.shifted(self.inner(x) * self.factor)
        return y if mask is None else y * mask

    def shifted(self, y: Tensor) -> Tensor:
        return y


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) + 1


def eager(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    with torch.no_grad():
        return module.forward(*args, **kwargs)


def attached(module: nn.Module, **options: Any) -> Any:
    return gearcache.attach(module, **{"gears": GEARS, "config": strict_config(), **options})


def test_whoever_calls_the_module_is_served(cache_dir: Path) -> None:
    outer = Outer().eval()
    expected = eager(outer, X)
    served = attached(outer.net)
    with torch.no_grad():
        torch.testing.assert_close(outer(X), expected)
    torch.testing.assert_close(outer.net(x=X, mask=None), eager(outer.net, X))
    assert (served.stats.traces, served.stats.calls) == (1, 2)
    assert repr(served).startswith("<attached Net.forward, entry Net.forward-")
    assert served.explain().startswith("Net.forward: entry ")


def test_modules_of_one_structure_share_an_entry_also_with_cache_compile(cache_dir: Path) -> None:
    first, second = Net(), Net()
    one, two = attached(first), attached(second)
    for net in (first, second):
        torch.testing.assert_close(net(X), eager(net, X))
    assert (one.stats.traces, two.stats.traces, two.stats.hits) == (1, 0, 1)
    assert one.entry_path == two.entry_path
    third = gearcache.cache_compile(Net().forward, gears=GEARS, config=strict_config(), dynamic=None)
    third(X)
    assert (third.stats.traces, third.entry_path) == (0, one.entry_path)


def test_warm_compiles_every_gear_and_runs_nothing(cache_dir: Path) -> None:
    net = Net()
    served = attached(net)
    met: list[Any] = []
    net.register_forward_pre_hook(lambda module, args: met.append(args))
    served.warm(X)
    assert (served.stats.loads, served.stats.calls, met) == (2, 0, [])
    net(torch.ones(4, 4))
    assert (served.stats.traces, len(met)) == (1, 1)


@pytest.mark.parametrize("before", [None, "a callable"])
def test_detach_puts_back_what_was_there(cache_dir: Path, before: Any) -> None:
    net = Net()
    if before is not None:
        before = net._compiled_call_impl = lambda x: "compiled before"
    state = dict(vars(net))
    served = attached(net)
    net(X)
    served.detach()
    served.detach()
    assert vars(net) == state
    assert (net(X) == "compiled before") if before else net(X).requires_grad
    assert not served.is_attached
    assert repr(served).startswith("<detached Net.forward, entry")
    again = attached(net)
    net(X)
    assert (again.stats.traces, again.stats.calls) == (0, 1)


def test_a_module_is_attached_once(cache_dir: Path) -> None:
    net = Net()
    served = attached(net)
    with pytest.raises(AlreadyAttached, match=r"this `Net` is attached already \(<attached Net.forward, nothing"):
        attached(net)
    assert served.is_attached
    served.detach()
    assert attached(net).is_attached


def _compiled(module: nn.Module) -> Any:
    return torch.compile(module, backend="eager")


class OwnCall(nn.Module):
    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        return super()._call_impl(*args, **kwargs)

    def forward(self, x: Tensor) -> Tensor:
        return x


class CachedForward(nn.Module):
    @gearcache.cache_compile()
    def forward(self, x: Tensor) -> Tensor:
        return x


def _replaced(value: Callable[..., Any]) -> nn.Module:
    net = Net()
    net.forward = value  # type: ignore[method-assign]
    return net


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (lambda: Net, "not .*: give the instance, not its class"),
        (lambda: Net().forward, r"give its module, as in `attach\(model\)`"),
        (lambda: _compiled(Net()), "has not compiled: `OptimizedModule` wraps one"),
        (lambda: nn.ModuleList([Net()]), "is not called itself"),
        (OwnCall, "has a `_call_impl` of its own"),
        (CachedForward, "is cached already"),
        (lambda: _replaced(functools.partial(Net.forward, None)), "was replaced by .*partial.* of `Net.forward`"),
    ],
)
def test_what_cannot_be_attached_is_refused_by_name(module: Callable[[], Any], text: str) -> None:
    made = module()
    with pytest.raises(UnsupportedMethod, match=text):
        gearcache.attach(made)


@pytest.mark.parametrize("copied", [copy.copy, lambda net: pickle.loads(pickle.dumps(net))])
def test_a_copy_of_the_module_is_a_plain_one(cache_dir: Path, copied: Callable[[nn.Module], Any]) -> None:
    net = Net()
    served = attached(net)
    net(X)
    other = copied(net)
    with torch.no_grad():
        torch.testing.assert_close(other(X), eager(net, X))
    assert other._compiled_call_impl is None
    assert served.stats.calls == 1
    assert net.state_dict().keys() == Net().state_dict().keys()


def test_a_copy_of_the_attachment_is_detached(cache_dir: Path) -> None:
    net = Net()
    net.served = attached(net)
    net(X)
    other: Any = copy.deepcopy(net)
    assert other.served.module is other
    assert not other.served.is_attached
    other.served.attach()
    with torch.no_grad():
        other.inner.weight.add_(1)
    torch.testing.assert_close(other(X), eager(other, X))
    assert other.served.stats.calls == 1


# -- changes between calls -------------------------------------------------------------------------------


def _minus(self: Any, x: Tensor, mask: Tensor | None = None) -> Tensor:
    return self.inner(x) - 1


class Other(Net):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x) - 3


CHANGES: dict[str, Callable[[Any], Any]] = {
    "forward of the instance": lambda net: setattr(net, "forward", types.MethodType(_minus, net)),
    "class": lambda net: setattr(net, "__class__", Other),
    "dtype": lambda net: net.double(),
}


def test_the_next_call_sees_a_change(cache_dir: Path, subtests: pytest.Subtests) -> None:
    """`test_changes` has what a cached method sees as well."""
    for name, change in CHANGES.items():
        with subtests.test(name):
            net = Net()
            served = attached(net)
            net(X)
            before = served.entry_path
            change(net)
            x = X.to(net.inner.weight.dtype) if name == "dtype" else X
            for _ in range(2):
                torch.testing.assert_close(net(x), eager(net, x))
            assert name != "dtype" or served.entry_path != before


def test_a_forward_that_cannot_be_served_any_more_is_refused_by_name(cache_dir: Path) -> None:
    net: Any = Net()
    attached(net)
    net(X)
    net.forward = functools.partial(Net.forward, net)
    with pytest.raises(UnsupportedMethod, match="the `forward` of this `Net` was replaced by"):
        net(X)
    del net.forward
    torch.testing.assert_close(net(X), eager(net, X))


# -- before traffic, and threads -------------------------------------------------------------------------


def _build() -> None:
    outer = Outer().eval()
    attached(outer.net)
    with torch.no_grad():
        outer(X)


def test_prewarm_compiles_what_an_attached_part_will_need(cache_dir: Path) -> None:
    report = gearcache.prewarm(_build)
    assert [list(entry.compiled) for entry in report.entries] == [["x.size(0)=2", "x.size(0)=4"]]
    outer = Outer().eval()
    served = attached(outer.net)
    with torch.no_grad():
        torch.testing.assert_close(outer(X), eager(outer.net, X) + 1)
    assert (served.stats.traces, served.stats.hits) == (0, 1)


def test_threads_call_while_it_is_attached_and_detached(cache_dir: Path) -> None:
    net = Net().eval()
    expected = {rows: eager(net, torch.ones(rows, 4)) for rows in (2, 4)}
    wrong: list[Any] = []
    done = threading.Event()

    def call(rows: int) -> None:
        with torch.inference_mode():
            while not done.is_set():
                try:
                    if not torch.equal(net(torch.ones(rows, 4)), expected[rows]):
                        wrong.append(rows)
                except Exception as error:
                    wrong.append(error)

    threads = [threading.Thread(target=call, args=(rows,)) for rows in (2, 4, 2)]
    for thread in threads:
        thread.start()
    calls = 0
    for _ in range(5):
        served = attached(net)
        while served.stats.calls < 20 and not wrong:
            time.sleep(0.001)
        calls += served.stats.calls
        served.detach()
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert calls >= 100


def test_what_an_attachment_warms_is_the_present_forward(cache_dir: Path) -> None:
    net: Any = Net()
    served = attached(net)
    net(X)
    former = served.method
    net.forward = types.MethodType(_minus, net)
    served.warm(X)
    assert served.method is not former
    warmed = served.stats.traces
    torch.testing.assert_close(net(X), eager(net, X))
    assert served.stats.traces == warmed
