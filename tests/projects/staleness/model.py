"""A model that depends on nearly everything that a method can depend on."""

import builtins
import functools
import os

import blocks
import callee
import configuration
import constants
import torch
from torch import nn

SCALE = 2.0
UNUSED = 1
MOMENTS = [1.0, 2.0]
PARAMETER = nn.Parameter(torch.ones(4), requires_grad=False)
TENSOR = torch.ones(4)
ACTIVATION = torch.relu


def helper(x):
    return x * SCALE


def unrelated(x):
    return x - 5


def with_default(x, factor=2.0, *, shift=1.0):
    return x * factor + shift


def made_by(factor):
    def inner(x):
        return x * factor

    return inner


closure = made_by(3.0)
partial = functools.partial(with_default, factor=4.0)


@callee.plus_one
def decorated(x):
    return x * 7


@functools.lru_cache
def remembered():
    return 1.5


def generated(count):
    for index in range(count):
        yield index + 1


class Base(nn.Module):
    LEVEL = 2.0

    def based(self, x):
        return x * 5

    @property
    def size(self):
        return 3


class Model(Base):
    def __init__(self, width=4, factor=3.0, dtype=torch.float32):
        super().__init__()
        self.linear = nn.Linear(width, width, dtype=dtype)
        self.block = blocks.Block(width)
        self.layers = nn.ModuleList([blocks.Special(width), blocks.Special(width)])
        self.settings = configuration.Settings()
        self.act = lambda x: x * 2
        self.mode = "tanh"
        self.bias = None
        self.factor = factor
        self.unused = 0
        self.scales = [1.0, 2.0]
        self.table = {"gain": 2.0, "shift": 1.0}
        self.flags = {"a", "b"}
        self.scorer = configuration.Scorer()
        self.pieces = [torch.ones(width), torch.ones(width)]
        self.plain = configuration.Holder(torch.ones(width))
        torch.manual_seed(0)
        for parameter in self.parameters():
            nn.init.normal_(parameter)

    def run(self, x):
        return self.linear(helper(x)) * self.factor + callee.shift(x)

    def stacked(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.block(x)

    def configured(self, x):
        if isinstance(self.settings, configuration.Base):
            x = x + 1
        x = x * self.settings.rope.theta * self.settings.twice + self.settings.kind.value
        return x + configuration.PAIR.first + self.settings.norm(x) + configuration.Kind.LARGE.value

    def named(self, x):
        y = self.linear(x)
        return configuration.Result(y, torch.relu(y))

    def functions(self, x):
        x = decorated(closure(with_default(partial(x)))) * remembered() + self.act(x)
        x = self.scorer(x) + sum(generated(3))
        return ACTIVATION(x) + max(self.scales)

    def inherited(self, x):
        return super().based(x) * self.size + self.LEVEL + self.local(x)

    def local(self, x):
        def add(y):
            return y + 0.25

        return add(x)

    def containers(self, x):
        if "a" in self.flags:
            x = x + 1
        if self.mode == "tanh":
            x = torch.tanh(x)
        if self.bias is not None:
            x = x + self.bias
        if hasattr(self, "extra"):
            x = x * 10
        x = x * self.table.get("missing", 3.0) + getattr(self, "absent", 0.5)
        for name, value in self.table.items():
            x = x + len(name) * value
        for scale in self.scales:
            x = x * scale
        return x * MOMENTS[1] + len(self.pieces)

    def imported(self, x):
        return x * constants.GAIN + constants.TABLE["bias"] + constants.Namespace.depth.width + constants.deep(x)

    def environment(self, x):
        if os.environ.get("GEARCACHE_TEST_MODE") == "fast":
            return x * 2
        if os.getenv("GEARCACHE_TEST_SHIFT", "no") != "no":
            x = x + float(os.environ["GEARCACHE_TEST_SHIFT"])
        if "GEARCACHE_TEST_FLAG" in os.environ:
            x = x - 1
        if torch.cuda.is_available():
            x = x + 1
        if torch.distributed.is_initialized():
            x = x + 20
        return x * 3

    def trained(self, x):
        x = nn.functional.gelu(x) + self.linear(x)
        return x * 2 if self.training else x * 3

    def tensors(self, x):
        return x + TENSOR + PARAMETER + self.pieces[0] + self.plain.weight + self.pieces[1]

    def arguments(self, x, values=(), flag=None, extra=None):
        for value in values:
            x = x + value
        if flag is True:
            x = x * 2
        if isinstance(values, list):
            x = x - 1
        return x if extra is None else x + (extra["y"] if isinstance(extra, dict) else extra)

    def computed(self, x):
        return torch.addcmul(x, x, x) + builtins.abs(-1)

    def attended(self, x):
        return nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])[0]
