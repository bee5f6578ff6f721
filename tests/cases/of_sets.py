"""The order of a set that a method is given, and hashes: another hash seed is another order."""

import enum

from tests.cases.case import Case, case, texts

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


class Ordered(Case):
    def __init__(self):
        super().__init__()
        self.names = {"query", "key", "value", "output", "gate", "up", "down"}
        self.frozen = frozenset(self.names)
        self.table = dict(WEIGHTS)


HASH = r"it calls `hash\(\)`, whose result may differ between processes: use the value itself as a key"
#: As in Python, or refused.
BODIES = texts(
    Ordered,
    {
        "an attribute is iterated": "return folded(x, self.names)",
        "a frozen attribute is iterated": "return folded(x, self.frozen)",
        "a global is iterated": "return folded(x, NAMES)",
        "a constant of a class is iterated": "return folded(x, Kinds.names)",
        "a literal is iterated": """
        for name in {"query", "key", "value", "output", "gate", "up", "down"}:
            x = x * 2 + WEIGHTS[name]
        return x
        """,
        "a list of a set": "return folded(x, list(self.names))",
        "a joined set": 'return x * 2 if ",".join(self.names) < "key" else x * 3',
        "an unpacked set": "first, *_ = self.names\nreturn x * WEIGHTS[first]",
        "next of a set": "return x * WEIGHTS[next(iter(self.names))]",
        "a mapped set": "for weight in map(WEIGHTS.get, self.names):\n    x = x * 2 + weight\nreturn x",
        "a difference is iterated": 'return folded(x, self.names - {"key"})',
        "a difference of a view is iterated": 'return folded(x, self.table.keys() - {"key"})',
        "dict from keys": "return folded(x, dict.fromkeys(self.names))",
        "a comprehension over a set": 'return folded(x, [name for name in self.names if name != "key"])',
        "max with a key": "return x * WEIGHTS[max(self.names, key=lambda name: len(name) > 3)]",
        "sorted with a key": "return folded(x, sorted(self.names, key=len))",
        "sorted texts": ("return folded(x, sorted(self.names))", False),
        "the size of a set": ("return x * len(self.names) * len(self.names & NAMES)", False),
        "a text is hashed": ('return x * (hash("query") % 1000)', HASH),
        "a tuple is hashed": ('return x * (hash(("query", 1)) % 1000)', HASH),
        "a hash method": ('return x * ("query".__hash__() % 1000)', HASH),
        "a frozen set is hashed": ("return x * (hash(self.frozen) % 1000)", HASH),
        "an enum member is hashed": ("return x * (hash(Color.RED) % 1000)", HASH),
        "keys are hashed": (
            'return x * len({"query": 1, b"query": 2, Color.RED: 3, (Color.RED, 1.5): 4, 1: 5})',
            False,
        ),
        "a set as text": 'return x * (str(self.names).index("key") + 1)',
        "small numbers are iterated": "for number in {3, 1, 2}:\n    x = x * 2 + number\nreturn x",
        "numbers of a list are iterated": "for number in set([9, 1, 17]):\n    x = x * 2 + number\nreturn x",
    },
    refused=None,
)


@case(of=Ordered)
def a_member_is_looked_up(self, x):
    return x * 2 if "key" in self.names and "absent" not in NAMES else x * 3


@case(of=Ordered, object=Kinds)
def an_object_is_hashed(self, x):
    return x * (hash(self.object) % 1000)


@case(of=Ordered, object=Kinds)
def an_id_of_an_object(self, x):
    return x * (id(self.object) // 16 % 1000)


@case(of=Ordered)
def an_id_of_a_class(self, x):
    return x * (id(Kinds) // 16 % 1000)


@case(of=Ordered, object=Kinds)
def a_representation_with_an_address(self, x):
    return x * sum(map(ord, repr(self.object)[-8:]))


@case(of=Ordered, object=Kinds)
def a_text_with_an_address(self, x):
    return x * sum(map(ord, f"{self.object}"[-8:]))
