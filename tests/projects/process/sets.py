"""The order of a set, and hashes: another hash seed is another order."""

import enum

from fact import Fact

NAMES = frozenset({"query", "key", "value", "output", "gate", "up", "down"})
WEIGHTS = {"query": 1, "key": 2, "value": 3, "output": 4, "gate": 5, "up": 6, "down": 7}


class Kinds:
    names = {"query", "key", "value", "output", "gate", "up", "down"}


class Color(enum.Enum):
    RED = 1
    GREEN = 2


def folded(x, names):
    for name in names:
        x = x * 2 + WEIGHTS[name]
    return x


class Ordered(Fact):
    def __init__(self):
        super().__init__()
        self.names = {"query", "key", "value", "output", "gate", "up", "down"}
        self.frozen = frozenset(self.names)
        self.table = dict(WEIGHTS)


class AnAttributeIsIterated(Ordered):
    def run(self, x):
        return folded(x, self.names)


class AFrozenAttributeIsIterated(Ordered):
    def run(self, x):
        return folded(x, self.frozen)


class AGlobalIsIterated(Ordered):
    def run(self, x):
        return folded(x, NAMES)


class AConstantOfAClassIsIterated(Ordered):
    def run(self, x):
        return folded(x, Kinds.names)


class ALiteralIsIterated(Ordered):
    def run(self, x):
        for name in {"query", "key", "value", "output", "gate", "up", "down"}:
            x = x * 2 + WEIGHTS[name]
        return x


class ASetMadeOfAListIsIterated(Ordered):
    def run(self, x):
        return folded(x, set(["query", "key", "value", "output", "gate", "up", "down"]))


class ASetMadeOfADictIsIterated(Ordered):
    def run(self, x):
        return folded(x, set(self.table))


class AComprehensionIsIterated(Ordered):
    def run(self, x):
        return folded(x, {name for name in self.table})


class AListOfASet(Ordered):
    def run(self, x):
        return folded(x, list(self.names))


class ATupleOfASet(Ordered):
    def run(self, x):
        return folded(x, tuple(self.names))


class AJoinedSet(Ordered):
    def run(self, x):
        return x * 2 if ",".join(self.names) < "key" else x * 3


class AJoinedSetOfFour(Ordered):
    def run(self, x):
        text = ",".join(self.names)
        return x * (text.index("key") + 1)


class APoppedSet(Ordered):
    def run(self, x):
        names = set(self.table)
        return x * WEIGHTS[names.pop()]


class AnUnpackedSet(Ordered):
    def run(self, x):
        first, *_ = self.names
        return x * WEIGHTS[first]


class AStarredSet(Ordered):
    def run(self, x):
        return first_of(x, *self.names)


def first_of(x, name, *names):
    return x * WEIGHTS[name]


class NextOfASet(Ordered):
    def run(self, x):
        return x * WEIGHTS[next(iter(self.names))]


class AnEnumeratedSet(Ordered):
    def run(self, x):
        for index, name in enumerate(self.names):
            x = x + index * WEIGHTS[name]
        return x


class AZippedSet(Ordered):
    def run(self, x):
        for index, name in zip(range(7), self.names):
            x = x + index * WEIGHTS[name]
        return x


class AMappedSet(Ordered):
    def run(self, x):
        for weight in map(WEIGHTS.get, self.names):
            x = x * 2 + weight
        return x


class ADifferenceIsIterated(Ordered):
    def run(self, x):
        return folded(x, self.names - {"key"})


class AUnionIsIterated(Ordered):
    def run(self, x):
        return folded(x, self.frozen | {"key"})


class AnIntersectionIsIterated(Ordered):
    def run(self, x):
        return folded(x, self.names & set(self.table))


class AViewsDifferenceIsIterated(Ordered):
    def run(self, x):
        return folded(x, self.table.keys() - {"key"})


class AViewsUnionIsIterated(Ordered):
    def run(self, x):
        return folded(x, self.table.keys() | {"key"})


class DictFromKeys(Ordered):
    def run(self, x):
        return folded(x, dict.fromkeys(self.names))


class AComprehensionOverASet(Ordered):
    def run(self, x):
        return folded(x, [name for name in self.names if name != "key"])


class AGeneratorOverASet(Ordered):
    def run(self, x):
        return folded(x, (name for name in self.names))


class MaxWithAKey(Ordered):
    def run(self, x):
        return x * WEIGHTS[max(self.names, key=lambda name: len(name) > 3)]


class SortedWithAKey(Ordered):
    def run(self, x):
        return folded(x, sorted(self.names, key=len))


class SortedTexts(Ordered):
    def run(self, x):
        return folded(x, sorted(self.names))


class AMemberIsLookedUp(Ordered):
    def run(self, x):
        return x * 2 if "key" in self.names and "absent" not in NAMES else x * 3


class TheSizeOfASet(Ordered):
    def run(self, x):
        return x * len(self.names) * len(self.names & NAMES)


class AnEqualSet(Ordered):
    def run(self, x):
        return x * 2 if self.names == set(WEIGHTS) else x * 3


class ATextIsHashed(Ordered):
    def run(self, x):
        return x * (hash("query") % 1000)


class BytesAreHashed(Ordered):
    def run(self, x):
        return x * (hash(b"query") % 1000)


class ATupleIsHashed(Ordered):
    def run(self, x):
        return x * (hash(("query", 1)) % 1000)


class AFrozenSetIsHashed(Ordered):
    def run(self, x):
        return x * (hash(self.frozen) % 1000)


class AHashMethod(Ordered):
    def run(self, x):
        return x * ("query".__hash__() % 1000)


class AnEnumMemberIsHashed(Ordered):
    def run(self, x):
        return x * (hash(Color.RED) % 1000)


class ANumberIsHashed(Ordered):
    def run(self, x):
        return x * (hash(1.5) % 1000)


class AnAttributeIsHashed(Ordered):
    def __init__(self):
        super().__init__()
        self.name = "query"

    def run(self, x):
        return x * (hash(self.name) % 1000)


class AnObjectIsHashed(Ordered):
    def __init__(self):
        super().__init__()
        self.object = Kinds()

    def run(self, x):
        return x * (hash(self.object) % 1000)


class AnIdOfAnObject(Ordered):
    def __init__(self):
        super().__init__()
        self.object = Kinds()

    def run(self, x):
        return x * (id(self.object) // 16 % 1000)


class AnIdOfAModule(Ordered):
    def run(self, x):
        return x * (id(self) // 16 % 1000)


class AnIdOfAClass(Ordered):
    def run(self, x):
        return x * (id(Kinds) // 16 % 1000)


class ARepresentationWithAnAddress(Ordered):
    def __init__(self):
        super().__init__()
        self.object = object.__new__(Kinds)

    def run(self, x):
        return x * sum(map(ord, repr(self.object)[-8:]))


class ATextWithAnAddress(Ordered):
    def __init__(self):
        super().__init__()
        self.object = object.__new__(Kinds)

    def run(self, x):
        return x * sum(map(ord, f"{self.object}"[-8:]))


class ASetAsText(Ordered):
    def run(self, x):
        return x * (str(self.names).index("key") + 1)


class SmallNumbersAreIterated(Ordered):
    def run(self, x):
        for number in {3, 1, 2}:
            x = x * 2 + number
        return x


class NumbersOfAListAreIterated(Ordered):
    def run(self, x):
        for number in set([9, 1, 17]):
            x = x * 2 + number
        return x


class NumbersAreAddedAndIterated(Ordered):
    def run(self, x):
        numbers = set()
        for number in (8, 16, 0, 3):
            numbers.add(number)
        for number in numbers:
            x = x * 2 + number
        return x
