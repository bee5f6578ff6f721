"""What private functions of torch do where no other test of gearcache would show it.

That they are there, with the parameters on record, is shown for all of them by `tests/test_torch_release.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.turns import turn
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.private_torch import dynamo as private_dynamo
from gearcache.ge_cache.private_torch import fake as private_fake
from gearcache.ge_cache.private_torch import jobs as private_jobs
from gearcache.ge_cache.private_torch import module_hooks as private_hooks
from gearcache.ge_cache.private_torch import shapes as private_shapes
from gearcache.ge_cache.private_torch import symbols as private_symbols
from gearcache.ge_cache.private_torch import under_way as private_under_way


def test_traces_compute_tensors_of_known_values_by_torchs_own_operators_alone(tmp_path: Path) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.library._scoped_library("gearcache_computed", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        ran: list[object] = []
        library.impl("twice", lambda x: ran.append(x) or x * 2, "CPU")
        library.impl("twice", lambda x: torch.empty_like(x), "Meta")

        def work(x: torch.Tensor) -> torch.Tensor:
            own = torch.tensor(3.0) + 1
            assert own.item() == 4.0
            return x * torch.ops.gearcache_computed.twice(own)

        with turn(), private_fake.fake_mode() as mode:
            made = make_fx(work, _allow_non_fake_inputs=True)(torch.empty(2))
        assert (ran, "gearcache_computed.twice" in made.code) == ([], True)
        del mode


class _NothingDispatched(TorchDispatchMode):
    """Stands for the fake tensors of a trace, which fail at a tensor that is not fake."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} was dispatched")


@pytest.mark.parametrize(
    "within",
    [
        lambda: torch._C._IncludeDispatchKeyGuard(torch._C.DispatchKey.Meta),
        torch._C._AutoDispatchBelowAutograd,
        torch.inference_mode,
    ],
    ids=["fake kernel", "below autograd", "inference mode"],
)
def test_the_memory_of_tensors_is_exchanged_and_given_up_unseen_by_modes(within: Callable[[], Any]) -> None:
    runner = SimpleNamespace(update_constant_buffer=lambda *given: None)
    for dtype in (torch.float32, torch.int8):
        bound, other = torch.ones(3, dtype=dtype), torch.zeros(3, dtype=dtype)
        nothing = private_core.without_memory({"x": bound})
        with _NothingDispatched(), within():
            private_core.rebind(runner, {"x": bound}, {"x": other})
        assert bound.data_ptr() == other.data_ptr()
        with _NothingDispatched(), within():
            assert private_core.emptied({"x": bound}, nothing)
        assert (bound.numel(), other.numel(), bound.dtype) == (0, 3, dtype)


def test_symbolic_inputs_tell_what_a_compiler_assumed() -> None:
    symbolic = private_symbols.SymbolicInputs({"s0": 6, "s1": 6})
    first = symbolic.tensor([symbolic.sizes["s0"], 4], [4, 1], torch.float32, torch.device("cpu"))
    second = symbolic.tensor([symbolic.sizes["s1"], 4], [4, 1], torch.float32, torch.device("cpu"))
    before = symbolic.assumptions()
    _ = first + second
    added = [text for text in symbolic.assumptions() if text not in before]
    assert len(added) == 1
    assert {"s0", "s1"} == {word for word in added[0].replace("(", " ").replace(")", " ").split() if word[0] == "s"}


def test_the_current_stream_is_only_kept_where_a_graph_uses_it() -> None:
    from torch._dynamo import graph_bytecode_inputs as noted

    assert callable(noted.get_external_object_by_index)
    graph = torch.fx.Graph()
    graph.output((graph.call_function(torch.ops.aten.neg.default, (graph.placeholder("x"),)),))
    noted.register_graph_created_object(graph, lambda index, codegen: None)
    assert private_under_way.forget_unused_streams(torch.fx.GraphModule({}, graph))
    assert not noted.has_user_objects()
    using = torch.fx.Graph()
    using.output((using.call_function(noted.get_external_object_by_index, (0,)),))
    assert not private_under_way.forget_unused_streams(torch.fx.GraphModule({}, using))


def test_an_int_that_is_traced_without_a_value_is_refused() -> None:
    from torch._dynamo.source import LocalSource

    env = private_fake.shape_env()
    with torch.compiler.config.patch(unbacked_sources="L['n']"):
        symbol = env.create_unbacked_symint().node.expr
    env.var_to_sources[symbol] = [LocalSource("n")]
    with pytest.raises(CaptureError, match=r"`L\['n'\]` is an int that torch was told to trace without a value"):
        private_symbols.number_sources(env)


def test_the_size_of_a_tensor_is_found_by_its_symbol() -> None:
    from torch._dynamo.source import LocalSource, TensorProperty, TensorPropertySource
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    env, x = private_fake.shape_env(), LocalSource("x")
    size, stride = (TensorPropertySource(x, prop, 1) for prop in (TensorProperty.SIZE, TensorProperty.STRIDE))
    wide, long = (env.create_symbol(hint, source, DimDynamic.DYNAMIC) for hint, source in ((5, size), (7, stride)))
    assert private_symbols.size_source(env, wide) == (x, 1)
    with pytest.raises(CaptureError, match="what is no size of a tensor"):
        private_symbols.size_source(env, long)


def test_python_decomposes_composite_operators_where_sizes_are_symbolic() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    symbolic = private_symbols.SymbolicInputs({"s0": 3})
    x = symbolic.tensor([symbolic.sizes["s0"], 1, 4], [4, 4, 1], torch.float32, torch.device("cpu"))
    with symbolic.mode:
        weight, bias = torch.empty(2, 4), torch.empty(2)
    with symbolic.mode, torch.no_grad(), private_fake.python_dispatcher():
        make_fx(torch.ops.aten.linear.default, _allow_non_fake_inputs=True)(x, weight, bias)
    assert not [text for text in symbolic.assumptions() if "==" in text]


def test_marks_on_dims_with_gears_are_not_read_and_taken_off_alone() -> None:
    from torch._dynamo import mark_dynamic, mark_static

    x = torch.ones(4, 4, 4)
    x.dim_gears = {0: [2, 4], 2: [2, 4]}  # type: ignore[attr-defined]
    private_dynamo.mark_for_compile(x, [0])
    mark_dynamic(x, 1, min=2, max=8)
    private_dynamo.mark_for_compile(x, [1])
    mark_static(x, 2)
    left = [["x", [["_dynamo_dynamic_indices", [1]], ["_dynamo_dynamic_range", [[1, 2, 8]]]]]]
    assert private_shapes.shape_marks({"x": x}) == left
    marks = dict(vars(x))
    assert marks["_dynamo_dynamic_indices"] == {0, 1}
    with private_shapes.unmarked_gears([x]):
        assert vars(x)["_dynamo_dynamic_indices"] == {1}
        assert "_dynamo_static_indices" not in vars(x)
    assert vars(x) == marks


def test_hooks_lie_in_dictionaries_of_a_module_and_of_all() -> None:
    module = torch.nn.Linear(2, 2)
    assert not private_hooks.has_hooks(module)
    of_all: Any = torch.nn.modules.module
    for register in (
        module.register_forward_hook,
        module.register_forward_pre_hook,
        module.register_full_backward_hook,
        module.register_full_backward_pre_hook,
        of_all.register_module_forward_hook,
        of_all.register_module_forward_pre_hook,
        of_all.register_module_full_backward_hook,
        of_all.register_module_full_backward_pre_hook,
    ):
        handle = register(lambda *given: None)
        assert private_hooks.has_hooks(module), register
        assert len(private_hooks.backward_hooks(module)) == ("backward" in register.__name__)
        handle.remove()
        assert not private_hooks.has_hooks(module), register


def test_groups_that_are_acted_exist_for_a_while_beside_those_of_the_job(tmp_path: Any) -> None:
    from torch.distributed import distributed_c10d as core

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        with private_jobs.acted_groups({"acted": 4}):
            group = core._resolve_process_group("acted")  # as operators, Dynamo and Inductor find them
            assert (group.size(), group.rank()) == (4, 0)
            assert torch.distributed.get_world_size() == 1
        with pytest.raises(Exception, match="acted"):
            core._resolve_process_group("acted")
    finally:
        torch.distributed.destroy_process_group()
