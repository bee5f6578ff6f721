"""What a trace finds in containers, objects and modules, or does not find, and containers that are equal but not to it."""

import collections
import enum
import sys
import types

import torch
from torch import nn

from tests.cases.case import Case, case, changed, texts


class Registry:
    def __init__(self):
        self.table = {}

    def look_up(self, key):
        try:
            return self.table[key]
        except KeyError:
            return None


REGISTRY = Registry()


class Holder:
    pass


class Kind(enum.Enum):
    FIRST = 1
    SECOND = 2


class OwnText:
    def __init__(self):
        self.width = 3

    def __repr__(self):
        return "w" * self.width


class Making:
    """Makes each attribute that it has not."""

    def __getattr__(self, name):
        return 2.0


class Inner(nn.Module):
    scale = 2.0

    def forward(self, x):
        return x + 1


class Wrapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def forward(self, x):
        return self.inner(x) * self.scale


class Steps(collections.OrderedDict):
    pass


class Slotted:
    __slots__ = ("first", "second")

    def __init__(self):
        self.first = 2.0


sys.modules["process_helper"] = types.SimpleNamespace(FACTOR=2.0)


class Net(Case):
    def __init__(self):
        super().__init__()
        self.keyed, self.kind_of_holder = {}, Holder
        self.table, self.ordered = {"a": 1.0}, collections.OrderedDict(a=1.0, b=2.0)
        self.steps = Steps(a=1.0, b=2.0)
        self.chain = collections.ChainMap({}, {"b": 2.0})
        self.holder, self.space = Holder(), types.SimpleNamespace(a=3.0)
        self.kind, self.own_text, self.making, self.wrapper = Kind.FIRST, OwnText(), Making(), Wrapper()
        self.queue, self.members, self.slotted = collections.deque([0.0]), {1}, Slotted()
        self.parts = nn.ModuleDict({"a": nn.Tanh()})
        self.register_buffer("rows", torch.ones(3, 4))
        self.step = nn.Parameter(torch.zeros(1), requires_grad=False)


def another_order(self, patch):
    self.ordered.move_to_end("a")
    patch.callback(self.ordered.move_to_end, "b")


def another_order_of_steps(self, patch):
    self.steps.move_to_end("a")
    patch.callback(self.steps.move_to_end, "b")


def the_other_zero(self, patch):
    self.queue[0] = -0.0
    patch.callback(self.queue.__setitem__, 0, 0.0)


def an_equal_number(self, patch):
    self.members.clear()
    self.members.add(1.0)
    patch.callback(self.members.add, 1)
    patch.callback(self.members.clear)


def a_slot_is_set(self, patch):
    self.slotted.second = 4.0
    patch.callback(delattr, self.slotted, "second")


def other_data(self, patch):
    before, self.rows.data = self.rows.data, torch.ones(2, 4)
    patch.callback(setattr, self.rows, "data", before)


def a_tensor_for_the_parameter(self, patch):
    before = self._parameters.pop("step")
    patch.callback(setattr, self, "step", before)
    patch.callback(delattr, self, "step")
    self.step = torch.ones(1)


CONTAINERS = changed(
    Net,
    {
        "a key that is absent": (
            "try:\n    return x * self.table['b']\nexcept KeyError:\n    return x * 3",
            lambda self, patch: patch.item(self.table, "b", 2.0),
        ),
        "an equal key of another type": (
            "return x * self.keyed.get(True, 5.0)",
            lambda self, patch: patch.item(self.keyed, 1.0, 7.0),
        ),
        "a key that is made": (
            "return x * self.keyed.get((len(self.ordered), 1), 9.0)",
            lambda self, patch: patch.item(self.keyed, (2, 1), 7.0),
        ),
        "a class as a key": (
            "return x * self.keyed.get(self.kind_of_holder, 9.0)",
            lambda self, patch: patch.item(self.keyed, Holder, 7.0),
        ),
        "a key of a chain": (
            "return x * self.chain['b']",
            lambda self, patch: patch.item(self.chain.maps[0], "b", 7.0),
        ),
        "a key of a registry": (
            "activation = REGISTRY.look_up('activation')\nreturn x * 1 if activation is None else activation(x)",
            lambda self, patch: patch.item(REGISTRY.table, "activation", torch.sin),
        ),
        "the order of a dictionary": (
            "for value in self.ordered.values():\n    x = x * 2 + value\nreturn x",
            another_order,
        ),
        "the order of a subclass of a dictionary": (
            "for value in self.steps.values():\n    x = x * 2 + value\nreturn x",
            another_order_of_steps,
        ),
        "a queue of zeros": ("return torch.atan2(x.abs() * self.queue[0], torch.full_like(x, -1.0))", the_other_zero),
        "a set of an equal number": (
            "for member in self.members:\n    x = x.long() * member\nreturn x",
            an_equal_number,
        ),
    },
)
MADE_KEY = texts(
    Net,
    {
        "a made key that holds an object": (
            "return x * self.keyed.get((self.holder, 1), 9.0)",
            "a key that it makes and that holds an object",
        ),
    },
)
OBJECTS = changed(
    Net,
    {
        "a key of an object's dictionary": (
            "try:\n    return x * self.holder.__dict__['b']\nexcept KeyError:\n    return x * 3",
            lambda self, patch: patch(self.holder, "b", 2.0),
        ),
        "whether an object's dictionary has a key": (
            "return x * (2.0 if 'b' in self.holder.__dict__ else 3.0)",
            lambda self, patch: patch(self.holder, "b", 2.0),
        ),
        "all values of an object's dictionary": (
            "return x * sum(vars(self.space).values())",
            lambda self, patch: patch(self.space, "b", 2.0),
        ),
        "an enum by identity": (
            "return x * 2 if self.kind is Kind.FIRST else x * 3",
            lambda self, patch: patch(self, "kind", Kind.SECOND),
        ),
        "the text of an object": (
            "return x * len(str(self.own_text))",
            lambda self, patch: patch(self.own_text, "width", 5),
        ),
        "an attribute that its class makes": (
            "return x * self.making.scale",
            lambda self, patch: patch(self.making, "scale", 3.0),
        ),
        "a slot that is not set": (
            "return x * self.slotted.first * getattr(self.slotted, 'second', 3.0)",
            a_slot_is_set,
        ),
        "a module that is imported inside": (
            "import process_helper\nreturn x * process_helper.FACTOR",
            lambda self, patch: patch.item(sys.modules, "process_helper", types.SimpleNamespace(FACTOR=7.0)),
        ),
        "the code of the method": (
            "return x * 2",
            lambda self, patch: patch(type(self).run, "__code__", (lambda self, x: x * 5).__code__),
        ),
    },
)
MODULES = changed(
    Net,
    {
        "a module that is absent": (
            "try:\n    return self.parts['b'](-x)\nexcept KeyError:\n    return x * 3",
            lambda self, patch: patch.item(self.parts._modules, "b", nn.ReLU()),
        ),
        "an attribute of a wrapped module": (
            "return self.wrapper(x)",
            lambda self, patch: patch(self.wrapper, "scale", 5.0),
        ),
        "the size of a buffer": (
            "return x * self.rows.shape[0]",
            lambda self, patch: patch.item(self._buffers, "rows", torch.ones(2, 4)),
        ),
        "the strides of a buffer": (
            "return x * (2.0 if self.rows.is_contiguous() else 3.0)",
            lambda self, patch: patch.item(self._buffers, "rows", torch.ones(3, 8)[:, ::2]),
        ),
        "the size of other data of a buffer": ("return x * self.rows.shape[0]", other_data),
        "a written parameter that is none any more": (
            "self.step.detach().mul_(1)\nreturn x * (self.step + 2)",
            a_tensor_for_the_parameter,
        ),
    },
)


@case(table=dict, change=lambda self, patch: patch.item(self.table, "a", 1.0))
def whether_a_dictionary_is_empty(self, x):
    is_empty = not self.table
    return x * (2 if is_empty else 3)
