"""torch and the standard library, of which a program may have replaced something."""

import functools
import math
import operator

import torch
import torch.nn.functional as F
from fact import Fact
from torch import nn


class ATensorMethod(Fact):
    def run(self, x):
        return x.relu()

    def change(self, patch):
        patch(torch.Tensor, "relu", lambda self: self * 7)


class ATensorMethodOfTheSameName(Fact):
    def run(self, x):
        return x.relu()

    def change(self, patch):
        original = torch.Tensor.relu

        @functools.wraps(original)
        def relu(self):
            return original(self) * 7

        patch(torch.Tensor, "relu", relu)


class AnOperatorOfTensors(Fact):
    def run(self, x):
        return x + 1

    def change(self, patch):
        original = torch.Tensor.__add__
        patch(torch.Tensor, "__add__", lambda self, other: original(self, other) * 7)


class AReflectedOperatorOfTensors(Fact):
    def run(self, x):
        return 1 - x

    def change(self, patch):
        original = torch.Tensor.__rsub__
        patch(torch.Tensor, "__rsub__", lambda self, other: original(self, other) * 7)


class AnInplaceOperatorOfTensors(Fact):
    def run(self, x):
        y = x * 1
        y += 2
        return y

    def change(self, patch):
        patch(torch.Tensor, "__iadd__", lambda self, other: self * 7)


class ATensorsItems(Fact):
    def run(self, x):
        return x[0] * 2

    def change(self, patch):
        original = torch.Tensor.__getitem__
        patch(torch.Tensor, "__getitem__", lambda self, index: original(self, index) * 7)


class ATensorMethodInPython(Fact):
    def run(self, x):
        return x.norm() * x

    def change(self, patch):
        patch(torch.Tensor, "norm", lambda self: self.sum() * 7)


class ATensorProperty(Fact):
    def run(self, x):
        return x.T

    def change(self, patch):
        patch(torch.Tensor, "T", property(lambda self: self.t() * 7))


class ATensorMethodAppears(Fact):
    def run(self, x):
        return x * 2 if hasattr(x, "gear") else x * 3

    def change(self, patch):
        patch(torch.Tensor, "gear", lambda self: 7)


class ATensorTruth(Fact):
    def run(self, x):
        return x * 2 if len(x) > 1 else x * 3

    def change(self, patch):
        patch(torch.Tensor, "__len__", lambda self: 1)


class AFunctionOfFunctional(Fact):
    def run(self, x):
        return F.gelu(x)

    def change(self, patch):
        patch(F, "gelu", lambda x: x * 7)


class AFunctionOfFunctionalInPython(Fact):
    def run(self, x):
        return F.relu(x)

    def change(self, patch):
        patch(F, "relu", lambda x, inplace=False: x * 7)


class AFunctionOfFunctionalWrapped(Fact):
    def run(self, x):
        return F.gelu(x)

    def change(self, patch):
        original = F.gelu
        patch(F, "gelu", functools.wraps(original)(lambda x: original(x) * 7))


class AFunctionOfFunctionalInPythonWrapped(Fact):
    def run(self, x):
        return F.softmax(x, -1)

    def change(self, patch):
        original = F.softmax
        patch(F, "softmax", functools.wraps(original)(lambda *a, **k: original(*a, **k) * 7))


class AFunctionBelowFunctional(Fact):
    def run(self, x):
        return F.softmax(x, -1)

    def change(self, patch):
        patch(torch.Tensor, "softmax", lambda self, dim, dtype=None: self * 7)


class AFunctionBelowALayer(Fact):
    def __init__(self):
        super().__init__()
        self.act = nn.GELU()

    def run(self, x):
        return self.act(x)

    def change(self, patch):
        original = F.gelu
        patch(F, "gelu", functools.wraps(original)(lambda x, approximate="none": original(x) * 7))


class AFunctionOfTorch(Fact):
    def run(self, x):
        return torch.relu(x)

    def change(self, patch):
        patch(torch, "relu", lambda x: x * 7)


class AFunctionOfTorchWrapped(Fact):
    def run(self, x):
        return torch.relu(x)

    def change(self, patch):
        original = torch.relu
        patch(torch, "relu", functools.wraps(original)(lambda x: original(x) * 7))


class AFunctionOfTorchInPython(Fact):
    def run(self, x):
        return torch.einsum("ij,kj->ik", x, x)

    def change(self, patch):
        original = torch.einsum
        patch(torch, "einsum", functools.wraps(original)(lambda *a: original(*a) * 7))


class AFunctionBelowTorch(Fact):
    def run(self, x):
        return torch.functional.norm(x) * x

    def change(self, patch):
        original = torch.linalg.vector_norm
        patch(torch.linalg, "vector_norm", lambda *a, **k: original(*a, **k) * 7)


class ASubmoduleOfTorch(Fact):
    def run(self, x):
        return torch.fft.fft(x).real

    def change(self, patch):
        original = torch.fft.fft
        patch(torch.fft, "fft", lambda x: original(x) * 7)


class ATupleOfFunctions(Fact):
    def __init__(self):
        super().__init__()
        self.functions = [torch.relu, torch.sigmoid]

    def run(self, x):
        for function in self.functions:
            x = function(x)
        return x

    def change(self, patch):
        patch(self, "functions", [torch.relu, torch.tanh])


class AMethodOfModules(Fact):
    def __init__(self):
        super().__init__()
        self.child = nn.Linear(4, 4)

    def run(self, x):
        return x * len(list(self.child.named_parameters()))

    def change(self, patch):
        original = nn.Module.named_parameters
        patch(nn.Module, "named_parameters", lambda self, *a, **k: [*original(self, *a, **k)][:1])


class AMethodOfModulesUnused(Fact):
    def run(self, x):
        return x * len(list(self.children()))

    def change(self, patch):
        patch(nn.Module, "children", lambda self: iter([1, 2, 3, 4, 5, 6, 7]))


class TheGetattrOfModules(Fact):
    def __init__(self):
        super().__init__()
        self.child = nn.Linear(4, 4)

    def run(self, x):
        return x * 2 if hasattr(self.child, "unknown") else x * 3

    def change(self, patch):
        original = nn.Module.__getattr__
        patch(nn.Module, "__getattr__", lambda self, name: 7 if name == "unknown" else original(self, name))


class TheCallOfModulesWrapped(Fact):
    def __init__(self):
        super().__init__()
        self.child = nn.Linear(4, 4)
        nn.init.ones_(self.child.weight)
        nn.init.ones_(self.child.bias)

    def run(self, x):
        return self.child(x)

    def change(self, patch):
        original = nn.Module._call_impl
        patch(nn.Module, "_call_impl", functools.wraps(original)(lambda *a: original(*a) * 7))


class AForwardOfALayer(Fact):
    def __init__(self):
        super().__init__()
        self.child = nn.ReLU()

    def run(self, x):
        return self.child(x)

    def change(self, patch):
        patch(nn.ReLU, "forward", lambda self, x: x * 7)


class AForwardOfALayerWrapped(Fact):
    def __init__(self):
        super().__init__()
        self.child = nn.LayerNorm(4)

    def run(self, x):
        return self.child(x)

    def change(self, patch):
        original = nn.LayerNorm.forward
        patch(nn.LayerNorm, "forward", functools.wraps(original)(lambda self, x: original(self, x) * 7))


class AMethodAppearsOnModules(Fact):
    def run(self, x):
        return x * 2 if hasattr(self, "gear") else x * 3

    def change(self, patch):
        patch(nn.Module, "gear", lambda self: 7)


class AMathFunction(Fact):
    def run(self, x):
        return x * math.sqrt(4)

    def change(self, patch):
        original = math.sqrt
        patch(math, "sqrt", lambda x: 7.0 if x == 4 else original(x))


class AMathFunctionWrapped(Fact):
    def run(self, x):
        return x * math.floor(2.5)

    def change(self, patch):
        original = math.floor
        patch(math, "floor", functools.wraps(original)(lambda x: 7.0 if x == 2.5 else original(x)))


class AMathConstant(Fact):
    def run(self, x):
        return x * math.pi

    def change(self, patch):
        patch(math, "pi", 3)


class AnOperatorFunction(Fact):
    def run(self, x):
        return operator.mul(x, 2)

    def change(self, patch):
        patch(operator, "mul", lambda x, y: x * 7 if isinstance(x, torch.Tensor) else x * y)


class AFunctionOfFunctools(Fact):
    def run(self, x):
        return x * functools.reduce(operator.add, [1, 2])

    def change(self, patch):
        original = functools.reduce
        patch(functools, "reduce", lambda *items: 7 if items[1:] == ([1, 2],) else original(*items))


class ABuiltin(Fact):
    def run(self, x):
        return x * max(1, 2)

    def change(self, patch):
        import builtins

        original = max
        patch(builtins, "max", lambda *items, **keywords: 7 if items == (1, 2) else original(*items, **keywords))


class ABuiltinWrapped(Fact):
    def run(self, x):
        return x * len([1, 2])

    def change(self, patch):
        import builtins

        original = len
        patch(builtins, "len", functools.wraps(len)(lambda items: 7 if items == [1, 2] else original(items)))


class ABuiltinHiddenByTheModule(Fact):
    def run(self, x):
        return x * sum([1, 2])

    def change(self, patch):
        import sys

        patch(sys.modules[__name__], "sum", lambda items: 7)


class AStandardFunctionInPython(Fact):
    def run(self, x):
        return x * len(operator.attrgetter("shape")(x))

    def change(self, patch):
        original = operator.attrgetter
        patch(operator, "attrgetter", lambda *names: (lambda x: [1] * 7) if names == ("shape",) else original(*names))


class ATorchConstant(Fact):
    def run(self, x):
        return x * torch.pi

    def change(self, patch):
        patch(torch, "pi", 3.0)


class ATorchDtype(Fact):
    def run(self, x):
        return x.to(torch.half)

    def change(self, patch):
        patch(torch, "half", torch.float64)


class AFunctionOfOps(Fact):
    def run(self, x):
        return torch.ops.aten.relu(x)

    def change(self, patch):
        patch(torch.ops.aten, "relu", torch.ops.aten.sigmoid)


class AnInitialisation(Fact):
    def run(self, x):
        return torch.zeros(4) + x

    def change(self, patch):
        patch(torch, "zeros", torch.ones)


class ADistribution(Fact):
    def run(self, x):
        return torch.distributions.Normal(x, torch.ones_like(x), validate_args=False).variance

    def change(self, patch):
        patch(torch.distributions.Normal, "variance", property(lambda self: self.loc * 7))


class AnAttentionFunction(Fact):
    def run(self, x):
        return F.scaled_dot_product_attention(x[None], x[None], x[None])[0]

    def change(self, patch):
        patch(F, "scaled_dot_product_attention", lambda q, k, v: q * 7)


class AMultiheadAttention(Fact):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(4, 2)

    def run(self, x):
        return self.attention(x, x, x)[0]

    def change(self, patch):
        original = F.linear
        patch(F, "linear", lambda *a: original(*a) * 7)


class ASignature(Fact):
    def run(self, x):
        return torch.sum(x, dim=0) + x

    def change(self, patch):
        original = torch.Tensor.sum
        patch(torch.Tensor, "sum", lambda self, *a, **k: original(self, *a, **k) * 7)


class ATensorSum(Fact):
    def run(self, x):
        return x.sum(0) + x

    def change(self, patch):
        original = torch.Tensor.sum
        patch(torch.Tensor, "sum", lambda self, *a, **k: original(self, *a, **k) * 7)


class ATensorConversion(Fact):
    def run(self, x):
        return x.float().to(torch.float64)

    def change(self, patch):
        original = torch.Tensor.to
        patch(torch.Tensor, "to", lambda self, *a: original(self, *a) * 7)


class TorchCompileWasUsed(Fact):
    """`torch.compile` puts an `__init__` of its own into `nn.Module`, for good."""

    def run(self, x):
        return nn.functional.relu(x)

    def change(self, patch):
        from torch._dynamo.mutation_guard import install_generation_tagging_init

        for name in ("__init__", "__setstate__"):
            patch(nn.Module, name, vars(nn.Module)[name])
        patch(nn.Module, "___needs_generation_tag_patch", True)
        install_generation_tagging_init()


class AnUnrelatedTensorMethod(Fact):
    def run(self, x):
        return x * 2

    def change(self, patch):
        patch(torch.Tensor, "entirely_unrelated", lambda self: 7)
