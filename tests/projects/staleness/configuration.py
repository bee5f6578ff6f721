"""Settings of a model."""

import enum
from collections import namedtuple
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Kind(enum.Enum):
    SMALL = 1.0
    LARGE = 2.0


Pair = namedtuple("Pair", ["first", "second"])
PAIR = Pair(1.0, 2.0)


class Result(NamedTuple):
    total: Any
    positive: Any


class Base:
    pass


class Other:
    pass


@dataclass
class Rope:
    theta: float = 2.0
    unused: int = 0


@dataclass
class Settings(Base):
    rope: Rope = field(default_factory=Rope)
    scale: float = 1.5
    kind: Kind = Kind.SMALL

    @property
    def twice(self):
        return self.scale * 2

    def norm(self, x):
        return x / 4


class Scorer:
    def __call__(self, x):
        return x - 1


class Holder:
    def __init__(self, weight):
        self.weight = weight
