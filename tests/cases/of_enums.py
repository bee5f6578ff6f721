"""What members of an enum answer by methods of their class: Dynamo calls these, and notes nothing of what they read."""

import enum
import sys

from tests.cases.case import case

FACTOR = 1
HERE = sys.modules[__name__]
READS = "whose `__{}__` reads what no trace notes"


class Truthful(enum.Enum):
    LOW = 1
    HIGH = 2

    def __bool__(self):
        return self.value > FACTOR


class Named(enum.Enum):
    LOW = 1
    HIGH = 2

    def __str__(self):
        return self.name * FACTOR


class Ordered(enum.Enum):
    LOW = 1
    HIGH = 2

    def __lt__(self, other):
        return self.value * FACTOR < other.value


class Added(enum.Enum):
    LOW = 1
    HIGH = 2

    def __radd__(self, other):
        return other + self.value * FACTOR


class Found(enum.Enum):
    ONE = 1
    TWO = 2

    @classmethod
    def _missing_(cls, value):
        return list(cls)[FACTOR - 1]


class Own(enum.Enum):
    """Its methods read nothing but the member."""

    SMALL = 1
    LARGE = 2

    def __bool__(self):
        return self.value > 1

    def __lt__(self, other):
        return self.value < other.value

    def __str__(self):
        return self.name.lower()

    @classmethod
    def _missing_(cls, value):
        return cls.SMALL


@case(refused=READS.format("bool"), patched=(HERE, "FACTOR", 0))
def the_truth_of_a_member(self, x):
    return x * 2 if Truthful.LOW else x * 3


@case(refused=READS.format("str"), patched=(HERE, "FACTOR", 2), named=lambda: Named.LOW)
def the_text_of_a_member(self, x):
    return x * len(str(self.named))


@case(refused=READS.format("lt"), patched=(HERE, "FACTOR", 3))
def which_member_is_less(self, x):
    return x * (2 if Ordered.LOW < Ordered.HIGH else 3)


@case(refused=READS.format("radd"), patched=(HERE, "FACTOR", 2))
def a_sum_with_a_member(self, x):
    return x * (1 + Added.LOW)


@case(refused="the enum `.*Found`, whose `_missing_` reads", patched=(HERE, "FACTOR", 2))
def the_member_of_another_value(self, x):
    return x * Found(7).value


@case(refused=False, patched=(Own, "__lt__", lambda self, other: self.value > other.value))
def members_whose_methods_read_nothing_else(self, x):
    return x * (2 if Own.SMALL < Own.LARGE else 3) * len(f"{Own.LARGE}") * Own(9).value * (5 if Own.LARGE else 7)
