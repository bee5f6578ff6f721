"""torch and the standard library, of which a program may have replaced something."""

import builtins
import copy
import functools
import math
import operator
import sys

import torch
import torch.nn.functional as F
from torch import nn

from tests.cases.case import Case, case, changed, put, wrapped


class Net(Case):
    def __init__(self):
        super().__init__()
        self.linear, self.relu, self.gelu = nn.Linear(4, 4), nn.ReLU(), nn.GELU()


def sevenfold(original):
    return lambda *arguments, **keywords: original(*arguments, **keywords) * 7


def sevenfold_by_name(original):
    """As a decorator does it: who asks for the name and the module finds those of the original."""
    return functools.wraps(original)(sevenfold(original))


def with_an_unknown(original):
    return lambda self, name: 7 if name == "unknown" else original(self, name)


#: Functions, methods and classes of torch.
OF_TORCH = changed(
    Net,
    {
        "a method of tensors": ("return x.relu()", put(torch.Tensor, "relu", lambda self: self * 7)),
        "a method of tensors, wrapped": ("return x.relu()", wrapped(torch.Tensor, "relu", sevenfold_by_name)),
        "an operator of tensors": ("return x + 1", wrapped(torch.Tensor, "__add__", sevenfold)),
        "a method of tensors in Python": (
            "return x.norm() * x",
            put(torch.Tensor, "norm", lambda self: self.sum() * 7),
        ),
        "a property of tensors": ("return x.T", put(torch.Tensor, "T", property(lambda self: self.t() * 7))),
        "a method of tensors appears": (
            "return x * 2 if hasattr(x, 'gear') else x * 3",
            put(torch.Tensor, "gear", lambda self: 7),
        ),
        "another method of tensors": ("return x * 2", put(torch.Tensor, "unrelated", lambda self: 7)),
        "a function of functional": ("return F.gelu(x)", put(F, "gelu", lambda x: x * 7)),
        "a function of functional, wrapped": ("return F.softmax(x, -1)", wrapped(F, "softmax", sevenfold_by_name)),
        "what functional calls": (
            "return F.softmax(x, -1)",
            put(torch.Tensor, "softmax", lambda self, dim, dtype=None: self * 7),
        ),
        "what a layer calls": ("return self.gelu(x)", wrapped(F, "gelu", sevenfold_by_name)),
        "a function of torch": ("return torch.relu(x)", put(torch, "relu", lambda x: x * 7)),
        "what a function of torch calls": (
            "return torch.functional.norm(x) * x",
            wrapped(torch.linalg, "vector_norm", sevenfold),
        ),
        "an operator by its name": (
            "return torch.ops.aten.relu(x)",
            put(torch.ops.aten, "relu", torch.ops.aten.sigmoid),
        ),
        "the parameters of a module": (
            "return x * len(list(self.linear.named_parameters()))",
            wrapped(nn.Module, "named_parameters", lambda original: lambda *given: [*original(*given)][:1]),
        ),
        "the getattr of modules": (
            "return x * 2 if hasattr(self.linear, 'unknown') else x * 3",
            wrapped(nn.Module, "__getattr__", with_an_unknown),
        ),
        "the call of modules": ("return self.linear(x)", wrapped(nn.Module, "_call_impl", sevenfold_by_name)),
        "the forward of a layer": ("return self.relu(x)", put(nn.ReLU, "forward", lambda self, x: x * 7)),
    },
)
#: Functions and constants of Python.
OF_PYTHON = changed(
    Net,
    {
        "a function of math": (
            "return x * math.sqrt(4)",
            wrapped(math, "sqrt", lambda original: lambda x: 7.0 if x == 4 else original(x)),
        ),
        "a constant of math": ("return x * math.pi", put(math, "pi", 3)),
        "a builtin": (
            "return x * max(1, 2)",
            wrapped(
                builtins, "max", lambda original: lambda *them, **by: 7 if them == (1, 2) else original(*them, **by)
            ),
        ),
        "a builtin hidden by the module": ("return x * sum([1, 2])", put(sys.modules[__name__], "sum", lambda _: 7)),
    },
)


@case(of=Net)
def torch_compile_was_used(self, x):
    """`torch.compile` puts an `__init__` of its own into `nn.Module`, for good."""
    return F.relu(x)


@torch_compile_was_used.changed
def _(self, patch):
    from torch._dynamo.mutation_guard import install_generation_tagging_init

    for name in ("__init__", "__setstate__"):
        patch(nn.Module, name, vars(nn.Module)[name])
    patch(nn.Module, "___needs_generation_tag_patch", True)
    install_generation_tagging_init()


class Settings:
    def __init__(self):
        self.scale, self.layers = 2.0, [1, {"width": 3}]


@case(refused=False, settings=Settings, change=lambda self, patch: patch(self.settings, "scale", 3.0))
def a_deep_copy_of_settings(self, x):
    """As `get_text_config` of transformers makes in the forward of T5."""
    settings = copy.deepcopy(self.settings)
    settings.layers[1]["width"] = 4
    return x * settings.scale * settings.layers[1]["width"] * self.settings.layers[1]["width"]
