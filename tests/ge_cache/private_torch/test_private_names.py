"""Every private name of torch that gearcache uses still is what it is taken for: one test each."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.numbers import NO_NUMBERS, WantedNumbers
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.private_torch import dynamo as private_dynamo
from gearcache.ge_cache.private_torch import fake as private_fake
from gearcache.ge_cache.private_torch import grad_nodes as private_grad_nodes
from gearcache.ge_cache.private_torch import jobs as private_jobs
from gearcache.ge_cache.private_torch import module_hooks as private_hooks
from gearcache.ge_cache.private_torch import shapes as private_shapes
from gearcache.ge_cache.private_torch import symbols as private_symbols
from gearcache.ge_cache.private_torch import threads as private_threads
from gearcache.ge_cache.private_torch import under_way as private_under_way
from gearcache.ge_cache.private_torch.constant_tensors import only_own_operators_computed
from gearcache.ge_cache.private_torch.renamed import name_here
from gearcache.guards.dispatch.tensors.native import is_operator


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

        with private_fake.fake_mode() as mode, only_own_operators_computed():
            made = make_fx(work, _allow_non_fake_inputs=True)(torch.empty(2))
        assert (ran, "gearcache_computed.twice" in made.code) == ([], True)
        del mode


def test_the_runner_of_a_shared_object_takes_a_path_and_a_count() -> None:
    runner = torch._C._aoti.AOTIModelContainerRunnerCpu
    for name in ("run", "update_constant_buffer", "get_constant_names_to_original_fqns"):
        assert hasattr(runner, name)
    with pytest.raises(RuntimeError):
        private_core.aoti_runner("/nothing.so")


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
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_the_memory_of_tensors_is_exchanged_and_given_up_unseen_by_modes(
    dtype: torch.dtype, within: Callable[[], Any]
) -> None:
    runner = SimpleNamespace(update_constant_buffer=lambda *given: None)
    bound, other = torch.ones(3, dtype=dtype), torch.zeros(3, dtype=dtype)
    nothing = private_core.without_memory({"x": bound})
    with _NothingDispatched(), within():
        private_core.rebind(runner, {"x": bound}, {"x": other})
    assert bound.data_ptr() == other.data_ptr()
    with _NothingDispatched(), within():
        assert private_core.emptied({"x": bound}, nothing)
    assert (bound.numel(), other.numel(), bound.dtype) == (0, 3, dtype)


def test_views_have_the_storage_key_of_their_base_also_when_fake() -> None:
    x, y = torch.ones(4), torch.ones(4)
    assert private_core.storage_key(x) == private_core.storage_key(x[1:]) != private_core.storage_key(y)
    with private_fake.fake_mode():
        fake = torch.ones(4)
    assert private_core.storage_key(fake) == private_core.storage_key(fake.view(2, 2))


def test_the_cpu_capability_is_a_word() -> None:
    assert private_core.cpu_capability()


def test_overloads_are_of_the_class_that_is_looked_for() -> None:
    assert isinstance(torch.ops.aten.add.Tensor, private_core.OpOverload)


def test_active_torch_function_modes_are_counted() -> None:
    class Mode(torch.overrides.TorchFunctionMode):
        pass

    before = private_core.torch_function_modes()
    with Mode():
        assert private_core.torch_function_modes() == before + 1
    assert private_core.torch_function_modes() == before


def nothing() -> None:
    """A function without arguments."""


def test_capture_settings_are_known_to_dynamo_and_undone() -> None:
    import torch._dynamo.config as config

    settings = ("install_free_tensors", "specialize_int", "specialize_float", "assume_static_by_default")
    values = [getattr(config, name) for name in settings]
    with private_dynamo.capture_settings(WantedNumbers(NO_NUMBERS), dynamic=True):
        assert (config.install_free_tensors, config.assume_static_by_default) == (True, False)
    assert [getattr(config, name) for name in settings] == values


def test_a_frame_is_compiled_to_bytecode_guards_and_sources() -> None:
    graphs: list[torch.fx.GraphModule] = []
    begun: list[Any] = []

    def method(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def keep(module: torch.fx.GraphModule, inputs: list[Any]) -> torch.fx.GraphModule:
        assert private_under_way.tracing_context().fake_mode.shape_env is not None
        graphs.append(module)
        return module

    with torch.no_grad(), private_dynamo.capture_settings(WantedNumbers(NO_NUMBERS), dynamic=True):
        frame, captured = private_dynamo.compile_frame(method, (torch.ones(3),), {}, keep, begun.append)[:2]
    assert frame.code is method.__code__
    assert begun == [frame]
    assert len(graphs) == 1
    for name in ("bytecode", "import_sources", "output_graph", "f_globals", "traced_code"):
        assert hasattr(captured, name)


def test_dynamo_refuses_with_the_errors_that_are_caught() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x

    with (
        torch.no_grad(),
        private_dynamo.capture_settings(WantedNumbers(NO_NUMBERS), dynamic=True),
        pytest.raises(private_dynamo.dynamo_errors()),
    ):
        private_dynamo.compile_frame(broken, (torch.ones(3),), {}, lambda module, inputs: module, [].append)


def test_guard_kinds_are_listed() -> None:
    assert {"TENSOR_MATCH", "SHAPE_ENV", "CONSTANT_MATCH"} <= set(private_dynamo.guard_kinds())


def test_a_fake_mode_makes_tensors_without_data() -> None:
    with private_fake.fake_mode() as mode:
        made = torch.empty(2, 3)
    assert made.fake_mode is mode
    assert mode.from_tensor(torch.ones(2), static_shapes=True).shape == (2,)


def test_switching_autograd_is_recognised_as_a_node() -> None:
    graph = torch.fx.Graph()
    switch = graph.call_function(torch._C._set_grad_enabled, (False,))
    other = graph.call_function(torch.relu, (graph.placeholder("x"),))
    assert private_grad_nodes.is_grad_switch(switch)
    assert not private_grad_nodes.is_grad_switch(other)


def test_symbolic_inputs_tell_what_a_compiler_assumed() -> None:
    symbolic = private_symbols.SymbolicInputs({"s0": 6, "s1": 6})
    first = symbolic.tensor([symbolic.sizes["s0"], 4], [4, 1], torch.float32, torch.device("cpu"))
    second = symbolic.tensor([symbolic.sizes["s1"], 4], [4, 1], torch.float32, torch.device("cpu"))
    before = symbolic.assumptions()
    _ = first + second
    added = [text for text in symbolic.assumptions() if text not in before]
    assert len(added) == 1
    assert {"s0", "s1"} == {word for word in added[0].replace("(", " ").replace(")", " ").split() if word[0] == "s"}


def test_expressions_are_printed_as_python() -> None:
    import sympy

    s0 = sympy.Symbol("s0", integer=True, positive=True)
    assert private_symbols.print_expression(2 * s0) == "2*s0"


def test_fake_tensors_are_told_from_others() -> None:
    with private_fake.fake_mode():
        fake = torch.ones(1)
    assert private_fake.is_fake(fake)
    assert not private_fake.is_fake(torch.ones(1, device="meta"))


def test_tensors_exchange_what_they_are_and_keep_their_identity() -> None:
    left, right = torch.ones(2), torch.nn.Parameter(torch.zeros(3))
    left.mark = 1
    private_fake.swap_tensors(left, right)
    assert (type(left), left.shape, left.requires_grad, left.mark) == (torch.nn.Parameter, (3,), True, 1)
    assert (type(right), right.tolist()) == (torch.Tensor, [1, 1])


def test_modes_that_make_tensors_without_data_can_be_turned_off() -> None:
    with torch.device("meta"), private_fake.fake_mode(), private_fake.without_meta_modes():
        made = torch.ones(1)
    assert type(made) is torch.Tensor
    assert made.device.type == "cpu"


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


def test_ints_that_stay_symbolic_are_found_with_all_that_was_assumed_about_them() -> None:
    from torch._dynamo.source import LocalSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    env = private_fake.shape_env()
    n = env.create_unspecified_symint_and_symbol(5, LocalSource("n"), DimDynamic.DYNAMIC)
    ((symbol, source),) = private_symbols.number_sources(env)
    assert source.name == "L['n']"
    assert private_symbols.assumed(env, [symbol]) == []
    assert not bool(n > 7)
    texts = {private_symbols.print_expression(item) for item in private_symbols.assumed(env, [symbol])}
    assert texts == {f"{symbol} <= 7"}
    assert private_symbols.range_of(env, symbol) == (None, 7)
    assert not bool(n > 9), "what follows from a range is assumed once"
    assert [private_symbols.print_expression(item) for item in private_symbols.assumed(env, [symbol])] == [
        f"{symbol} <= 7"
    ]
    assert private_symbols.fixed_value(env, symbol) is None
    assert bool(n == 5)
    assert private_symbols.fixed_value(env, symbol) == 5


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


def test_a_compiler_finds_the_fake_mode_that_traces() -> None:
    from torch._guards import detect_fake_mode

    mode = private_fake.fake_mode()
    with private_fake.tracing(mode):
        assert detect_fake_mode() is mode


def test_python_decomposes_composite_operators_where_sizes_are_symbolic() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    symbolic = private_symbols.SymbolicInputs({"s0": 3})
    x = symbolic.tensor([symbolic.sizes["s0"], 1, 4], [4, 4, 1], torch.float32, torch.device("cpu"))
    with symbolic.mode:
        weight, bias = torch.empty(2, 4), torch.empty(2)
    with symbolic.mode, torch.no_grad(), private_fake.python_dispatcher():
        make_fx(torch.ops.aten.linear.default, _allow_non_fake_inputs=True)(x, weight, bias)
    assert not [text for text in symbolic.assumptions() if "==" in text]


def test_a_size_symbol_is_a_positive_integer() -> None:
    symbol = private_symbols.size_symbol("s0")
    assert symbol.is_integer
    assert symbol.is_positive


def test_dynamo_tells_an_observer_what_it_inlines_and_folds() -> None:
    from torch._dynamo.symbolic_convert import InliningInstructionTranslator as Translator
    from torch._dynamo.variables import functions, nn_module
    from torch._dynamo.variables.torch import TorchInGraphFunctionVariable as Variable

    parameters = list(inspect.signature(Translator.build_inline_tracer).parameters)
    assert parameters[:4] == ["parent", "func", "args", "kwargs"]
    assert list(inspect.signature(Variable.call_function).parameters) == ["self", "tx", "args", "kwargs"]
    assert hasattr(Variable, "can_constant_fold_through")
    assert nn_module.invoke_and_store_as_constant is functions.invoke_and_store_as_constant
    names = list(inspect.signature(functions.invoke_and_store_as_constant).parameters)
    assert names == ["tx", "fn", "name", "args", "kwargs"]


def test_a_change_of_stance_is_told_and_read() -> None:
    from torch._dynamo import decorators, eval_frame

    seen: list[tuple[str, Any]] = []
    original = eval_frame._set_stance
    private_shapes.watch_stance(lambda: seen.append(private_shapes.stance()))
    try:
        with torch.compiler.set_stance("fail_on_recompile"):
            assert private_shapes.stance() == ("fail_on_recompile", None)
        assert seen[-2:] == [("fail_on_recompile", None), ("default", None)]
        assert decorators._set_stance is eval_frame._set_stance
    finally:
        eval_frame._set_stance = decorators._set_stance = original


def test_marks_on_tensors_are_read_taken_off_and_put_back() -> None:
    from torch._dynamo import mark_dynamic, mark_static, maybe_mark_dynamic
    from torch._dynamo.decorators import mark_unbacked

    x, y = torch.ones(4, 4, 4), torch.ones(4, 4)
    mark_dynamic(x, 0, min=2, max=8)
    maybe_mark_dynamic(x, 1)
    mark_static(x, 2)
    mark_unbacked(y, 0, min=1, max=9)
    marks = private_shapes.shape_marks({"y": y, "x": x, "z": torch.ones(4)})
    assert [path for path, _ in marks] == ["x", "y"]
    assert dict(marks[0][1]) == {
        "_dynamo_dynamic_indices": [0],
        "_dynamo_dynamic_range": [[0, 2, 8]],
        "_dynamo_weak_dynamic_indices": [1],
        "_dynamo_static_indices": [2],
    }
    assert dict(marks[1][1]) == {"_dynamo_unbacked_indices": [0], "_dynamo_unbacked_bounds": [[0, 1, 9]]}
    with private_shapes.unmarked([x, y]):
        assert private_shapes.shape_marks({"x": x, "y": y}) == []
    assert private_shapes.shape_marks({"y": y, "x": x}) == marks


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


def test_settings_that_name_dynamic_dims_are_read_where_they_are_set() -> None:
    assert private_shapes.shape_sources() == {}
    with torch.compiler.config.patch(dynamic_sources="L['x']", unbacked_sources="L['y']", dynamic_values="7"):
        found = private_shapes.shape_sources()
    assert found == {"dynamic_sources": "L['x']", "unbacked_sources": "L['y']", "dynamic_values": "7"}


def test_operators_are_known() -> None:
    assert is_operator(torch.ops.aten.add.Tensor)
    assert is_operator(torch.ops.aten.add)
    assert not is_operator(torch.add)


def test_a_process_group_is_found_by_its_name(tmp_path: Any) -> None:
    assert private_core.process_group_ranks("0") is None
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        assert private_core.process_group_ranks(torch.distributed.group.WORLD.group_name) == [0]
        assert private_core.process_group_ranks("no such group") is None
    finally:
        torch.distributed.destroy_process_group()


def test_a_rank_without_its_job_has_its_numbers_and_collectives_that_do_nothing() -> None:
    private_jobs.start_alone(torch.distributed.init_process_group, 2, 3)
    try:
        assert (torch.distributed.get_rank(), torch.distributed.get_world_size()) == (2, 3)
        assert torch.distributed.group.WORLD.group_name == "0", "as the first group of a real job is called"
        x = torch.ones(2)
        torch.distributed.all_reduce(x)
        assert torch.equal(x, torch.ones(2))
    finally:
        torch.distributed.destroy_process_group()


def test_plain_modes_make_normal_tensors_in_inference_mode_and_fakes_that_count_writes() -> None:
    with torch.inference_mode():
        weight = torch.ones(2)
        with private_fake.normal_modes():
            assert not torch.is_grad_enabled()
            assert not torch.ones(2).is_inference()
            fake = private_fake.fake_mode().from_tensor(weight)
            before = fake._version
            fake.add_(1)
            assert fake._version > before
        assert torch.is_inference_mode_enabled()
    assert torch.is_grad_enabled()


def test_dynamo_compiles_under_a_lock_that_may_be_held_and_freed_in_a_forked_child() -> None:
    lock = private_threads.compile_lock()
    assert not private_threads.is_owned(lock)
    with lock:
        assert private_threads.is_owned(lock)
        private_threads.free_compile_lock()
        assert private_threads.is_owned(lock), "the thread that forks keeps it"
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join()
    assert not lock.acquire(blocking=False)
    private_threads.free_compile_lock()
    assert lock.acquire(blocking=False)
    lock.release()


def test_an_own_recording_equals_a_plain_one_and_exchanges_nothing_in_the_process() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    call, find, seen = torch.nn.Module.__call__, torch.nn.Module.__getattr__, []
    net, x = torch.nn.Linear(2, 2), torch.ones(2, 2)

    def run(x: torch.Tensor) -> torch.Tensor:
        seen.append(private_core._is_fx_traced())
        seen.append(torch.nn.Module.__call__ is not call or torch.nn.Module.__getattr__ is not find)
        return torch.relu(net(x)) + 1

    with torch.no_grad():
        plain = make_fx(run, pre_dispatch=True)(x)
        assert seen == [True, True], "what `torch.fx` does"
        with private_threads.own_recording():
            own = make_fx(run, pre_dispatch=True)(x)
    assert seen[2:] == [False, False]
    assert str(own.graph) == str(plain.graph)
    assert own.state_dict().keys() == plain.state_dict().keys()


def test_own_guards_are_recorded_where_an_interrupt_has_left_them_suppressed() -> None:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    with ShapeEnv().suppress_guards():
        with private_threads.own_guards():
            assert not ShapeEnv._suppress_guards_tls()
            ShapeEnv()._suppress_guards_enter()  # and is interrupted
        assert ShapeEnv._suppress_guards_tls()
    assert not ShapeEnv._suppress_guards_tls()


def test_the_modes_before_dispatch_of_an_own_recording_are_of_its_thread() -> None:
    counts: list[int] = []

    def count() -> None:
        counts.append(torch._ops._len_torch_dispatch_stack_pre_dispatch())

    def run(x: torch.Tensor) -> torch.Tensor:
        count()
        thread = threading.Thread(target=count)
        thread.start()
        thread.join()
        return x + 1

    from torch.fx.experimental.proxy_tensor import make_fx

    with private_threads.own_recording():
        make_fx(run, pre_dispatch=True)(torch.ones(2))
    assert counts == [1, 0]
    assert type(torch._ops.mode_stack_state_for_pre_dispatch()).__module__ == "torch._ops"


def test_tracers_and_transforms_are_told() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    x, told = torch.ones(2), []

    def tell(x: Any) -> Any:
        told.append(private_core.is_traced())
        return x + 1

    tell(x)
    assert told == [False]
    make_fx(tell)(x)
    make_fx(tell, pre_dispatch=True)(x)
    torch.fx.symbolic_trace(tell)
    torch.vmap(tell)(x)
    torch.func.grad(lambda x: tell(x).sum())(x)
    torch.jit.trace(tell, x, check_trace=False)
    with FakeTensorMode():
        tell(torch.ones(2))
    with private_threads.compile_lock():
        tell(x)
    assert set(told[1:]) == {True}
    assert len(told) >= 9
    tell(x)
    assert told[-1] is False


def test_what_a_watched_trace_patches_is_there() -> None:
    from torch._dynamo.output_graph import OutputGraph
    from torch._dynamo.side_effects import SideEffects
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase
    from torch._dynamo.variables import object_protocol
    from torch._dynamo.variables.builder import VariableBuilder
    from torch._dynamo.variables.builtin import BuiltinVariable
    from torch._dynamo.variables.constant import FakeIdVariable
    from torch._dynamo.variables.misc import PythonModuleVariable
    from torch._dynamo.variables.tensor import TensorVariable
    from torch._dynamo.variables.user_defined import UserDefinedClassVariable, UserDefinedObjectVariable

    assert {name_here(TensorVariable, "var_getattr"), "call_method", "__init__"} <= vars(TensorVariable).keys()
    assert {"_size", "stride", "is_contiguous"} <= set(TensorVariable.__init__.__code__.co_names)
    assert {"_make_handler", "call_function_handler_cache"} <= vars(BuiltinVariable).keys()
    assert {"vt_identity_compare", "generic_hash_impl"} <= vars(object_protocol).keys()
    assert hasattr(OutputGraph, "remove_unused_graphargs")
    assert "param_name_to_source" in OutputGraph.__init__.__code__.co_names
    assert {"is_modified", "__contains__", "__getitem__"} <= vars(SideEffects).keys()
    assert {"store_attr", "load_attr", "has_pending_mutation_of_attr"} <= vars(SideEffects).keys()
    assert {"id_to_variable", "store_attr_mutations"} <= set(SideEffects.__init__.__code__.co_varnames)
    assert "lookup_class_mro_attr" in vars(UserDefinedObjectVariable)
    assert {"lookup_cls_mro_attr", "lookup_metaclass_attr", "call_obj_hasattr"} <= vars(UserDefinedClassVariable).keys()
    assert name_here(PythonModuleVariable, "var_getattr") in vars(PythonModuleVariable)
    assert hasattr(PythonModuleVariable, "call_obj_hasattr")
    assert "symbolic_globals" in InstructionTranslatorBase._load_global.__code__.co_names
    assert hasattr(VariableBuilder, "_call_impl")
    assert FakeIdVariable(5).as_python_constant() == 5


def test_regions_of_inference_mode_are_recognised_as_nodes() -> None:
    graph = torch.fx.Graph()
    begin = graph.call_function(torch.autograd.grad_mode._enter_inference_mode, (True,))
    end = graph.call_function(torch.autograd.grad_mode._exit_inference_mode, (begin,))
    assert private_grad_nodes.enters_inference_mode(begin)
    assert private_grad_nodes.leaves_inference_mode(end)
    assert not private_grad_nodes.enters_inference_mode(end)
    assert not private_grad_nodes.leaves_inference_mode(begin)


def test_a_module_calls_what_lies_at_the_seam_and_gives_it_to_no_copy() -> None:
    module = torch.nn.Linear(2, 2)
    vars(module)["_compiled_call_impl"] = lambda *args: ("served", args)
    assert module(3) == ("served", (3,))
    assert "_compiled_call_impl" not in module.__getstate__()


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
