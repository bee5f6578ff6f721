"""Views of fake tensors in a turn have the strides that the kernels give to real ones."""

from __future__ import annotations

import contextlib

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from gearcache.ge_cache.capture.turns import turn
from gearcache.ge_cache.private_torch.fake import fake_mode
from tests.support.sampled import examples

Layout = tuple[list[int], list[int], list[int]]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Return sizes and strides of a tensor, and the sizes of a view of it."""
    sizes = draw(st.lists(st.sampled_from([0, 1, 1, 2, 3, 4]), min_size=1, max_size=4))
    dims = draw(st.permutations(range(len(sizes))))
    strides, step = [0] * len(sizes), 1
    for dim in dims:
        strides[dim] = step * draw(st.sampled_from([1, 1, 1, 2]))
        step = strides[dim] * max(sizes[dim], 1)
    wanted = draw(st.permutations([part for size in sizes for part in ([2, 2] if size == 4 else [size])]))
    return sizes, strides, [*wanted, *draw(st.lists(st.just(1), max_size=2))]


@settings(max_examples=examples(50), deadline=None)
@given(layouts())
def test_a_view_has_the_strides_of_the_kernel(layout: Layout) -> None:
    sizes, strides, wanted = layout
    real = torch.empty_strided(sizes, strides)
    expected = None
    with contextlib.suppress(RuntimeError):
        expected = real.view(wanted)
    assume(expected is not None)
    assert expected is not None
    with turn():
        fake = fake_mode().from_tensor(real)
        for found in (fake.view(wanted), fake.reshape(wanted)):
            assert (found.shape, found.stride()) == (expected.shape, expected.stride())


def test_what_torch_has_kept_of_a_view_outside_of_a_turn_is_no_answer_in_one() -> None:
    real = torch.empty_strided((1, 1, 2), (2, 1, 1))
    expected = real.view(1, 1, 2, 1).stride()
    fake_mode().from_tensor(real).view(1, 1, 2, 1)  # as under `torch.compile`
    with turn():
        assert fake_mode().from_tensor(real).view(1, 1, 2, 1).stride() == expected
    assert type(FakeTensorMode.cache) is dict
