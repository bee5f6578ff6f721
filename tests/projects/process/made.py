"""Classes whose objects are made inside the method: what their making reads is guarded by nothing of Dynamo."""

import collections
import dataclasses
import enum
import typing

from fact import Fact
from torch import nn


@dataclasses.dataclass
class Settings:
    scale: float = 2.0
    parts: list = dataclasses.field(default_factory=lambda: [1.0, 2.0])


@dataclasses.dataclass(frozen=True)
class Frozen:
    scale: float = 2.0


@dataclasses.dataclass
class Inherited(Settings):
    shift: float = 1.0


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


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value=2.0):
        self.value = value


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


class Steps:
    def __init__(self, count=2):
        self.count = count

    def __iter__(self):
        return iter(range(self.count))


class Layer(nn.Module):
    gain = 2.0

    def __init__(self, scale=3.0):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return x * self.scale * self.gain


class ADataclassDefault(Fact):
    def run(self, x):
        return x * Settings().scale

    def change(self, patch):
        patch(Settings, "__init__", remade(Settings, scale=7.0))


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


class ADataclassIsAnother(Fact):
    def run(self, x):
        return x * Settings().scale

    def change(self, patch):
        other = dataclasses.make_dataclass("Settings", [("scale", float, 7.0), ("parts", list, None)])
        other.__module__ = Settings.__module__
        patch(__import__("sys").modules[__name__], "Settings", other)


class ADataclassFactory(Fact):
    def run(self, x):
        return x * Settings().parts[1]

    def change(self, patch):
        patch(Settings, "__init__", remade(Settings, parts=dataclasses.field(default_factory=lambda: [1.0, 7.0])))


class AFrozenDataclassDefault(Fact):
    def run(self, x):
        return x * Frozen().scale

    def change(self, patch):
        other = dataclasses.make_dataclass("Frozen", [("scale", float, 7.0)], frozen=True)
        other.__module__ = Frozen.__module__
        patch(__import__("sys").modules[__name__], "Frozen", other)


class AnInheritedDataclassDefault(Fact):
    def run(self, x):
        return x * Inherited().scale + Inherited().shift

    def change(self, patch):
        patch(Inherited, "__init__", remade(Inherited, scale=7.0))


class ADataclassClassAttribute(Fact):
    def run(self, x):
        return x * Settings(1.0).scale * Settings.scale

    def change(self, patch):
        patch(Settings, "scale", 7.0)


class ADataclassFieldIsReplaced(Fact):
    def run(self, x):
        return x * dataclasses.replace(Settings(1.0), scale=2.0).parts[1]

    def change(self, patch):
        patch(Settings, "__init__", remade(Settings, parts=dataclasses.field(default_factory=lambda: [1.0, 7.0])))


class APostInit(Fact):
    def run(self, x):
        return x * Finished().scale

    def change(self, patch):
        def finish(self):
            self.scale = 7.0

        patch(Finished, "__post_init__", finish)


class APostInitAppears(Fact):
    def run(self, x):
        return x * Frozen().scale + Frozen().scale

    def change(self, patch):
        patch(
            Frozen,
            "__getattribute__",
            lambda self, name: 7.0 if name == "scale" else object.__getattribute__(self, name),
        )


class AnInitDefault(Fact):
    def run(self, x):
        return x * Options().scale

    def change(self, patch):
        patch(Options.__init__, "__defaults__", (7.0,))


class AnInitKeywordDefault(Fact):
    def run(self, x):
        return x * Options().shift

    def change(self, patch):
        patch(Options.__init__, "__kwdefaults__", {"shift": 7.0})


class AnInitIsAnother(Fact):
    def run(self, x):
        return x * Options().scale

    def change(self, patch):
        def start(self, scale=3.0, *, shift=1.0):
            self.scale, self.shift = 7.0, 7.0

        patch(Options, "__init__", start)


class Renewed:
    scale = 3.0


class ANewAppears(Fact):
    def run(self, x):
        return x * Renewed().scale

    def change(self, patch):
        def new(cls, *arguments, **keywords):
            return Stand()

        patch(Renewed, "__new__", new)


class Stand:
    scale = 7.0


class AMethodDefaultOfWhatIsMade(Fact):
    def run(self, x):
        return x * Options().get()

    def change(self, patch):
        patch(Options.get, "__defaults__", (7.0,))


class AMethodOfWhatIsMade(Fact):
    def run(self, x):
        return x * Options().get()

    def change(self, patch):
        patch(Options, "get", lambda self, extra=0.5: 7.0)


class APropertyOfWhatIsMade(Fact):
    def run(self, x):
        return x * Options().both

    def change(self, patch):
        patch(Options, "both", property(lambda self: 7.0))


class AClassMethodDefault(Fact):
    def run(self, x):
        return x * Options.made().scale

    def change(self, patch):
        patch(Options.made.__func__, "__defaults__", (7.0,))


class AStaticMethodDefault(Fact):
    def run(self, x):
        return x * Options().fixed()

    def change(self, patch):
        patch(Options.fixed, "__defaults__", (7.0,))


class AClassAttributeOfWhatIsMade(Fact):
    def run(self, x):
        return x * Options().factor

    def change(self, patch):
        patch(Options, "factor", 7.0)


class AClassDictionaryOfWhatIsMade(Fact):
    def run(self, x):
        return x * Options().table["a"]

    def change(self, patch):
        patch.item(Options.table, "a", 7.0)


class AClassAttributeNearerOfWhatIsMade(Fact):
    def run(self, x):
        return x * Derived().factor

    def change(self, patch):
        patch(Derived, "factor", 7.0)


class AnInitNearerOfWhatIsMade(Fact):
    def run(self, x):
        return x * Derived().scale

    def change(self, patch):
        def start(self):
            self.scale = 7.0

        patch(Derived, "__init__", start)


class ASetattrOfWhatIsMade(Fact):
    def run(self, x):
        return x * Options().scale

    def change(self, patch):
        patch(Options, "__setattr__", lambda self, name, value: object.__setattr__(self, name, 7.0))


class ASlottedDefault(Fact):
    def run(self, x):
        return x * Slotted().value

    def change(self, patch):
        patch(Slotted.__init__, "__defaults__", (7.0,))


class ANamedTupleDefault(Fact):
    def run(self, x):
        return x * Pair(1.0).second

    def change(self, patch):
        patch(Pair.__new__, "__defaults__", (7.0,))


class ATypedNamedTupleDefault(Fact):
    def run(self, x):
        return x * Typed(1.0).second

    def change(self, patch):
        patch(Typed.__new__, "__defaults__", (7.0,))


class ANamedTupleGetsAMethod(Fact):
    def run(self, x):
        return x * Typed(1.0, 2.0).second

    def change(self, patch):
        patch(Typed, "second", property(lambda self: 7.0))


class AnEnumByValue(Fact):
    def run(self, x):
        return x * len(Kind(1.0).name)

    def change(self, patch):
        other = enum.Enum("Kind", {"SMALLER": 1.0, "LARGE": 2.0}, module=Kind.__module__)
        patch(__import__("sys").modules[__name__], "Kind", other)


class AnEnumByName(Fact):
    def run(self, x):
        return x * Kind["LARGE"].value

    def change(self, patch):
        other = enum.Enum("Kind", {"SMALL": 1.0, "LARGE": 7.0}, module=Kind.__module__)
        patch(__import__("sys").modules[__name__], "Kind", other)


class AnEnumIsIterated(Fact):
    def run(self, x):
        for kind in Kind:
            x = x * kind.value
        return x

    def change(self, patch):
        other = enum.Enum("Kind", {"SMALL": 1.0, "LARGE": 2.0, "HUGE": 7.0}, module=Kind.__module__)
        patch(__import__("sys").modules[__name__], "Kind", other)


class AnEnumHasALength(Fact):
    def run(self, x):
        return x * len(Kind)

    def change(self, patch):
        other = enum.Enum("Kind", {"SMALL": 1.0, "LARGE": 2.0, "HUGE": 7.0}, module=Kind.__module__)
        patch(__import__("sys").modules[__name__], "Kind", other)


class AFlagIsCombined(Fact):
    def run(self, x):
        return x * (Bits.A | Bits.B).value

    def change(self, patch):
        other = enum.IntFlag("Bits", {"A": 1, "B": 4}, module=Bits.__module__)
        patch(__import__("sys").modules[__name__], "Bits", other)


class ADictMade(Fact):
    def run(self, x):
        return x * Mixed()["a"] * Mixed().gain

    def change(self, patch):
        patch(Mixed.__init__, "__defaults__", (7.0,))


class ADictMadeWithAnAttribute(Fact):
    def run(self, x):
        return x * Mixed()["a"] * Mixed().gain

    def change(self, patch):
        patch(Mixed, "gain", 7.0)


class AListMade(Fact):
    def run(self, x):
        return x * Row([1.0, 2.0]).gain

    def change(self, patch):
        patch(Row, "gain", 7.0)


class AListMadeWithALength(Fact):
    def run(self, x):
        return x * len(Row([1.0, 2.0]))

    def change(self, patch):
        patch(Row, "__len__", lambda self: 7)


class AnExceptionsAttribute(Fact):
    def run(self, x):
        try:
            raise Failure(2.0)
        except Failure as failure:
            return x * failure.code

    def change(self, patch):
        patch(Failure, "code", 7.0)


class AContextMade(Fact):
    def run(self, x):
        with Guard() as value:
            return x * value

    def change(self, patch):
        patch(Guard.__init__, "__defaults__", (7.0,))


class AnIterableMade(Fact):
    def run(self, x):
        for step in Steps():
            x = x + step
        return x

    def change(self, patch):
        patch(Steps.__init__, "__defaults__", (7,))


class AModuleMade(Fact):
    def run(self, x):
        return Layer()(x)

    def change(self, patch):
        patch(Layer.__init__, "__defaults__", (7.0,))


class AModuleMadeWithAnAttribute(Fact):
    def run(self, x):
        return Layer()(x)

    def change(self, patch):
        patch(Layer, "gain", 7.0)


class ADefaultOfAFunctionHeld(Fact):
    def run(self, x):
        tools = {"scale": scaled}
        return tools["scale"](x)

    def change(self, patch):
        patch(scaled, "__defaults__", (7.0,))


def scaled(x, factor=2.0):
    return x * factor


class ADefaultOfAFunctionOfAClass(Fact):
    def run(self, x):
        return Toolbox().tool(x)

    def change(self, patch):
        patch(scaled, "__defaults__", (7.0,))


class Toolbox:
    def __init__(self):
        self.tool = scaled


class AnOrderedDictIsMade(Fact):
    def run(self, x):
        table = collections.OrderedDict(a=1.0, b=2.0)
        return x * table.popitem()[1]

    def change(self, patch):
        pass


class AReturnedDataclass(Fact):
    def run(self, x):
        return Settings(scale=2.0).scale * x

    def change(self, patch):
        def start(self, scale, parts=None):
            self.scale = 7.0

        patch(Settings, "__init__", start)
