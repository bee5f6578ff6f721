"""A forward behind decorators: gears, messages and entries know its arguments by the names that their user wrote."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from tests.support.scenarios import strict_config

X = torch.arange(8.0).view(2, 4)


def hides_all(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    return wrapper


def tells_given(forward: Callable[..., Any]) -> Callable[..., Any]:
    """What comes out depends on how the arguments are given, as decorators of libraries may have it."""

    @functools.wraps(forward)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        doubled = kwargs.pop("doubled", False)
        found = forward(self, *args, **kwargs)
        found = found + 10 * len(args) + (100 if "mask" in kwargs else 0)
        return found * 2 if doubled else found

    return wrapper


def scale_and_shift(self: Any, ids: Tensor, mask: Tensor | None = None, *, scale: Tensor | None = None) -> Tensor:
    found = ids * 2 if mask is None else ids * mask
    return found if scale is None else found * scale


def with_rest(self: Any, ids: Tensor, *others: Tensor, **named: Any) -> Tensor:
    return sum((*others, *named.values()), ids * 2)


def only_by_position(self: Any, ids: Tensor, /, mask: Tensor | None = None, *, scale: Tensor | None = None) -> Tensor:
    return scale_and_shift(self, ids, mask, scale=scale)


def net_of(forward: Callable[..., Any]) -> nn.Module:
    return type("Net", (nn.Module,), {"forward": forward, "__module__": __name__})()


def eager(net: nn.Module, *args: Any, **kwargs: Any) -> Any:
    with torch.no_grad():
        return net.forward(*args, **kwargs)


ALL = scale_and_shift
FORMS: dict[str, tuple[Callable[..., Any], list[tuple[tuple[Any, ...], dict[str, Any]]]]] = {
    "tells given": (
        tells_given(ALL),
        [((X, X), {}), ((X,), {"mask": X}), ((X,), {"mask": None}), ((X,), {"mask": X, "doubled": True})],
    ),
    "with rest": (hides_all(with_rest), [((X,), {}), ((X, X, X), {}), ((X, X), {"named": X})]),
    "only by position": (hides_all(only_by_position), [((X,), {}), ((X,), {"mask": X, "scale": X})]),
    "inference_mode": (torch.inference_mode()(hides_all(ALL)), [((X, X), {}), ((), {"ids": X, "mask": X})]),
}


@pytest.mark.parametrize("form", FORMS)
def test_calls_of_all_forms_are_as_eager_and_share_one_entry(cache_dir: Path, form: str) -> None:
    forward, calls = FORMS[form]
    for launch in range(2):
        net = net_of(forward)
        served = gearcache.attach(net, dynamic=False, config=strict_config())
        for args, kwargs in [*calls, *calls]:
            torch.testing.assert_close(net(*args, **kwargs), eager(net, *args, **kwargs), rtol=0, atol=0)
        assert served.stats.calls == 2 * len(calls)
        assert served.stats.eager_calls == 0
        assert (served.stats.traces == 0) == bool(launch)
        gears = " ".join(served.stats.gears)
        assert "args[" not in gears
    assert len(list(cache_dir.rglob("manifest.msgpack"))) == 1


def test_gears_are_named_as_the_user_knows_them(cache_dir: Path) -> None:
    net = net_of(hides_all(ALL))
    gears = {"ids": {0: [2, 4]}, "mask": {0: [2, 4]}}
    served = gearcache.attach(net, gears=gears, config=strict_config())
    for args, kwargs in (((), {"ids": X, "mask": X + 1}), ((X, X + 1), {}), ((X,), {"mask": X + 1})):
        torch.testing.assert_close(net(*args, **kwargs), eager(net, *args, **kwargs), rtol=0, atol=0)
    assert served.stats.gears == {"ids.size(0)=2, mask.size(0)=2": 3, "ids.size(0)=4, mask.size(0)=4": 0}
    with pytest.raises(gearcache.UnknownGear, match=r"ids.size\(0\)=3; allowed: ids.size\(0\)=2; ids.size\(0\)=4"):
        net(ids=torch.ones(3, 4), mask=torch.zeros(3, 4))
    readable = gearcache.readable_cache(served.entry_path, print_output=False)
    assert "args[" not in readable


def test_an_optional_argument_that_is_not_given_has_no_gear(cache_dir: Path) -> None:
    net = net_of(hides_all(ALL))
    served = gearcache.attach(net, gears={"ids": {0: [2, 4]}, "mask": {0: [2, 4]}}, config=strict_config())
    for args in ((X,), (X, None), (X, X), (X,)):
        torch.testing.assert_close(net(*args), eager(net, *args), rtol=0, atol=0)
    assert (served.stats.calls, served.stats.eager_calls) == (4, 0)


def test_an_argument_declared_as_none_need_not_be_given(cache_dir: Path) -> None:
    net = net_of(hides_all(ALL))
    served = gearcache.attach(net, config=strict_config())
    served.set_inputs(ids=gearcache.TensorSpec((2, 4), torch.float32), mask=None)
    for args in ((X,), (X, None), (X,)):
        torch.testing.assert_close(net(*args), eager(net, *args), rtol=0, atol=0)
    with pytest.raises(gearcache.InputError, match=r"mask.*None, as its spec says"):
        net(X, X)
    with pytest.raises(gearcache.InputError, match=r"ids.*not given"):
        net(mask=None)
    assert (served.stats.calls, served.stats.eager_calls) == (3, 0)


def test_arguments_declared_by_position_are_warmed_and_prewarmed_as_a_call_gives_them(cache_dir: Path) -> None:
    spec = gearcache.TensorSpec((2, 4), torch.float32)

    def declared() -> tuple[nn.Module, gearcache.Attachment]:
        net = net_of(tells_given(ALL))
        served = gearcache.attach(net, config=strict_config())
        served.set_inputs(spec, spec)
        return net, served

    net, served = declared()
    served.warm()
    served.warm(X, X + 1)
    torch.testing.assert_close(net(X, X + 1), eager(net, X, X + 1), rtol=0, atol=0)
    assert served.stats.traces == 1
    (entry,) = gearcache.prewarm(lambda: declared()[0], dry_run=True).entries
    assert (len(entry.present), entry.missing) == (1, [])


def test_a_missing_argument_is_told_as_the_forward_tells_it(cache_dir: Path) -> None:
    net = net_of(hides_all(ALL))
    gearcache.attach(net, config=strict_config())
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'ids'"):
        net(mask=X)
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        net(X, other=X)
    with pytest.raises(TypeError, match="3 positional arguments but 4"):
        net(X, X, X)


def scaled(by: float) -> Callable[..., Any]:
    def decorate(forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            return forward(self, *args, **kwargs) * by

        return wrapper

    return decorate


def test_what_a_decorator_closes_over_is_evidence(cache_dir: Path) -> None:
    traces = []
    for by in (2.0, 3.0, 2.0, 3.0):
        net = net_of(scaled(by)(ALL))
        served = gearcache.attach(net, config=strict_config())
        assert torch.equal(net(ids=X), X * 2 * by)
        traces.append(served.stats.traces)
    assert traces == [1, 1, 0, 0]
    assert len(list(cache_dir.rglob("manifest.msgpack"))) == 1
