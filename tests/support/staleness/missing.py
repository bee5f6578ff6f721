"""What a process may do that makes a lookup a miss."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from tests.support.staleness import decompositions
from tests.support.staleness.change import called, change, double, removed, replaced, tripled, variable


@change("trained", "training")
def evaluation_mode(model: Any, net: Any) -> Iterator[None]:
    net.eval()
    yield


@change("run", "callee.shift")
def a_function_of_a_module_replaced(model: Any, net: Any) -> Iterator[None]:
    model.callee.shift = lambda x: x + 100
    yield


@change("stacked", "activate")
def a_method_of_a_childs_class_replaced(model: Any, net: Any) -> Iterator[None]:
    model.blocks.Block.activate = tripled
    yield


@change("run", "Linear", "forward")
def the_forward_of_a_module_of_torch_replaced(model: Any, net: Any) -> Iterator[None]:
    with replaced(nn.Linear, "forward", tripled):
        yield


@change("run", "Module.__call__")
def the_call_of_all_modules_replaced(model: Any, net: Any) -> Iterator[None]:
    original = nn.Module.__call__

    def call(self: Any, *arguments: Any) -> Any:
        return original(self, *arguments) * 2

    with replaced(nn.Module, "__call__", call):
        yield


@change("trained", "gelu")
def a_function_of_torch_replaced(model: Any, net: Any) -> Iterator[None]:
    with replaced(nn.functional, "gelu", nn.functional.silu):
        yield


@change("computed", "abs")
def a_builtin_replaced(model: Any, net: Any) -> Iterator[None]:
    with replaced(builtins, "abs", lambda value: 50):
        yield


@change("run", "_forward_hooks")
def a_forward_hook(model: Any, net: Any) -> Iterator[None]:
    with removed(net.linear.register_forward_hook(double)):
        yield


@change("run", "_global_forward_hooks")
def a_global_forward_hook(model: Any, net: Any) -> Iterator[None]:
    with removed(nn.modules.module.register_module_forward_hook(double)):
        yield


@change("environment", "GEARCACHE_TEST_MODE")
def an_environment_variable_that_a_branch_reads(model: Any, net: Any) -> Iterator[None]:
    with variable("GEARCACHE_TEST_MODE", "fast"):
        yield


@change("environment", "GEARCACHE_TEST_FLAG")
def an_environment_variable_that_only_has_to_be_there(model: Any, net: Any) -> Iterator[None]:
    with variable("GEARCACHE_TEST_FLAG", ""):
        yield


@change("environment", "is_initialized")
def a_process_group(model: Any, net: Any) -> Iterator[None]:
    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        distributed.destroy_process_group()


@change("run", "threads")
def another_number_of_threads(model: Any, net: Any) -> Iterator[None]:
    with called(torch.set_num_threads, 2 if torch.get_num_threads() == 1 else 1, torch.get_num_threads()):
        yield


@change("run", "default_dtype")
def another_default_dtype(model: Any, net: Any) -> Iterator[None]:
    with called(torch.set_default_dtype, torch.float64, torch.float32):
        yield


@change("run", "autocast")
def autocast(model: Any, net: Any) -> Iterator[None]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        yield


@change("attended", "attention")
def another_attention_kernel(model: Any, net: Any) -> Iterator[None]:
    with called(torch.backends.cuda.enable_flash_sdp, False, True):
        yield


@change("run", "mkldnn")
def a_switched_off_library(model: Any, net: Any) -> Iterator[None]:
    with torch.backends.mkldnn.flags(enabled=False):
        yield


@change("run", "module.parameters")
def a_frozen_parameter(model: Any, net: Any) -> Iterator[None]:
    net.linear.weight.requires_grad_(False)
    yield


@change("run", "module")
def a_parameter_of_another_layout(model: Any, net: Any) -> Iterator[None]:
    net.linear.weight.data = net.linear.weight.data.t().contiguous().t()
    yield


@change("run", "module")
def a_parametrised_child(model: Any, net: Any) -> Iterator[None]:
    nn.utils.parametrizations.weight_norm(net.linear)
    yield


@change("run", "module")
def a_child_of_another_class(model: Any, net: Any) -> Iterator[None]:
    net.linear = nn.Sequential(nn.Linear(4, 4))
    yield


@change("tensors", "module")
def a_buffer_more(model: Any, net: Any) -> Iterator[None]:
    net.register_buffer("buffer", torch.ones(4))
    yield


@change("tensors")
def one_tensor_in_two_places(model: Any, net: Any) -> Iterator[None]:
    net.pieces[1] = net.pieces[0]
    yield


@change("computed", "decompositions")
def a_function_that_a_decomposition_calls(model: Any, net: Any) -> Iterator[None]:
    with replaced(decompositions, "product", lambda first, second: first + second):
        yield
