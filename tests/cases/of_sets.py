"""The order of sets, and hashes and addresses: in a process of another hash seed they are others."""

import enum

import torch

from tests.cases.case import Case, changed, texts

NAMES = frozenset({"query", "key", "value", "output", "gate", "up", "down"})
WEIGHTS = {"query": 1, "key": 2, "value": 3, "output": 4, "gate": 5, "up": 6, "down": 7}


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Thing:
    pass


class Doubled:
    def scaled(self, x):
        return x * 2


class Tripled:
    def scaled(self, x):
        return x * 3


KINDS = {"query": Doubled(), "key": Tripled()}


def positions(pattern):
    """As einops reads a pattern: loops over sets, in which each name has its place."""
    left, right = (side.split() for side in pattern.split("->"))
    found = {name: place for place, name in enumerate(left)}
    for name in set(right):
        if name not in found:
            raise ValueError(name)
    known = {name for name in left if name in right}
    total = 1
    for name in known:
        total *= found[name] + 1
    return [found[name] for name in right], total


def folded(x, names):
    for name in names:
        x = x * 2 + WEIGHTS[name]
    return x


class Net(Case):
    def __init__(self):
        super().__init__()
        self.names = {"query", "key", "value", "output", "gate", "up", "down"}
        self.table = dict(WEIGHTS)
        self.thing, self.rows = Thing(), []


HASH = r"it calls `hash\(\)`, whose result may differ between processes: use the value itself as a key"
#: As in Python, or refused.
BODIES = texts(
    Net,
    {
        "an attribute is iterated": "return folded(x, self.names)",
        "a literal is iterated": """
        for name in {"query", "key", "value", "output", "gate", "up", "down"}:
            x = x * 2 + WEIGHTS[name]
        return x
        """,
        "a list of a set": "return folded(x, list(self.names))",
        "a difference of a view is iterated": 'return folded(x, self.table.keys() - {"key"})',
        "max with a key": "return x * WEIGHTS[max(self.names, key=lambda name: len(name) > 3)]",
        "sorted texts": ("return folded(x, sorted(self.names))", False),
        "the size of a set": ("return x * len(self.names) * len(self.names & NAMES)", False),
        "a tuple is hashed": ('return x * (hash(("query", 1)) % 1000)', HASH),
        "keys are hashed": (
            'return x * len({"query": 1, b"query": 2, Color.RED: 3, (Color.RED, 1.5): 4, 1: 5})',
            False,
        ),
        "an id of a class": "return x * (id(Thing) // 16 % 1000)",
        "a text with an address": 'return x * sum(map(ord, f"{self.thing}"[-8:]))',
        "a text of a new object by its method": ("return x * 1, Thing().__repr__()", ""),
    },
    refused=None,
)
#: No order is read.
MEMBERS = changed(
    Net,
    {
        "a member is looked up": (
            'return x * 2 if "key" in self.names and "absent" not in NAMES else x * 3',
            lambda self, patch: None,
        ),
    },
)
#: Sets that the method makes: served where no order reaches a result,
MADE = texts(
    Net,
    {
        "membership": 'kept = {name for name in WEIGHTS if name != "key"}\nreturn x + ("key" in kept) + len(kept)',
        "objects of two classes": """
        made = {}
        for name in set(KINDS):
            made[name] = KINDS[name].scaled(x)
        return made["query"] - made["key"]
        """,
        "a pattern": 'order, total = positions("b c a -> a b c")\nreturn x.unsqueeze(0).permute(order) * total',
    },
)
#: and refused where it would.
MADE_AND_REFUSED = texts(
    Net,
    {
        "the first": "return x * WEIGHTS[list(set(WEIGHTS))[0]]",
        "a loop over operations": "for name in set(WEIGHTS):\n    x = x * 2 + WEIGHTS[name]\nreturn x",
        "the largest of sets": "return x + 1, [*max({frozenset((name,)) for name in WEIGHTS})]",
        "writes in a loop": "y = x.clone()\nfor name in set(WEIGHTS):\n    y.mul_(2).add_(WEIGHTS[name])\nreturn y",
        "random numbers": """
        drawn = {}
        for name in set(WEIGHTS):
            drawn[name] = torch.rand(2) * WEIGHTS[name]
        return x + drawn["key"].sum()
        """,
        "the keys of a result": "return {name: x + 1 for name in set(WEIGHTS)}",
        "a sum of floats": "total = 0.0\nfor each in {weight / 3 for weight in WEIGHTS.values()}:\n    total = total / 2 + each\nreturn x * total",
        "a list of the module": "self.rows.extend(set(WEIGHTS))\nreturn x + 1",
    },
    refused="it goes through a set that it makes",
)
