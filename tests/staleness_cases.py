"""The staleness table: single changes to a project, what each must do to a lookup, and the process that tries them.

The project lies in `tests/projects/staleness`. An edit is a text replaced in one of its files; a change is a context
in which a process makes the call.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import gearcache

PROJECT = Path(__file__).parent / "projects" / "staleness"
#: How each method is called; `x` is a tensor of two rows.
CALLS = {
    "run": "x",
    "stacked": "x",
    "configured": "x",
    "functions": "x",
    "inherited": "x",
    "containers": "x",
    "imported": "x",
    "environment": "x",
    "trained": "x",
    "tensors": "x",
    "arguments": "x, (1.0, 2.0), None",
    "computed": "x",
    "attended": "x",
}
#: How methods are cached in the base process, where not by default.
PARAMETERS = {"computed": "custom_decompositions={torch.ops.aten.addcmul.default: decompose}"}


@dataclass(frozen=True)
class Edit:
    """A text of a file replaced by another; `words` must stand in the reason of the miss."""

    method: str
    file: str
    old: str
    new: str
    words: tuple[str, ...] = ()


def _edit(method: str, file: str, old: str, new: str, *words: str) -> Edit:
    return Edit(method, file, old, new, words)


#: Edits of what a trace went through: each is a miss.
EDITS = {
    "the method": _edit("run", "model.py", "* self.factor", "* self.factor * 2", "method"),
    "a function of its file": _edit(
        "run", "model.py", "return x * SCALE", "return x * SCALE + 1", "helper", "model.py"
    ),
    "a function of another file": _edit(
        "run", "callee.py", "return x + OFFSET", "return x - OFFSET", "shift", "callee.py"
    ),
    "a function that a callee calls": _edit("run", "deeper.py", "x * LAST", "x / LAST", "last", "deeper.py"),
    "a global constant": _edit("run", "model.py", "SCALE = 2.0", "SCALE = 4.0", "SCALE"),
    "a global of a callee": _edit("run", "callee.py", "OFFSET = 1.0", "OFFSET = 7.0", "OFFSET"),
    "a global of a callee's callee": _edit("run", "deeper.py", "LAST = 4.0", "LAST = 5.0", "LAST"),
    "an int for a float": _edit("run", "model.py", "SCALE = 2.0", "SCALE = 2", "SCALE"),
    "an attribute": _edit("run", "model.py", "factor=3.0", "factor=5.0", "factor"),
    "a callee from another module": _edit("run", "model.py", "import callee\n", "import callee2 as callee\n", "callee"),
    "a default argument of a callee": _edit(
        "functions", "model.py", "factor=2.0, *", "factor=2.5, *", "with_default.__defaults__"
    ),
    "a keyword default of a callee": _edit("functions", "model.py", "shift=1.0)", "shift=9.0)", "__kwdefaults__"),
    "a value closed over": _edit("functions", "model.py", "made_by(3.0)", "made_by(3.5)", "closure"),
    "the body of a closure": _edit(
        "functions",
        "model.py",
        "        return x * factor\n\n    return",
        "        return x / factor\n\n    return",
        "inner",
    ),
    "an argument of a partial": _edit("functions", "model.py", "factor=4.0", "factor=4.5", "partial"),
    "the function of a partial": _edit(
        "functions",
        "model.py",
        "partial(with_default, factor",
        "partial(lambda x, factor: x / factor, factor",
        "partial",
    ),
    "a lambda held by the module": _edit("functions", "model.py", "lambda x: x * 2", "lambda x: x * 3", "act"),
    "a decorator": _edit("functions", "callee.py", "(*arguments) + 1", "(*arguments) + 2", "decorated"),
    "a decorated function": _edit("functions", "model.py", "return x * 7", "return x * 8", "decorated"),
    "a function that remembers results": _edit("functions", "model.py", "return 1.5", "return 2.5", "remembered"),
    "a generator": _edit("functions", "model.py", "yield index + 1", "yield index + 2", "generated"),
    "an object's call": _edit("functions", "configuration.py", "return x - 1", "return x - 2", "Scorer.__call__"),
    "a function of torch bound to a name": _edit(
        "functions", "model.py", "ACTIVATION = torch.relu", "ACTIVATION = torch.sigmoid", "ACTIVATION"
    ),
    "a builtin hidden by a global": _edit(
        "functions", "model.py", "def unrelated(x)", "def max(values):\n    return 0.0\n\n\ndef unrelated(x)", "max"
    ),
    "a value in a list": _edit(
        "containers", "model.py", "self.scales = [1.0, 2.0]", "self.scales = [1.0, 2.5]", "scales"
    ),
    "the length of a list": _edit(
        "containers", "model.py", "self.scales = [1.0, 2.0]", "self.scales = [1.0, 2.0, 3.0]", "scales"
    ),
    "a tuple for a list": _edit(
        "containers", "model.py", "self.scales = [1.0, 2.0]", "self.scales = (1.0, 2.0)", "scales"
    ),
    "the length of a list of tensors": _edit(
        "containers", "model.py", "[torch.ones(width), torch.ones(width)]", "[torch.ones(width)]", "pieces"
    ),
    "a value in a dict": _edit("containers", "model.py", '"gain": 2.0', '"gain": 3.0', "table"),
    "the order of a dict": _edit(
        "containers", "model.py", '{"gain": 2.0, "shift": 1.0}', '{"shift": 1.0, "gain": 2.0}', "table"
    ),
    "a key more in a dict": _edit("containers", "model.py", '"shift": 1.0}', '"shift": 1.0, "more": 1.0}', "table"),
    "a key that a dict lacked": _edit("containers", "model.py", '"shift": 1.0}', '"missing": 1.0}', "table"),
    "a member of a set": _edit("containers", "model.py", '{"a", "b"}', '{"b"}', "flags"),
    "a string": _edit("containers", "model.py", 'self.mode = "tanh"', 'self.mode = "relu"', "mode"),
    "a value for None": _edit("containers", "model.py", "self.bias = None", "self.bias = 1.0", "bias"),
    "a tensor for None": _edit("containers", "model.py", "self.bias = None", "self.bias = torch.ones(width)", "bias"),
    "an attribute that was not there": _edit("containers", "model.py", "self.unused = 0", "self.extra = 0", "extra"),
    "an attribute in place of a default": _edit(
        "containers", "model.py", "self.unused = 0", "self.absent = 0.75", "absent"
    ),
    "a value in a global list": _edit(
        "containers", "model.py", "MOMENTS = [1.0, 2.0]", "MOMENTS = [1.0, 2.5]", "MOMENTS"
    ),
    "a nested setting": _edit("configured", "configuration.py", "theta: float = 2.0", "theta: float = 3.0", "theta"),
    "a setting behind a property": _edit(
        "configured", "configuration.py", "scale: float = 1.5", "scale: float = 2.5", "scale"
    ),
    "a property of the settings": _edit("configured", "configuration.py", "self.scale * 2", "self.scale * 4", "twice"),
    "a method of the settings": _edit("configured", "configuration.py", "return x / 4", "return x / 8", "norm"),
    "the value of an enum member held": _edit("configured", "configuration.py", "SMALL = 1.0", "SMALL = 1.25", "kind"),
    "the value of an enum member named": _edit(
        "configured", "configuration.py", "LARGE = 2.0", "LARGE = 2.25", "LARGE"
    ),
    "another enum member": _edit("configured", "configuration.py", "Kind = Kind.SMALL", "Kind = Kind.LARGE", "kind"),
    "a field of a named tuple": _edit("configured", "configuration.py", "Pair(1.0, 2.0)", "Pair(1.5, 2.0)", "PAIR"),
    "a base class of the settings": _edit(
        "configured", "configuration.py", "Settings(Base)", "Settings(Other)", "settings"
    ),
    "a method of a base class": _edit("inherited", "model.py", "return x * 5", "return x * 6", "based"),
    "a property of a base class": _edit("inherited", "model.py", "return 3\n", "return 4\n", "size"),
    "a constant of a base class": _edit("inherited", "model.py", "LEVEL = 2.0", "LEVEL = 2.5", "LEVEL"),
    "a property overridden": _edit(
        "inherited",
        "model.py",
        "    def local(self",
        "    @property\n    def size(self):\n        return 9\n\n    def local(self",
        "size",
    ),
    "a nested function": _edit("inherited", "model.py", "return y + 0.25", "return y + 0.5", "local"),
    "a child's forward": _edit("stacked", "blocks.py", "+ self.fixed(x)", "- self.fixed(x)", "forward", "blocks.py"),
    "a child's method": _edit("stacked", "blocks.py", "torch.relu(x) + 1", "torch.relu(x) + 2", "activate"),
    "a child's static method": _edit("stacked", "blocks.py", "x * 0.5", "x * 0.25", "fixed"),
    "a child's class method": _edit("stacked", "blocks.py", "x * 0.125", "x * 0.25", "of_class"),
    "a method overridden in a child's class": _edit(
        "stacked", "blocks.py", "    unused = True", "    def activate(self, x):\n        return x", "activate"
    ),
    "a forward overridden in a child's class": _edit(
        "stacked", "blocks.py", "    unused = True", "    def forward(self, x):\n        return x", "forward"
    ),
    "a class of the same name elsewhere": _edit(
        "stacked", "model.py", "import blocks\n", "import blocks2 as blocks\n", "blocks2"
    ),
    "a child more": _edit("stacked", "model.py", "nn.ModuleList([", "nn.ModuleList([blocks.Special(width), ", "module"),
    "a child's setting": _edit("stacked", "blocks.py", "nn.LayerNorm(width)", "nn.LayerNorm(width, eps=0.1)", "eps"),
    "a constant of a module": _edit("imported", "constants.py", "GAIN = 2.0", "GAIN = 3.0", "GAIN"),
    "a dict of a module": _edit("imported", "constants.py", '"bias": 1.0', '"bias": 2.0', "bias"),
    "a nested class of a module": _edit("imported", "constants.py", "width = 4", "width = 5", "width"),
}

#: Edits of what no trace went through: each stays a hit.
HARMLESS = {
    "a comment": _edit("run", "model.py", "    def run", "    # a comment\n\n    def run"),
    "lines above the method": _edit("run", "model.py", "SCALE = 2.0", "\n\n\n\nSCALE = 2.0"),
    "the docstring of the file": _edit("run", "model.py", '"""A model', '"""Some model'),
    "an unrelated function": _edit("run", "model.py", "return x - 5", "return x - 6"),
    "an unrelated method": _edit("run", "model.py", "return x * 5", "return x * 6"),
    "an unrelated function of a callee's file": _edit("run", "callee.py", "    return x\n", "    return -x\n"),
    "an unused global": _edit("run", "model.py", "UNUSED = 1", "UNUSED = 2\nMORE = 3"),
    "an unused attribute": _edit("run", "model.py", "self.unused = 0", "self.unused = 1"),
    "an attribute of another method": _edit("run", "model.py", 'self.mode = "tanh"', 'self.mode = "relu"'),
    "an unused constant of a module": _edit("imported", "constants.py", "UNUSED = 5", "UNUSED = 6"),
    "an unused item of a dict": _edit("imported", "constants.py", '"unused": 3.0', '"unused": 4.0'),
    "an unused setting": _edit("configured", "configuration.py", "unused: int = 0", "unused: int = 1"),
    "an unused attribute of a child's class": _edit("stacked", "blocks.py", "unused = True", "unused = False"),
    "an unused class": _edit("configured", "configuration.py", "class Other:", "class Unused:"),
    "a type annotation": _edit("run", "callee.py", "def shift(x):", "def shift(x: object) -> object:"),
    "an import": _edit("run", "callee.py", "import functools", "import functools\nimport json"),
    "the order of a set": _edit("containers", "model.py", '{"a", "b"}', '{"b", "a"}'),
    "an equal expression": _edit("run", "model.py", "SCALE = 2.0", "SCALE = 1.0 + 1.0"),
    "the values of tensors": _edit("tensors", "model.py", "torch.ones(", "torch.zeros("),
}


@dataclass(frozen=True)
class Change:
    """A context around one call: what a process does after the module was made."""

    method: str
    apply: Callable[[Any, Any], Any]
    words: tuple[str, ...]


#: What a process may do that is a miss, and what stays a hit.
CHANGES: dict[str, Change] = {}
HITTING: dict[str, Change] = {}


def _change(
    method: str, *words: str, table: dict[str, Change] = CHANGES
) -> Callable[[Callable[..., Iterator[None]]], Callable[..., Iterator[None]]]:
    def add(function: Callable[..., Iterator[None]]) -> Callable[..., Iterator[None]]:
        name = function.__name__.replace("_", " ")
        assert name not in {*CHANGES, *HITTING, *EDITS, *HARMLESS}
        table[name] = Change(method, contextlib.contextmanager(function), words)
        return function

    return add


_hit = functools.partial(_change, table=HITTING)


@contextlib.contextmanager
def _set(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def _called(function: Callable[[Any], Any], value: Any, before: Any) -> Iterator[None]:
    function(value)
    try:
        yield
    finally:
        function(before)


def _double(module: Any, *arguments: Any) -> Any:
    return arguments[-1] * 2


def _tripled(self: Any, x: Any) -> Any:
    return x * 3


@_change("run", "factor")
def an_attribute_set(model: Any, net: Any) -> Iterator[None]:
    net.factor = 11.0
    yield


@_change("run", "factor")
def an_attribute_of_another_type(model: Any, net: Any) -> Iterator[None]:
    net.factor = 3
    yield


@_change("configured", "theta")
def a_nested_setting_set(model: Any, net: Any) -> Iterator[None]:
    net.settings.rope.theta = 9.0
    yield


@_change("trained", "training")
def evaluation_mode(model: Any, net: Any) -> Iterator[None]:
    net.eval()
    yield


@_change("run", "callee.shift")
def a_function_of_a_module_replaced(model: Any, net: Any) -> Iterator[None]:
    model.callee.shift = lambda x: x + 100
    yield


@_change("run", "helper")
def a_global_function_replaced(model: Any, net: Any) -> Iterator[None]:
    model.helper = lambda x: x + 100
    yield


@_change("stacked", "activate")
def a_method_of_a_childs_class_replaced(model: Any, net: Any) -> Iterator[None]:
    model.blocks.Block.activate = _tripled
    yield


@_change("stacked", "activate")
def a_method_of_a_child_replaced(model: Any, net: Any) -> Iterator[None]:
    net.block.activate = _tripled.__get__(net.block)
    yield


@_change("stacked", "forward")
def the_forward_of_a_childs_class_replaced(model: Any, net: Any) -> Iterator[None]:
    model.blocks.Block.forward = _tripled
    yield


@_change("stacked", "forward")
def the_forward_of_a_child_replaced(model: Any, net: Any) -> Iterator[None]:
    net.block.norm.forward = _tripled.__get__(net.block.norm)
    yield


@_change("inherited", "based")
def a_method_of_a_base_class_replaced(model: Any, net: Any) -> Iterator[None]:
    model.Base.based = _tripled
    yield


@_change("configured", "twice")
def a_property_replaced(model: Any, net: Any) -> Iterator[None]:
    model.configuration.Settings.twice = property(lambda self: 50.0)
    yield


@_change("run", "Linear", "forward")
def the_forward_of_a_module_of_torch_replaced(model: Any, net: Any) -> Iterator[None]:
    with _set(nn.Linear, "forward", _tripled):
        yield


@_change("run", "Module.__call__")
def the_call_of_all_modules_replaced(model: Any, net: Any) -> Iterator[None]:
    original = nn.Module.__call__

    def call(self: Any, *arguments: Any) -> Any:
        return original(self, *arguments) * 2

    with _set(nn.Module, "__call__", call):
        yield


@_change("trained", "gelu")
def a_function_of_torch_replaced(model: Any, net: Any) -> Iterator[None]:
    with _set(nn.functional, "gelu", nn.functional.silu):
        yield


@_change("computed", "abs")
def a_builtin_replaced(model: Any, net: Any) -> Iterator[None]:
    with _set(builtins, "abs", lambda value: 50):
        yield


@_change("run", "_forward_hooks")
def a_forward_hook(model: Any, net: Any) -> Iterator[None]:
    with _removed(net.linear.register_forward_hook(_double)):
        yield


@_change("run", "_forward_pre_hooks")
def a_forward_pre_hook(model: Any, net: Any) -> Iterator[None]:
    with _removed(net.linear.register_forward_pre_hook(lambda module, arguments: (arguments[0] * 2,))):
        yield


@_change("run", "_global_forward_hooks")
def a_global_forward_hook(model: Any, net: Any) -> Iterator[None]:
    with _removed(nn.modules.module.register_module_forward_hook(_double)):
        yield


@_change("stacked", "_global_forward_pre_hooks")
def a_global_forward_pre_hook(model: Any, net: Any) -> Iterator[None]:
    handle = nn.modules.module.register_module_forward_pre_hook(lambda module, arguments: (arguments[0] * 2,))
    with _removed(handle):
        yield


@contextlib.contextmanager
def _removed(handle: Any) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


@_change("environment", "GEARCACHE_TEST_MODE")
def an_environment_variable_that_a_branch_reads(model: Any, net: Any) -> Iterator[None]:
    with _variable("GEARCACHE_TEST_MODE", "fast"):
        yield


@_change("environment", "GEARCACHE_TEST_SHIFT")
def an_environment_variable_that_is_a_number(model: Any, net: Any) -> Iterator[None]:
    with _variable("GEARCACHE_TEST_SHIFT", "4"):
        yield


@_change("environment", "GEARCACHE_TEST_FLAG")
def an_environment_variable_that_only_has_to_be_there(model: Any, net: Any) -> Iterator[None]:
    with _variable("GEARCACHE_TEST_FLAG", ""):
        yield


@_change("environment", "is_initialized")
def a_process_group(model: Any, net: Any) -> Iterator[None]:
    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        distributed.destroy_process_group()


@_change("run", "threads")
def another_number_of_threads(model: Any, net: Any) -> Iterator[None]:
    with _called(torch.set_num_threads, 1, torch.get_num_threads()):
        yield


@_change("run", "default_dtype")
def another_default_dtype(model: Any, net: Any) -> Iterator[None]:
    with _called(torch.set_default_dtype, torch.float64, torch.float32):
        yield


@_change("run", "matmul_precision")
def another_matmul_precision(model: Any, net: Any) -> Iterator[None]:
    with _called(torch.set_float32_matmul_precision, "high", "highest"):
        yield


@_change("run", "deterministic")
def deterministic_algorithms(model: Any, net: Any) -> Iterator[None]:
    with _called(torch.use_deterministic_algorithms, True, False):
        yield


@_change("run", "autocast")
def autocast(model: Any, net: Any) -> Iterator[None]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        yield


@_change("run", "inference_mode")
def inference_mode(model: Any, net: Any) -> Iterator[None]:
    with torch.inference_mode():
        yield


@_change("attended", "attention")
def another_attention_kernel(model: Any, net: Any) -> Iterator[None]:
    with _called(torch.backends.cuda.enable_flash_sdp, False, True):
        yield


@_change("run", "mkldnn")
def a_switched_off_library(model: Any, net: Any) -> Iterator[None]:
    with torch.backends.mkldnn.flags(enabled=False):
        yield


@_change("run", "module.parameters")
def a_frozen_parameter(model: Any, net: Any) -> Iterator[None]:
    net.linear.weight.requires_grad_(False)
    yield


@_change("run", "module")
def a_parameter_of_another_layout(model: Any, net: Any) -> Iterator[None]:
    net.linear.weight.data = net.linear.weight.data.t().contiguous().t()
    yield


@_change("run", "module")
def tied_parameters(model: Any, net: Any) -> Iterator[None]:
    net.block.norm.weight = net.linear.bias
    yield


@_change("run", "module")
def a_parametrised_child(model: Any, net: Any) -> Iterator[None]:
    nn.utils.parametrizations.weight_norm(net.linear)
    yield


@_change("run", "module")
def a_child_of_another_class(model: Any, net: Any) -> Iterator[None]:
    net.linear = nn.Sequential(nn.Linear(4, 4))
    yield


@_change("tensors", "module")
def a_buffer_more(model: Any, net: Any) -> Iterator[None]:
    net.register_buffer("buffer", torch.ones(4))
    yield


@_change("tensors")
def one_tensor_in_two_places(model: Any, net: Any) -> Iterator[None]:
    net.pieces[1] = net.pieces[0]
    yield


#: What stays a hit.


@_hit("run")
def other_weights(model: Any, net: Any) -> Iterator[None]:
    for parameter in net.parameters():
        parameter.data.normal_()
    yield


@_hit("run")
def another_instance(model: Any, net: Any) -> Iterator[None]:
    model.Model()
    yield


@_hit("run")
def another_working_folder(model: Any, net: Any) -> Iterator[None]:
    before = Path.cwd()
    os.chdir("/")
    yield
    os.chdir(before)


@_hit("run")
def a_log_level(model: Any, net: Any) -> Iterator[None]:
    import logging

    logger = logging.getLogger("gearcache")
    with _called(logger.setLevel, logging.DEBUG, logger.level):
        yield


@_hit("run")
def an_unrelated_environment_variable(model: Any, net: Any) -> Iterator[None]:
    with _variable("GEARCACHE_TEST_MODE", "fast"):
        yield


@_hit("environment")
def a_variable_that_the_method_does_not_read(model: Any, net: Any) -> Iterator[None]:
    with _variable("GEARCACHE_TEST_UNREAD", "1"):
        yield


@_hit("run")
def no_grad(model: Any, net: Any) -> Iterator[None]:
    with torch.no_grad():
        yield


@_hit("run")
def another_seed(model: Any, net: Any) -> Iterator[None]:
    torch.manual_seed(7)
    yield


@_hit("run")
def a_child_module_that_the_method_does_not_call_is_patched(model: Any, net: Any) -> Iterator[None]:
    net.block.activate = _tripled.__get__(net.block)
    yield


@_hit("run")
def a_hook_on_a_child_that_the_method_does_not_call(model: Any, net: Any) -> Iterator[None]:
    with _removed(net.block.register_forward_hook(_double)):
        yield


@_hit("run")
def evaluation_mode_that_nothing_reads(model: Any, net: Any) -> Iterator[None]:
    net.eval()
    yield


@_hit("tensors")
def other_values_of_tensors_everywhere(model: Any, net: Any) -> Iterator[None]:
    model.TENSOR = torch.randn(4)
    with torch.no_grad():
        model.PARAMETER.normal_()
    net.pieces[1] = torch.randn(4)
    net.plain.weight = torch.randn(4)
    yield


@_hit("functions")
def a_function_replaced_by_an_equal_one(model: Any, net: Any) -> Iterator[None]:
    model.closure = model.made_by(3.0)
    yield


@_hit("run")
def a_loaded_state(model: Any, net: Any) -> Iterator[None]:
    net.load_state_dict(model.Model().state_dict())
    yield


def _product(first: Any, second: Any) -> Any:
    return first * second


def decompose(x: Any, first: Any, second: Any, *, value: float = 1) -> Any:
    """A decomposition that calls another function."""
    return x + _product(first, second) * value


def _scaled(scale: float, x: Any, first: Any, second: Any, *, value: float = 1) -> Any:
    return x * scale


@_change("computed", "decompositions")
def a_function_that_a_decomposition_calls(model: Any, net: Any) -> Iterator[None]:
    with _set(sys.modules[__name__], "_product", lambda first, second: first + second):
        yield


#: Other parameters of `cache_compile`: each is a miss, with the component that its reason names.
OTHER_PARAMETERS = {
    "gears": ("run", 'gears={"x": {0: [2, 4]}}', "gears"),
    "dynamic": ("run", "dynamic=False", "dynamic"),
    "an option": ("run", 'config=config(options={"max_autotune": False})', "options"),
    "a mode": ("run", 'config=config(mode="default")', "options"),
    "a rank": ("run", "tp_rank=1", "rank"),
    "a decomposition": ("run", PARAMETERS["computed"], "decompositions"),
    "the code of a decomposition": (
        "computed",
        "custom_decompositions={torch.ops.aten.addcmul.default: lambda x, a, b, value=1: x * 9}",
        "decompositions",
    ),
    "a partial as a decomposition": (
        "computed",
        "custom_decompositions={torch.ops.aten.addcmul.default: functools.partial(_scaled, 3.0)}",
        "decompositions",
    ),
}
#: What the method gives where a decomposition that is not its operator's is wanted.
EXPECTED = {
    "the code of a decomposition": "x * 9 + 1",
    "a partial as a decomposition": "x * 3.0 + 1",
    "a function that a decomposition calls": "x + (x + x) + 1",
}
#: Other calls of `arguments`: each is a variant of its own, with the words of its reason.
OTHER_CALLS = {
    "another value": ("x, (1.0, 3.0), None", "values[1]"),
    "a named tuple for a tuple": ("x, model.configuration.PAIR, None", "values"),
    "another length": ("x, (1.0, 2.0, 3.0), None", "values"),
    "a list for a tuple": ("x, [1.0, 2.0], None", "values"),
    "an int for a float in a call": ("x, (1.0, 2), None", "values[1]"),
    "a flag": ("x, (1.0, 2.0), True", "flag"),
    "an int for a bool": ("x, (1.0, 2.0), 1", "flag"),
    "a tensor argument for None": ("x, (1.0, 2.0), None, x.clone()", "extra"),
    "a dict for None": ('x, (1.0, 2.0), None, {"y": x.clone()}', "extra"),
}


@dataclass
class Case:
    """One lookup: whose source, which cache, which method, under what change."""

    source: str
    cache: str
    method: str
    change: str = ""
    parameters: str = ""
    call: str = ""
    keywords: str = ""
    expected: str = ""
    backend: str = "eager"


def serve(case: dict[str, Any]) -> dict[str, Any]:
    """Make one lookup and compare its result with that of the method itself."""
    sys.path.insert(0, case["source"])
    importlib.invalidate_caches()
    try:
        return _serve(Case(**case))
    except Exception:
        return {"right": False, "error": traceback.format_exc(), "traces": -1, "reasons": [], "compilers": []}
    finally:
        sys.path.remove(case["source"])
        for path in PROJECT.glob("*.py"):
            sys.modules.pop(path.stem, None)
            sys.modules.pop(f"{path.stem}2", None)


def _serve(case: Case) -> dict[str, Any]:
    def config(**options: Any) -> gearcache.CompilerConfig:
        return gearcache.CompilerConfig(backend=case.backend, strict=True, **options)

    model = importlib.import_module("model")
    names = globals() | {"config": config}
    net = model.Model(**_evaluate(f"dict({case.keywords})", names))
    torch.manual_seed(1)
    x = torch.randn(2, net.linear.in_features, dtype=net.linear.weight.dtype)
    parameters = {"config": config()} | _evaluate(f"dict({case.parameters or PARAMETERS.get(case.method, '')})", names)
    change = (CHANGES | HITTING).get(case.change)
    with change.apply(model, net) if change is not None else contextlib.nullcontext():
        method = getattr(net, case.method)
        arguments = _evaluate(f"[{case.call or CALLS[case.method]}]", names | {"x": x, "model": model})
        cached = gearcache.cache_compile(method, cache_dir=case.cache, **parameters)
        before = set(sys.modules)
        found = cached(*arguments)
        imported = {"torch._dynamo", "torch._inductor", "sympy"} & (set(sys.modules) - before)
        with torch.no_grad():
            expected = _evaluate(case.expected, {"x": x}) if case.expected else method(*arguments)
    tolerance = 0.0 if case.backend == "eager" else 1e-4
    return {
        "right": found.dtype == expected.dtype and torch.allclose(found, expected, atol=tolerance, rtol=tolerance),
        "error": None,
        "traces": cached.stats.traces,
        "reasons": list(cached.stats.miss_reasons),
        "compilers": sorted(imported),
        "result": found.tolist(),
    }


def _evaluate(text: str, names: dict[str, Any]) -> Any:
    return eval(text, dict(names))  # noqa: S307 - texts of this file


def child() -> None:
    """A process that serves the cases of the file named by its first argument, and prints the reports."""
    print(json.dumps([serve(case) for case in json.loads(Path(sys.argv[1]).read_text())]))
