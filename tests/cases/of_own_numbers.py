"""Numbers of the user's classes: Dynamo takes their plain value where Python calls a method of theirs."""

import enum

from tests.cases.case import case


class Percent(float):
    def __mul__(self, other):
        return other * (float(self) / 100)

    __rmul__ = __mul__


class Level(enum.IntEnum):
    HIGH = 2

    def __mul__(self, other):
        return other * (self.value * 10)


class Third(int):
    def __index__(self):
        return int(self) // 3


class Count(int):
    unit = "rows"


@case(refused="number of the class `.*Percent`, whose `__mul__`", gain=lambda: Percent(50))
def a_share_of_a_tensor(self, x):
    return self.gain * x


@case(refused="number of the class `.*Level`, whose `__mul__`")
def a_member_times_a_tensor(self, x):
    return Level.HIGH * x


@case(refused="number of the class `.*Percent`, whose `__mul__`", gain=lambda: Percent(50))
def a_share_of_a_size(self, x):
    return x + self.gain * x.size(0)


@case(refused="number of the class `.*Third`, whose `__index__`", place=lambda: Third(3))
def an_index_of_its_own(self, x):
    return x * [1, 2, 3, 4][self.place]


@case(refused=False, gain=lambda: Percent(50), change=lambda self, patch: patch(self, "gain", Percent(20)))
def a_tensor_times_a_share(self, x):
    return x * self.gain


@case(refused=False, gain=lambda: Percent(50), change=lambda self, patch: patch(self, "gain", Percent(20)))
def a_share_of_a_number(self, x):
    return x * (self.gain * 4)


@case(refused=False, count=lambda: Count(3), change=lambda self, patch: patch(self, "count", Count(2)))
def a_number_without_methods_of_its_own(self, x):
    return self.count * x + [1, 2, 3, 4][self.count]
