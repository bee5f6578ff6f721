"""An attachment to which no call of its module has come says so in words: a direct forward leaves no trace."""

from __future__ import annotations

import copy
import pickle
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import AlreadyAttached, GradientRequired
from tests.support.scenarios import strict_config

X = torch.arange(8.0).view(2, 4)
WORDS = "no call of the module has come here; a direct `model.forward(...)` is not served: call the module itself"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).relu()


class Block(Net):
    """Has a module of its own, so that it is worth an entry."""


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def attached(module: nn.Module, **options: Any) -> Any:
    return gearcache.attach(module.eval(), config=strict_config(), **options)


def says_so(served: Any) -> bool:
    texts = [repr(served), served.explain()]
    told = [WORDS in text for text in texts]
    assert len(set(told)) == 1, texts
    assert all("no call" in text for text in texts) == told[0]
    return told[0]


def test_direct_forwards_and_warm_are_no_calls(cache_dir: Path) -> None:
    served = attached(Net())
    assert repr(served) == f"<attached Net.forward, nothing loaded; {WORDS}>"
    with torch.no_grad():
        served.module.forward(X)
        assert says_so(served)
        assert served.stats.calls == 0
        served.warm(X)
        assert says_so(served)
        served.module(X)
    assert not says_so(served)
    assert served.was_called


def _by_name(served: Any) -> None:
    served.module(x=X)


def _through_what_attach_returned(served: Any) -> None:
    served(X)


def _with_a_hook(served: Any) -> None:
    served.module.register_forward_hook(lambda module, args, result: None)
    served.module(X)


def _refused(served: Any) -> None:
    with torch.enable_grad(), pytest.raises(GradientRequired):
        served.module(X.clone().requires_grad_())


def _left_to_the_forward(served: Any) -> None:
    with torch.compiler.set_stance("force_eager"):
        served.module(X)


def _from_a_parent(served: Any) -> None:
    nn.Sequential(served.module)(X)


CALLS = [
    _by_name,
    _through_what_attach_returned,
    _with_a_hook,
    _refused,
    _left_to_the_forward,
    _from_a_parent,
]


@pytest.mark.parametrize("call", CALLS)
def test_any_call_of_the_module_counts(call: Callable[[Any], None], cache_dir: Path) -> None:
    served = attached(Net())
    with torch.no_grad():
        call(served)
    assert not says_so(served)


def test_what_was_called_stays_so(cache_dir: Path) -> None:
    served = attached(Net())
    with torch.no_grad():
        expected = served.module(X)
        served.refresh()
        assert not says_so(served)
        served.detach()
        served.attach()
        assert not says_so(served)
        served.module.forward = types.MethodType(Net.forward, served.module)
        served._follow()  # as the next call would: its counters begin anew
        assert (served.stats.calls, says_so(served)) == (0, False)
        assert torch.equal(served.module(X), expected)
    assert not says_so(served)


def test_copies_begin_anew(cache_dir: Path) -> None:
    served = attached(Net())
    with torch.no_grad():
        served.module(X)
    for other in (copy.deepcopy(served), pickle.loads(pickle.dumps(served))):
        assert not other.was_called
        assert repr(other).endswith(
            "; no call of the module has come here; a direct `model.forward(...)` is not served>"
        )
        other.attach()
        assert says_so(other)


def test_another_tracer_over_the_module_is_no_call(cache_dir: Path) -> None:
    served = attached(Net())
    torch.export.export(served.module, (X,))
    with torch.no_grad():
        torch.compile(served.module, backend="eager", fullgraph=True)(X)
    assert says_so(served)


def test_blocks_say_it_together_and_each_for_itself(cache_dir: Path) -> None:
    served = attached(Stack(), repeated="layers")
    words = (
        "no call of the blocks has come here; a direct `block.forward(...)` is not served: call the blocks themselves"
    )
    assert repr(served).endswith(f" bound; {words}>")
    assert served.explain().count(WORDS) == 2
    with torch.no_grad():
        served.module.layers[0](X)
        assert "no call" not in repr(served)
        assert served.explain().count(WORDS) == 1
        served.module(X)
    assert "no call" not in served.explain()


def test_an_error_about_two_attachments_keeps_to_its_matter() -> None:
    served = attached(Net())
    with pytest.raises(AlreadyAttached) as caught:
        attached(served.module)
    assert "(<attached Net.forward, nothing loaded>)" in str(caught.value)
