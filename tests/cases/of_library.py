"""torch and the standard library, of which a program may have replaced something."""

import builtins
import copy
import functools
import math
import operator
import types

import torch
import torch.nn.functional as F
from torch import nn

from tests.cases.case import case


@case(patched=(torch.Tensor, "relu", lambda self: self * 7))
def a_tensor_method(self, x):
    return x.relu()


@case()
def a_tensor_method_of_the_same_name(self, x):
    return x.relu()


@a_tensor_method_of_the_same_name.changed
def _(self, patch):
    original = torch.Tensor.relu

    @functools.wraps(original)
    def relu(self):
        return original(self) * 7

    patch(torch.Tensor, "relu", relu)


@case(wrapped=(torch.Tensor, "__add__", lambda original: lambda self, other: original(self, other) * 7))
def an_operator_of_tensors(self, x):
    return x + 1


@case(wrapped=(torch.Tensor, "__getitem__", lambda original: lambda self, index: original(self, index) * 7))
def a_tensors_items(self, x):
    return x[0] * 2


@case(patched=(torch.Tensor, "norm", lambda self: self.sum() * 7))
def a_tensor_method_in_python(self, x):
    return x.norm() * x


@case(patched=(torch.Tensor, "T", property(lambda self: self.t() * 7)))
def a_tensor_property(self, x):
    return x.T


@case(patched=(torch.Tensor, "gear", lambda self: 7))
def a_tensor_method_appears(self, x):
    return x * 2 if hasattr(x, "gear") else x * 3


@case(patched=(torch.Tensor, "__len__", lambda self: 1))
def a_tensor_truth(self, x):
    return x * 2 if len(x) > 1 else x * 3


@case(patched=(F, "gelu", lambda x: x * 7))
def a_function_of_functional(self, x):
    return F.gelu(x)


@case(patched=(F, "relu", lambda x, inplace=False: x * 7))
def a_function_of_functional_in_python(self, x):
    return F.relu(x)


@case(wrapped=(F, "softmax", lambda original: functools.wraps(original)(lambda *a, **k: original(*a, **k) * 7)))
def a_function_of_functional_in_python_wrapped(self, x):
    return F.softmax(x, -1)


@case(patched=(torch.Tensor, "softmax", lambda self, dim, dtype=None: self * 7))
def a_function_below_functional(self, x):
    return F.softmax(x, -1)


@case(
    act=lambda: nn.GELU(),
    wrapped=(F, "gelu", lambda original: functools.wraps(original)(lambda x, approximate="none": original(x) * 7)),
)
def a_function_below_a_layer(self, x):
    return self.act(x)


@case(patched=(torch, "relu", lambda x: x * 7))
def a_function_of_torch(self, x):
    return torch.relu(x)


@case(wrapped=(torch, "relu", lambda original: functools.wraps(original)(lambda x: original(x) * 7)))
def a_function_of_torch_wrapped(self, x):
    return torch.relu(x)


@case(wrapped=(torch.linalg, "vector_norm", lambda original: lambda *a, **k: original(*a, **k) * 7))
def a_function_below_torch(self, x):
    return torch.functional.norm(x) * x


@case(
    child=lambda: nn.Linear(4, 4),
    wrapped=(nn.Module, "named_parameters", lambda original: lambda self, *a, **k: [*original(self, *a, **k)][:1]),
)
def a_method_of_modules(self, x):
    return x * len(list(self.child.named_parameters()))


@case(patched=(nn.Module, "children", lambda self: iter([1, 2, 3, 4, 5, 6, 7])))
def a_method_of_modules_unused(self, x):
    return x * len(list(self.children()))


@case(
    child=lambda: nn.Linear(4, 4),
    wrapped=(
        nn.Module,
        "__getattr__",
        lambda original: lambda self, name: 7 if name == "unknown" else original(self, name),
    ),
)
def the_getattr_of_modules(self, x):
    return x * 2 if hasattr(self.child, "unknown") else x * 3


@case(
    child=lambda: nn.Linear(4, 4),
    wrapped=(nn.Module, "_call_impl", lambda original: functools.wraps(original)(lambda *a: original(*a) * 7)),
)
def the_call_of_modules_wrapped(self, x):
    return self.child(x)


@case(child=lambda: nn.ReLU(), patched=(nn.ReLU, "forward", lambda self, x: x * 7))
def a_forward_of_a_layer(self, x):
    return self.child(x)


@case(
    child=lambda: nn.LayerNorm(4),
    wrapped=(
        nn.LayerNorm,
        "forward",
        lambda original: functools.wraps(original)(lambda self, x: original(self, x) * 7),
    ),
)
def a_forward_of_a_layer_wrapped(self, x):
    return self.child(x)


@case(patched=(nn.Module, "gear", lambda self: 7))
def a_method_appears_on_modules(self, x):
    return x * 2 if hasattr(self, "gear") else x * 3


@case(wrapped=(math, "sqrt", lambda original: lambda x: 7.0 if x == 4 else original(x)))
def a_math_function(self, x):
    return x * math.sqrt(4)


@case(wrapped=(math, "floor", lambda original: functools.wraps(original)(lambda x: 7.0 if x == 2.5 else original(x))))
def a_math_function_wrapped(self, x):
    return x * math.floor(2.5)


@case(patched=(math, "pi", 3))
def a_math_constant(self, x):
    return x * math.pi


@case(patched=(operator, "mul", lambda x, y: x * 7 if isinstance(x, torch.Tensor) else x * y))
def an_operator_function(self, x):
    return operator.mul(x, 2)


@case(wrapped=(functools, "reduce", lambda original: lambda *items: 7 if items[1:] == ([1, 2],) else original(*items)))
def a_function_of_functools(self, x):
    return x * functools.reduce(operator.add, [1, 2])


@case(
    wrapped=(
        builtins,
        "max",
        lambda original: lambda *items, **keys: 7 if items == (1, 2) else original(*items, **keys),
    )
)
def a_builtin(self, x):
    return x * max(1, 2)


@case(
    wrapped=(
        builtins,
        "len",
        lambda original: functools.wraps(original)(lambda items: 7 if items == [1, 2] else original(items)),
    )
)
def a_builtin_wrapped(self, x):
    return x * len([1, 2])


@case()
def a_builtin_hidden_by_the_module(self, x):
    return x * sum([1, 2])


@a_builtin_hidden_by_the_module.changed
def _(self, patch):
    import sys

    patch(sys.modules[__name__], "sum", lambda items: 7)


@case(
    wrapped=(
        operator,
        "attrgetter",
        lambda original: lambda *names: (lambda x: [1] * 7) if names == ("shape",) else original(*names),
    )
)
def a_standard_function_in_python(self, x):
    return x * len(operator.attrgetter("shape")(x))


@case(patched=(torch, "half", torch.float64))
def a_torch_dtype(self, x):
    return x.to(torch.half)


@case(patched=(torch.ops.aten, "relu", torch.ops.aten.sigmoid))
def a_function_of_ops(self, x):
    return torch.ops.aten.relu(x)


@case(patched=(torch.distributions.Normal, "variance", property(lambda self: self.loc * 7)))
def a_distribution(self, x):
    return torch.distributions.Normal(x, torch.ones_like(x), validate_args=False).variance


@case(
    attention=lambda: nn.MultiheadAttention(4, 2),
    wrapped=(F, "linear", lambda original: lambda *a: original(*a) * 7),
)
def a_multihead_attention(self, x):
    return self.attention(x, x, x)[0]


@case(wrapped=(torch.Tensor, "sum", lambda original: lambda self, *a, **k: original(self, *a, **k) * 7))
def a_signature(self, x):
    return torch.sum(x, dim=0) + x


@case()
def torch_compile_was_used(self, x):
    """`torch.compile` puts an `__init__` of its own into `nn.Module`, for good."""
    return nn.functional.relu(x)


@torch_compile_was_used.changed
def _(self, patch):
    from torch._dynamo.mutation_guard import install_generation_tagging_init

    for name in ("__init__", "__setstate__"):
        patch(nn.Module, name, vars(nn.Module)[name])
    patch(nn.Module, "___needs_generation_tag_patch", True)
    install_generation_tagging_init()


@case(patched=(torch.Tensor, "entirely_unrelated", lambda self: 7))
def an_unrelated_tensor_method(self, x):
    return x * 2


class Settings:
    def __init__(self):
        self.scale, self.layers = 2.0, [1, {"width": 3}]


@case(refused=False, settings=Settings, change=lambda self, patch: patch(self.settings, "scale", 3.0))
def a_deep_copy_of_settings(self, x):  # as `get_text_config` of transformers makes in the forward of T5
    settings = copy.deepcopy(self.settings)
    settings.layers[1]["width"] = 4
    return x * settings.scale * settings.layers[1]["width"] * self.settings.layers[1]["width"]


@case(refused=False, kinds=lambda: [list[int], 3], change=lambda self, patch: patch(self, "kinds", [3, list[int]]))
def what_is_a_generic_alias(self, x):
    return x * 2 if isinstance(self.kinds[0], types.GenericAlias) else x * 3
