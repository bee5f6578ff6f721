"""Sets that a method makes: it is served where their order makes no difference, and refused where it does."""

import math

import torch

from tests.cases.case import Case, texts

NAMES = ("query", "key", "value", "gate")
SIZES = {"query": 1.5, "key": 2.5, "value": 3.5, "gate": 4.5}


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


class Net(Case):
    def __init__(self):
        super().__init__()
        self.rows = []


#: Served: no order reaches a result.
SERVED = texts(
    Net,
    {
        "membership": 'kept = {name for name in NAMES if name != "key"}\nreturn x + ("key" in kept) + 2 * ("gate" in kept)',
        "a size": 'return x + len(set(NAMES) - {"key"}) + len({*NAMES, "other"})',
        "a comparison": 'return x + (set(NAMES) >= {"key"}) + (set(NAMES) == frozenset(NAMES))',
        "a pattern": 'order, total = positions("b c a -> a b c")\nreturn x.unsqueeze(0).permute(order) * total',
        "a loop for an error": "for name in {*NAMES}:\n    if name not in SIZES:\n        raise KeyError(name)\nreturn x",
        "a sum of ints": "return x + sum(len(name) for name in set(NAMES))",
        "a product of small numbers": "return x + math.prod({2, 3, 5})",
        "a loop over small numbers": "for number in {3, 0, 2}:\n    x = x * 2 + number\nreturn x",
        "the least of texts, and of numbers": "return x * SIZES[min(set(NAMES))] + max({1.5, 2, True}), sorted({'b', 'a'})",
        "the same order twice": "names = set(NAMES)\nreturn x + (list(names) == list(names))",
        "tables made in a loop": "tables = {}\nfor name in set(NAMES):\n    tables[name] = torch.cos(x.float() * SIZES[name])\nreturn x * tables['key'] + tables['gate']",
        "a text that nobody sees": 'assert len(set(NAMES)) == 4, f"not {set(NAMES)}"\nreturn x + 1',
    },
)
#: Refused, for the order would.
REFUSED = texts(
    Net,
    {
        "the first": "return x * SIZES[list(set(NAMES))[0]]",
        "the one in the middle": "names = list(set(NAMES[:3]))\nreturn x * SIZES[names[1]]",
        "a loop over operations": "for name in set(NAMES):\n    x = x * 2 + SIZES[name]\nreturn x",
        "a loop over numbers that others displaced": "numbers = {9, 1, 2}\nnumbers.discard(9)\nreturn x + 1, [*numbers]",
        "the largest of sets": "return x + 1, [*max({frozenset((name,)) for name in NAMES})]",
        "the largest beside one that is no number": "return x + 1, max({('a', float('nan')), ('a', 1.0), ('a', 2.0)})[1]",
        "a text of a list with one": "return x + 1, str([set(NAMES)])",
        "a formatted list with one": "return x + 1, '{}'.format([set(NAMES)])",
        "a key that goes through sets": "return x + 1, len(max([{*NAMES[:2]}, {'l', 'm', 'n'}], key=lambda names: [*names]))",
        "a budget": "total = 0\nfor size in {*SIZES.values()}:\n    if total + size <= 9.5:\n        total += size\nreturn x * total",
        "writes in a loop": "y = x.clone()\nfor name in set(NAMES):\n    y.mul_(2).add_(SIZES[name])\nreturn y",
        "reads between writes": "y, read = x.clone(), {}\nfor name in set(NAMES):\n    read[name] = y * 2\n    y.add_(1)\nreturn read['key']",
        "random numbers": "drawn = {}\nfor name in set(NAMES):\n    drawn[name] = torch.rand(2) * SIZES[name]\nreturn x + drawn['key'].sum()",
        "a text": "return x + 1, str(set(NAMES))",
        "the keys of a result": "return {name: x + 1 for name in set(NAMES)}",
        "what is popped": "names = set(NAMES)\nreturn x * SIZES[names.pop()]",
        "a sum of floats": "total = 0.0\nfor each in {*SIZES.values()}:\n    total = total / 2 + each\nreturn x * total",
        "a product of floats": "return x * math.prod({*SIZES.values()})",
        "a sum of tuples": "return x + 1, sum({(name, 1) for name in NAMES}, ())",
        "the largest by a key": "return x * SIZES[max(set(NAMES), key=len)]",
        "two that come first": "one, two = set(NAMES[:2]), set(NAMES[:2])\nreturn x * (list(one)[0] == list(two)[0])",
        "a list of the module": "self.rows.extend(set(NAMES))\nreturn x + 1",
        "an attribute": "for name in set(NAMES):\n    if hasattr(self, name) or name == 'key':\n        break\nreturn x",
    },
    refused="it goes through a set that it makes",
)
