"""ATen graphs survive their plain form, as Python and as FX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from msgspec import msgpack
from torch.fx.experimental.proxy_tensor import make_fx

from gearcache.errors import CaptureError
from gearcache.ge_cache.aten import (
    decode_atom,
    decode_tensor,
    encode_graph,
    encode_tensor,
    resolve_target,
    to_module,
    to_python,
)

CONSTANT = torch.arange(4.0)


def _norm(x: torch.Tensor) -> list[torch.Tensor]:
    return [torch.nn.functional.layer_norm(x, (4,)), x.to(torch.float64), x[:, 1:3], x.clamp(min=0.5)]


def _constant(x: torch.Tensor) -> list[torch.Tensor]:
    return [x + CONSTANT, torch.full((2,), 1.5, dtype=torch.float16)]


def _in_place(x: torch.Tensor) -> list[torch.Tensor]:
    x.add_(1)
    return [x * 2]


@pytest.mark.parametrize("function", [_norm, _constant, _in_place])
def test_a_graph_gives_the_same_in_every_form(function: Callable[[torch.Tensor], list[torch.Tensor]]) -> None:
    x = torch.randn(3, 4)
    module = make_fx(function)(x.clone())
    plain = msgpack.decode(msgpack.encode(encode_graph("m", module)))
    constants = {name: decode_tensor(item) for name, item in plain["constants"].items()}
    expected_input, expected = (copy := x.clone()), function(copy)
    for run in (to_python(plain, constants), to_module(plain, constants)):
        given = x.clone()
        for found, wanted in zip(run(given), expected, strict=True):
            assert found.dtype == wanted.dtype
            assert torch.equal(found, wanted)
        assert torch.equal(given, expected_input)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(2, 3),
        torch.randn(3, 2).t(),
        torch.randn(2, 0),
        torch.randn(2).to(torch.bfloat16),
        torch.randn(2, dtype=torch.complex64),
    ],
    ids=lambda tensor: f"{tensor.dtype} {tuple(tensor.shape)}",
)
def test_a_constant_tensor_survives(tensor: torch.Tensor) -> None:
    again = decode_tensor(msgpack.decode(msgpack.encode(encode_tensor(tensor))))
    assert again.dtype == tensor.dtype
    assert torch.equal(again, tensor)


def test_a_target_that_this_torch_lacks_is_a_lookup_error() -> None:
    assert resolve_target("aten::add.Tensor") is torch.ops.aten.add.Tensor
    for name in ("aten::no_such_operator.default", "nothing::add.Tensor", "os.system"):
        with pytest.raises(LookupError):
            resolve_target(name)


def test_a_target_outside_the_list_cannot_be_stored() -> None:
    graph = torch.fx.Graph()
    graph.output([graph.call_function(print, ("x",))])
    with pytest.raises(CaptureError, match="`m` cannot be cached: its graph calls"):
        encode_graph("m", torch.fx.GraphModule(torch.nn.Module(), graph))


@pytest.mark.parametrize(("kind", "item"), [("code", "x"), ("slice", ["x", None, None]), ("", None)])
def test_an_unknown_tag_is_refused(kind: str, item: Any) -> None:
    with pytest.raises(ValueError, match="unknown tag"):
        decode_atom(kind, item)
