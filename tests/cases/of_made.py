"""Classes whose objects are made inside the method: what their making reads is guarded by nothing of Dynamo."""

import collections
import dataclasses
import enum
import sys
import typing

from torch import nn

from tests.cases.case import case


@dataclasses.dataclass
class Settings:
    scale: float = 2.0
    parts: list = dataclasses.field(default_factory=lambda: [1.0, 2.0])


@dataclasses.dataclass
class Finished:
    scale: float = 2.0

    def __post_init__(self):
        self.scale = self.scale * 2


class Options:
    factor = 2.0
    table = {"a": 1.0}

    def __init__(self, scale=3.0, *, shift=1.0):
        self.scale = scale
        self.shift = shift

    def get(self, extra=0.5):
        return extra

    @property
    def both(self):
        return self.scale + self.shift

    @classmethod
    def made(cls, scale=4.0):
        return cls(scale)

    @staticmethod
    def fixed(value=5.0):
        return value


class Derived(Options):
    pass


Pair = collections.namedtuple("Pair", ["first", "second"], defaults=[2.0])


class Typed(typing.NamedTuple):
    first: float
    second: float = 2.0


class Kind(enum.Enum):
    SMALL = 1.0
    LARGE = 2.0


class Bits(enum.IntFlag):
    A = 1
    B = 2


class Mixed(dict):
    gain = 2.0

    def __init__(self, start=3.0):
        super().__init__(a=start)


class Row(list):
    gain = 2.0


class Failure(Exception):
    code = 2.0

    def __init__(self, value=3.0):
        super().__init__(value)
        self.value = value


class Guard:
    def __init__(self, value=2.0):
        self.value = value

    def __enter__(self):
        return self.value

    def __exit__(self, *arguments):
        return False


class Layer(nn.Module):
    gain = 2.0

    def __init__(self, scale=3.0):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return x * self.scale * self.gain


def remade(cls, **defaults):
    """Return the `__init__` that a dataclass has with other defaults."""
    fields = [
        (
            each.name,
            each.type,
            defaults.get(
                each.name,
                each.default
                if each.default is not dataclasses.MISSING
                else dataclasses.field(default_factory=each.default_factory),
            ),
        )
        for each in dataclasses.fields(cls)
    ]
    other = dataclasses.make_dataclass(cls.__name__, fields)
    other.__init__.__qualname__ = cls.__init__.__qualname__
    other.__init__.__module__ = cls.__init__.__module__
    return other.__init__


def scaled(x, factor=2.0):
    return x * factor


class Renewed:
    scale = 3.0


class Stand:
    scale = 7.0


class Toolbox:
    def __init__(self):
        self.tool = scaled


@case(patched=(Settings, "__init__", remade(Settings, scale=7.0)))
def a_dataclass_default(self, x):
    return x * Settings().scale


@case()
def a_dataclass_is_another(self, x):
    return x * Settings().scale


@a_dataclass_is_another.changed
def _(self, patch):
    other = dataclasses.make_dataclass("Settings", [("scale", float, 7.0), ("parts", list, None)])
    other.__module__ = Settings.__module__
    patch(sys.modules[__name__], "Settings", other)


@case(patched=(Settings, "__init__", remade(Settings, parts=dataclasses.field(default_factory=lambda: [1.0, 7.0]))))
def a_dataclass_factory(self, x):
    return x * Settings().parts[1]


@case(patched=(Settings, "scale", 7.0))
def a_dataclass_class_attribute(self, x):
    return x * Settings(1.0).scale * Settings.scale


@case(patched=(Settings, "__init__", remade(Settings, parts=dataclasses.field(default_factory=lambda: [1.0, 7.0]))))
def a_dataclass_field_is_replaced(self, x):
    return x * dataclasses.replace(Settings(1.0), scale=2.0).parts[1]


@case()
def a_post_init(self, x):
    return x * Finished().scale


@a_post_init.changed
def _(self, patch):
    def finish(self):
        self.scale = 7.0

    patch(Finished, "__post_init__", finish)


@case(patched=(Options.__init__, "__defaults__", (7.0,)))
def an_init_default(self, x):
    return x * Options().scale


@case(patched=(Options.__init__, "__kwdefaults__", {"shift": 7.0}))
def an_init_keyword_default(self, x):
    return x * Options().shift


@case()
def an_init_is_another(self, x):
    return x * Options().scale


@an_init_is_another.changed
def _(self, patch):
    def start(self, scale=3.0, *, shift=1.0):
        self.scale, self.shift = 7.0, 7.0

    patch(Options, "__init__", start)


@case()
def a_new_appears(self, x):
    return x * Renewed().scale


@a_new_appears.changed
def _(self, patch):
    def new(cls, *arguments, **keywords):
        return Stand()

    patch(Renewed, "__new__", new)


@case(patched=(Options.get, "__defaults__", (7.0,)))
def a_method_default_of_what_is_made(self, x):
    return x * Options().get()


@case(patched=(Options, "both", property(lambda self: 7.0)))
def a_property_of_what_is_made(self, x):
    return x * Options().both


@case(patched=(Options.made.__func__, "__defaults__", (7.0,)))
def a_class_method_default(self, x):
    return x * Options.made().scale


@case(patched=(Options.fixed, "__defaults__", (7.0,)))
def a_static_method_default(self, x):
    return x * Options().fixed()


@case(patched=(Options, "factor", 7.0))
def a_class_attribute_of_what_is_made(self, x):
    return x * Options().factor


@case(change=lambda self, patch: patch.item(Options.table, "a", 7.0))
def a_class_dictionary_of_what_is_made(self, x):
    return x * Options().table["a"]


@case(patched=(Derived, "factor", 7.0))
def a_class_attribute_nearer_of_what_is_made(self, x):
    return x * Derived().factor


@case()
def an_init_nearer_of_what_is_made(self, x):
    return x * Derived().scale


@an_init_nearer_of_what_is_made.changed
def _(self, patch):
    def start(self):
        self.scale = 7.0

    patch(Derived, "__init__", start)


@case(patched=(Options, "__setattr__", lambda self, name, value: object.__setattr__(self, name, 7.0)))
def a_setattr_of_what_is_made(self, x):
    return x * Options().scale


@case(patched=(Pair.__new__, "__defaults__", (7.0,)))
def a_named_tuple_default(self, x):
    return x * Pair(1.0).second


@case(patched=(Typed, "second", property(lambda self: 7.0)))
def a_named_tuple_gets_a_method(self, x):
    return x * Typed(1.0, 2.0).second


@case()
def an_enum_by_value(self, x):
    return x * len(Kind(1.0).name)


@an_enum_by_value.changed
def _(self, patch):
    other = enum.Enum("Kind", {"SMALLER": 1.0, "LARGE": 2.0}, module=Kind.__module__)
    patch(sys.modules[__name__], "Kind", other)


@case()
def an_enum_is_iterated(self, x):
    for kind in Kind:
        x = x * kind.value
    return x


@an_enum_is_iterated.changed
def _(self, patch):
    other = enum.Enum("Kind", {"SMALL": 1.0, "LARGE": 2.0, "HUGE": 7.0}, module=Kind.__module__)
    patch(sys.modules[__name__], "Kind", other)


@case()
def a_flag_is_combined(self, x):
    return x * (Bits.A | Bits.B).value


@a_flag_is_combined.changed
def _(self, patch):
    other = enum.IntFlag("Bits", {"A": 1, "B": 4}, module=Bits.__module__)
    patch(sys.modules[__name__], "Bits", other)


@case(patched=(Mixed.__init__, "__defaults__", (7.0,)))
def a_dict_made(self, x):
    return x * Mixed()["a"] * Mixed().gain


@case(patched=(Mixed, "gain", 7.0))
def a_dict_made_with_an_attribute(self, x):
    return x * Mixed()["a"] * Mixed().gain


@case(patched=(Row, "__len__", lambda self: 7))
def a_list_made_with_a_length(self, x):
    return x * len(Row([1.0, 2.0]))


@case(patched=(Failure, "code", 7.0))
def an_exceptions_attribute(self, x):
    try:
        raise Failure(2.0)
    except Failure as failure:
        return x * failure.code


@case(patched=(Guard.__init__, "__defaults__", (7.0,)))
def a_context_made(self, x):
    with Guard() as value:
        return x * value


@case(patched=(Layer.__init__, "__defaults__", (7.0,)))
def a_module_made(self, x):
    return Layer()(x)


@case(patched=(Layer, "gain", 7.0))
def a_module_made_with_an_attribute(self, x):
    return Layer()(x)


@case(patched=(scaled, "__defaults__", (7.0,)))
def a_default_of_a_function_held(self, x):
    tools = {"scale": scaled}
    return tools["scale"](x)


@case(patched=(scaled, "__defaults__", (7.0,)))
def a_default_of_a_function_of_a_class(self, x):
    return Toolbox().tool(x)


@case(change=lambda self, patch: None)
def an_ordered_dict_is_made(self, x):
    table = collections.OrderedDict(a=1.0, b=2.0)
    return x * table.popitem()[1]


@case()
def a_returned_dataclass(self, x):
    return Settings(scale=2.0).scale * x


@a_returned_dataclass.changed
def _(self, patch):
    def start(self, scale, parts=None):
        self.scale = 7.0

    patch(Settings, "__init__", start)
