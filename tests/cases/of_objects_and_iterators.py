"""Objects that a method makes and iterators that leave it: each is as in Python, or is refused by name."""

import collections.abc
import dataclasses
import itertools
import random
import weakref

import torch

from tests.cases.case import Case, texts


@dataclasses.dataclass
class Output:
    hidden: torch.Tensor
    number: int = 3


class Pair(collections.abc.Sequence):
    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Tag:
    value = 0

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return f"Tag({self.value})"


class Formatted(Tag):
    def __format__(self, spec):
        return f"F{self.value}{spec}"


class Released:
    def __init__(self, pool):
        self.pool = pool

    def __del__(self):
        self.pool.append(1)


class Net(Case):
    def __init__(self):
        super().__init__()
        self.numbers = [3, 1, 2]
        self.pair = (1, 2)
        self.pool, self.count, self.other = [], 0, 5


LEAVES = "an iterator leaves it"
#: Served as Python runs them.
SERVED = texts(
    Net,
    {
        "a copy of a new object's attributes": "return dict(vars(Output(x + 1))), {**vars(Tag(4))}",
        "the attributes of a new object, gone over": "return x * 1, [value for value in vars(Tag(4)).items()]",
        "whether an attribute is left": """
        had = "other" in vars(self), "new" in vars(self)
        self.__dict__.pop("new", None)
        self.new = 3
        return x * 1, had, "new" in vars(self), "other" in self.__dict__
        """,
        "an attribute that is deleted is gone": """
        self.brief = 1
        before = "brief" in vars(self)
        del self.brief
        return x * 1, before, "brief" in vars(self), "brief" in self.__dict__, hasattr(self, "brief")
        """,
        "the order of attributes": """
        self.later = 1
        return x * 1, [name for name in self.__dict__ if not name.startswith("_")]
        """,
        "the text of a new object": 'return x * 1, f"{Tag(3)}", str(Tag(4)), repr(Tag(5)), f"{Tag(6)!r}"',
        "an iterator of a tuple leaves": "return x * 1, [*iter(self.pair)], list(zip(self.pair, self.numbers))",
        "a count leaves": "return x * 1, next(itertools.count(3))",
        "a generator is left outside of any try": """
        def numbers():
            try:
                self.count += 1
            finally:
                self.count += 2
            yield 1
            yield 2
        for number in numbers():
            break
        return x * number, self.count
        """,
        "a generator is left in another one": """
        def numbers():
            yield 2
            yield 3
        def more():
            yield from numbers()
        return x * next(more()), next(self.parameters(), None) is None
        """,
        "views of a dictionary by abstract classes": """
        made = {"a": 1}
        return x * 2, isinstance(made.items(), collections.abc.Mapping), isinstance(made.keys(), collections.abc.Set)
        """,
        "a sequence is left early": """
        for number in Pair(5, 6):
            break
        return x * number, 6 in Pair(5, 6), next(iter(Pair(7, 8)))
        """,
        "a generator with a try is closed": """
        def numbers():
            try:
                yield 1
                yield 2
            finally:
                self.count += 10
        each = numbers()
        first = next(each)
        each.close()
        return x * first, self.count
        """,
        "a slice is a result": "self.part = slice(1, None)\nreturn x * 1, slice(0, x.shape[0]), slice(2)",
    },
)
#: Refused, with what the refusal says.
REFUSED = texts(
    Net,
    {
        "the attributes of a new object, kept": (
            "self.last = Output(x).__dict__\nreturn x + 1",
            "gives away the `__dict__`",
        ),
        "the text of a new object's own format": ('return x + 1, f"{Formatted(3)}"', "text of an object that it makes"),
        "the text of a list of new objects": ('return x + 1, f"{[Tag(3)]}"', "text of an object that it makes"),
        "the text of a dict of new objects": ('return x + 1, repr({"k": Tag(3)})', "text of an object that it makes"),
        "format of a new object": ('return x + 1, "{}".format(Tag(3))', "text of an object that it makes"),
        "a finaliser": (
            "Released(self.pool)\nreturn x + 1",
            "makes a `tests.cases.of_objects_and_iterators:Released`, whose `__del__`",
        ),
        "a weak reference": (
            "tag = Tag(1)\nreturn x + 1, weakref.ref(tag)() is None",
            "weak reference to an object that it made",
        ),
        "an iterator": ("return x + 1, iter(self.numbers)", LEAVES),
        "an iterator in an attribute": ("self.rest = iter(self.numbers)\nreturn x + 1", LEAVES),
        "map": ("return x + 1, map(abs, self.numbers)", LEAVES),
        "a generator expression": ("return x + 1, (n for n in range(3))", LEAVES),
        "iter of a function": ("return x + 1, iter(self.numbers.pop, 1)", "which only Dynamo has"),
        "a generator left in a try": (
            "def numbers():\n    try:\n        yield 1\n        yield 2\n    finally:\n        self.count += 10\n"
            "for number in numbers():\n    break\nreturn x * number",
            "leaves the generator `.*numbers` in a `try`",
        ),
        "a generator left in another one in a try": (
            "def numbers():\n    yield 2\n    yield 3\ndef more():\n    try:\n        yield from numbers()\n"
            "    finally:\n        self.count += 10\nreturn x * next(more())",
            "leaves the generator `.*more` in a `try`",
        ),
    },
)
