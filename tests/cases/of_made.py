"""Classes whose objects are made inside the method: what their making reads is guarded by nothing of Dynamo."""

import collections
import dataclasses
import enum
import sys
import typing

from torch import nn

from tests.cases.case import Case, changed, put

HERE = sys.modules[__name__]


@dataclasses.dataclass
class Settings:
    scale: float = 2.0


@dataclasses.dataclass
class OtherSettings:
    """As `Settings`, with another default."""

    scale: float = 7.0


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


Pair = collections.namedtuple("Pair", ["first", "second"], defaults=[2.0])


class Kind(enum.Enum):
    SMALL = 1.0
    LARGE = 2.0


class Range(typing.NamedTuple):
    low: float = 0.0
    high: float = 2.0


class Level(enum.Enum):
    LOW = Range(1.0, 2.0)
    HIGH = Range(2.0, 3.0)

    def __init__(self, low, high):
        self.middle = (low + high) / 2


class Ranged:
    def __init__(self, ranges=((Range(), 1.0), [Range()])):  # noqa: B008 - named tuples do not change
        self.high = ranges[0][0].high + ranges[1][0].high


class Mixed(dict):
    def __init__(self, start=3.0):
        super().__init__(a=start)


class Failure(Exception):
    code = 2.0


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


def scaled(x, factor=2.0):
    return x * factor


def finish(self):
    self.scale = 7.0


def start(self, scale=3.0, *, shift=1.0):
    self.scale = self.shift = 7.0


class Net(Case):
    pass


OTHER_KIND = enum.Enum("Kind", {"SMALLER": 1.0, "LARGE": 2.0}, module=__name__)
CASES = changed(
    Net,
    {
        "defaults of a dataclass": ("return x * Settings().scale", put(Settings, "__init__", OtherSettings.__init__)),
        "another dataclass": ("return x * Settings().scale", put(HERE, "Settings", OtherSettings)),
        "an attribute of a dataclass": ("return x * Settings(1.0).scale * Settings.scale", put(Settings, "scale", 7.0)),
        "what ends the making of a dataclass": (
            "return x * Finished().scale",
            put(Finished, "__post_init__", finish),
        ),
        "a default": ("return x * Options().scale", put(Options.__init__, "__defaults__", (7.0,))),
        "a default of a keyword": (
            "return x * Options().shift",
            put(Options.__init__, "__kwdefaults__", {"shift": 7.0}),
        ),
        "another making": ("return x * Options().scale", put(Options, "__init__", start)),
        "a default of a method": ("return x * Options().get()", put(Options.get, "__defaults__", (7.0,))),
        "a property": ("return x * Options().both", put(Options, "both", property(lambda self: 7.0))),
        "an attribute of the class": ("return x * Options().factor", put(Options, "factor", 7.0)),
        "a dictionary of the class": (
            "return x * Options().table['a']",
            lambda self, patch: patch.item(Options.table, "a", 7.0),
        ),
        "a default of a named tuple": ("return x * Pair(1.0).second", put(Pair.__new__, "__defaults__", (7.0,))),
        "a member of an enum by its value": ("return x * len(Kind(1.0).name)", put(HERE, "Kind", OTHER_KIND)),
        "what a member of an enum has": (
            "for level in Level:\n    x = x * level.middle\nreturn x",
            put(vars(Level)["_member_map_"]["LOW"], "middle", 7.0),
        ),
        "what a value of an enum holds": (
            "for level in Level:\n    x = x * level.value.high\nreturn x",
            put(vars(Level)["_member_map_"]["LOW"], "_value_", Range(1.0, 7.0)),
        ),
        "what a default holds": (
            "return x * Ranged().high",
            put(Ranged.__init__, "__defaults__", (((Range(0.0, 7.0), 1.0), [Range()]),)),
        ),
        "a dictionary that is made": ("return x * Mixed()['a']", put(Mixed.__init__, "__defaults__", (7.0,))),
        "an attribute of an exception": (
            "try:\n    raise Failure(2.0)\nexcept Failure as failure:\n    return x * failure.code",
            put(Failure, "code", 7.0),
        ),
        "a context": ("with Guard() as value:\n    return x * value", put(Guard.__init__, "__defaults__", (7.0,))),
        "a module that is made": ("return Layer()(x)", put(Layer, "gain", 7.0)),
        "a default of a function that is held": (
            "tools = {'scale': scaled}\nreturn tools['scale'](x)",
            put(scaled, "__defaults__", (7.0,)),
        ),
    },
)
