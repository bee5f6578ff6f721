"""What a class defines decides what Python does with its objects."""

import collections
import functools

import torch

from tests.cases.case import Case, changed, put


class Tool:
    """Defines nothing, until it is changed."""


class Plain:
    def __init__(self, value=1):
        self.value = value


class Base:
    factor = 2.0

    def scale(self, x):
        return x * 2


class Middle(Base):
    pass


class Nearest(Middle):
    pass


class Rebased(Base):
    pass


class Other:
    factor = 7.0


class Meta(type):
    pass


class Made(metaclass=Meta):
    weight = 2.0


class Described:
    def __get__(self, instance, owner):
        return 2.0


class Holder:
    value = Described()

    def __init__(self):
        vars(self)["value"] = 3.0


class Table(dict):
    pass


def helper(x):
    return x


class Net(Case):
    def __init__(self):
        super().__init__()
        self.tool, self.holder = Tool(), Holder()
        self.plain, self.same = Plain(2.0), Plain(2.0)
        self.base, self.nearest, self.rebased = Base(), Nearest(), Rebased()
        self.own = Nearest()
        self.own.factor = 3.0
        self.table, self.default = Table(a=1), collections.defaultdict(lambda: 2.0)

    def scaled(self, x, factor):
        return x * factor

    doubled = functools.partialmethod(scaled, factor=2)


def read_by_getattribute(self, name):
    return 7.0 if name == "value" else object.__getattribute__(self, name)


def equal_by_value(self, other):
    return self.value == other.value


def other_bases(self, patch):
    before = Rebased.__bases__
    Rebased.__bases__ = (Other,)
    patch.callback(setattr, Rebased, "__bases__", before)


def other_default(self, patch):
    before, self.default.default_factory = self.default.default_factory, lambda: 7.0
    patch.callback(setattr, self.default, "default_factory", before)


def class_of_the_same_name(self, patch):
    copy = type("Base", (), {"factor": 2.0, "__module__": Base.__module__})
    copy.__qualname__ = Base.__qualname__
    patch(self, "base", copy())


#: A method of Python that appears in a class.
SPECIAL = changed(
    Net,
    {
        "a call": ("return x * 2 if callable(self.tool) else x * 3", put(Tool, "__call__", lambda self: 1)),
        "a truth": ("return x * 2 if self.tool else x * 3", put(Tool, "__bool__", lambda self: False)),
        "an equality": ("return x * 2 if self.plain == self.same else x * 3", put(Plain, "__eq__", equal_by_value)),
        "a getattr": ("return x * getattr(self.plain, 'missing', 2.0)", put(Plain, "__getattr__", lambda *_: 7.0)),
        "a getattribute": ("return x * self.plain.value", put(Plain, "__getattribute__", read_by_getattribute)),
        "a text": ("return x * {'seven': 7.0}.get(f'{self.plain}', 2.0)", put(Plain, "__str__", lambda self: "seven")),
    },
)
#: Where an attribute is found: in an object, its class, their bases, or nowhere.
ATTRIBUTES = changed(
    Net,
    {
        "a method of a nearer base": ("return self.nearest.scale(x)", put(Middle, "scale", lambda self, x: x * 7)),
        "a property hides the object's": (
            "return x * self.own.factor",
            put(Nearest, "factor", property(lambda _: 7.0)),
        ),
        "an object hides its class": (
            "return x * self.nearest.factor",
            lambda self, patch: patch(self.nearest, "factor", 7.0),
        ),
        "an object hides a method": (
            "return self.nearest.scale(x)",
            lambda self, patch: patch(self.nearest, "scale", lambda x: x * 7),
        ),
        "an attribute appears": (
            "return x * 2 if hasattr(self.tool, 'unknown') else x * 3",
            lambda self, patch: patch(self.tool, "unknown", 7.0),
        ),
        "an attribute of the class appears": (
            "return x * 2 if hasattr(self.tool, 'unknown') else x * 3",
            put(Tool, "unknown", 7.0),
        ),
        "an attribute of the module appears": (
            "return x * getattr(self, 'gain', 1.0)",
            lambda self, patch: patch(type(self), "gain", 7.0),
        ),
        "an attribute of a function": ("return x * getattr(helper, 'gain', 2.0)", put(helper, "gain", 7.0)),
        "a metaclass gets an attribute": ("return x * getattr(Made, 'height', 2.0)", put(Meta, "height", 7.0)),
        "a descriptor becomes one of data": (
            "return x * self.holder.value",
            put(Described, "__set__", lambda self, instance, value: None),
        ),
        "a method of a dictionary's class": (
            "return x * self.table.get('a', 5)",
            put(Table, "get", lambda self, key, default=None: 7),
        ),
        "a partial method": (
            "return self.doubled(x)",
            lambda self, patch: patch(type(self), "doubled", functools.partialmethod(Net.scaled, factor=7)),
        ),
        "what makes the values of a dictionary": (
            "return x * self.default['a']",
            other_default,
        ),
        "another class of the object": (
            "return self.base.scale(x) if type(self.base) is Base else x * 3",
            lambda self, patch: patch(self, "base", Nearest()),
        ),
        "another class of the same name": (
            "return x * self.base.factor if isinstance(self.base, Base) else x * 3",
            class_of_the_same_name,
        ),
        "the bases are others": ("return x * self.rebased.factor", other_bases),
        "a class that the method does not use": ("return torch.relu(x)", put(Base, "unrelated", 1)),
    },
)
