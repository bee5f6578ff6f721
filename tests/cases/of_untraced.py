"""Functions that Dynamo does not go into, and results that it takes for constants: what they reach is compared."""

import sys

import torch
import torch._dynamo

from tests.cases.case import Case, changed, put, texts

HERE = sys.modules[__name__]
SHIFT, OFFSET = 1.0, 2.0


def helper(x):
    return x * 2


def other_helper(x):
    return x * 3


@torch.compiler.allow_in_graph
def allowed(x):
    return helper(x) + SHIFT


@torch._dynamo.nonstrict_trace
def nonstrict(x):
    return helper(x) + SHIFT


class Unknown:
    def __call__(self, x):
        return x


UNKNOWN = Unknown()


@torch.compiler.allow_in_graph
def of_unknown(x):
    return UNKNOWN(x)


@torch.compiler.assume_constant_result
def assumed():
    return OFFSET


@torch.compiler.assume_constant_result
def assumed_of(value):
    return value


class Net(Case):
    def __init__(self):
        super().__init__()
        self.kept = [allowed]


def another_function(self, patch):
    self.kept[0] = torch.relu
    patch.callback(self.kept.__setitem__, 0, allowed)


USED = changed(
    Net,
    {
        "what an untraced function reads": ("return allowed(x)", put(HERE, "SHIFT", 2.0)),
        "what a function reads that is not traced strictly": ("return nonstrict(x)", put(HERE, "SHIFT", 2.0)),
        "what a held untraced function calls": ("return self.kept[0](x)", put(HERE, "helper", other_helper)),
        "another function for a held untraced one": ("return self.kept[0](x)", another_function),
        "a result that is assumed constant": ("return x * assumed()", put(HERE, "OFFSET", 3.0)),
    },
    refused=False,
)
REFUSED = texts(
    Net,
    {
        "an untraced function calls an unknown": ("return of_unknown(x)", "Unknown"),
        "a result of arguments that is assumed constant": (
            "return x * assumed_of(2.0)",
            "calls `.*assumed_of`, whose result is assumed constant",
        ),
        "a stream": (
            "with torch.Stream(device='cpu'):\n    return x + 1",
            "it works with streams or events, which a static graph cannot honour",
        ),
    },
)
