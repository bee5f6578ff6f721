"""Stand-ins: what is seen of tensors without memory while they are in place, and that all is as before afterwards."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from gearcache.ge_cache.capture.stand_ins import stand_ins

CPU = torch.device("cpu")


def described(tensor: torch.Tensor) -> tuple[object, ...]:
    shape = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
    return type(tensor), tensor.device.type, tensor.dtype, *shape, tensor.requires_grad, dict(vars(tensor))


def on_meta() -> list[torch.Tensor]:
    base = torch.empty(4, 6, device="meta", dtype=torch.bfloat16)
    marked = torch.empty(2, device="meta")
    marked.dim_gears = {0: [1]}
    return [
        base,
        base[1:3, ::2],
        base.t(),
        nn.Parameter(torch.empty(3, device="meta")),
        nn.Parameter(torch.empty(3, device="meta"), requires_grad=False),
        nn.Buffer(torch.empty(3, device="meta")),
        torch.empty(0, device="meta"),
        torch.empty(2, 3, device="meta").expand(4, 2, 3),
        torch.empty((1024, 1024), device="meta"),
        marked,
    ]


def test_tensors_on_meta_are_real_ones_for_a_while() -> None:
    tensors = on_meta()
    before = [described(tensor) for tensor in tensors]
    with stand_ins(CPU) as number:
        assert number >= len(tensors)
        for tensor, (kind, _, *rest) in zip(tensors, before, strict=True):
            assert described(tensor) == (kind, "cpu", *rest)
        tensors[8].zero_()
        assert tensors[8].sum() == 0
    assert [described(tensor) for tensor in tensors] == before


def test_fake_tensors_become_plain_ones_and_fake_again() -> None:
    with FakeTensorMode():
        layer = nn.Linear(3, 4)
        tensor = torch.zeros(2)
    tensor.dim_gears = {0: [2, 4]}
    before = [described(item) for item in (layer.weight, tensor)]
    with stand_ins(CPU):
        assert type(layer.weight) is nn.Parameter
        assert type(tensor) is torch.Tensor
        assert tensor.dim_gears == {0: [2, 4]}
        assert layer(torch.ones(2, 3)).shape == (2, 4)
    assert [described(item) for item in (layer.weight, tensor)] == before
    assert isinstance(tensor, FakeTensor)
    assert isinstance(layer.weight, nn.Parameter)


def test_an_error_inside_takes_everything_back() -> None:
    tensors = on_meta()
    before = [described(tensor) for tensor in tensors]
    with pytest.raises(KeyError), torch.device("meta"), stand_ins(CPU):
        raise KeyError
    assert [described(tensor) for tensor in tensors] == before
