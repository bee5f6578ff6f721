"""Functions with a `functools.lru_cache`: those that only compute are served, and others refused by name."""

import functools
import random

import torch

from tests.cases.case import Case, texts

SEEN, SETTINGS = [], {"scale": 2}
COUNT = 0
BUFFER = torch.zeros(4)


@functools.lru_cache(None)
def doubled(number):
    return number * 2


@functools.lru_cache(None)
def table(size):
    rows = torch.zeros(size)
    rows[0] = 3.0
    return rows.add_(torch.arange(size))


@functools.cache
def tables(size):
    return {"sin": table(size).sin(), "both": [table(size), table(doubled(size))]}


@functools.cache
def numbers(size):
    found = []
    for number in range(size):
        found.append(number)
    return found


@functools.cache
def noise(size):
    return torch.randn(size)


@functools.cache
def dropped(size):
    return torch.nn.functional.dropout(torch.ones(size))


@functools.cache
def filled(size):
    return torch.ones(size).uniform_()


@functools.cache
def drawn(limit):
    return random.randint(0, limit)


@functools.cache
def appended(number):
    SEEN.append(number)
    return number


@functools.cache
def counted(number):
    global COUNT
    COUNT += 1
    return number


@functools.cache
def added(number):
    BUFFER.add_(number)
    return number


@functools.cache
def outer(size):
    return noise(size) + 1


class Net(Case):
    @functools.lru_cache(None)  # noqa: B019 - as models do
    def rows(self, size):
        return table(size) * SETTINGS["scale"]

    @functools.lru_cache(None)  # noqa: B019
    def kept(self, size):
        self.size = size
        return size


DRAWS = "it draws random numbers in `.*`, which has a cache .* call it in `__init__`"
WRITES = "it writes in `.*` to what is outside of it, which has a cache"
TENSOR, OBJECT = "it writes to a tensor that `.*` made", "it writes to an object that `.*` made"
#: Served as Python runs them.
SERVED = texts(
    Net,
    {
        "a number": "return x * doubled(3)",
        "a table that is read": "return x + table(x.shape[1])[None] + table(4).expand(3, 4)",
        "a table of a method": "return x + self.rows(x.shape[1])",
        "tables in a dictionary": 'return x + tables(4)["sin"] + tables(4)["both"][0] + tables(4)["both"][1][:4]',
        "a list that is read": "return x + sum(numbers(4)) + len(numbers(3))",
        "a write to what is computed with it": "y = x + table(4)\ny.add_(1)\nrows = table(4).clone()\nrows[1] = 5\nreturn y + rows",
        "a list that is copied": "found = list(numbers(4))\nfound.append(1)\nreturn x + len(found)",
    },
)
#: Refused, with what the refusal says.
REFUSED = texts(
    Net,
    {
        "random numbers": ("return x + noise(4)", DRAWS),
        "random numbers in a function within": ("return x + outer(4)", DRAWS),
        "dropout": ("return x + dropped(4)", DRAWS),
        "random numbers in place": ("return x + filled(4)", DRAWS),
        "random numbers of Python": ("return x + drawn(4)", DRAWS),
        "a list outside grows": ("return x + appended(4)", WRITES),
        "a global is assigned": ("return x + counted(4)", WRITES),
        "a tensor outside is written": ("return x + added(4) + BUFFER", WRITES),
        "an attribute is assigned": ("return x + self.kept(4)", WRITES),
        "a table is written": ("return table(4).add_(1) + x", TENSOR),
        "an item of a table is written": ("rows = table(4)\nrows[1] = 5\nreturn rows + x", TENSOR),
        "a view of a table is written": ("table(4)[None, 1:].mul_(2)\nreturn table(4) + x", TENSOR),
        "a table is the out of a function": ("rows = table(4)\ntorch.add(x[0], 1, out=rows)\nreturn rows", TENSOR),
        "a table in a dictionary is written": ('tables(4)["both"][0].zero_()\nreturn x * 1', TENSOR),
        "a list is written": ("found = numbers(4)\nfound.append(1)\nreturn x + len(found)", OBJECT),
        "a dictionary is written": ('tables(4)["more"] = 1\nreturn x * 1', OBJECT),
        "a table is written in inference mode": (
            "with torch.inference_mode():\n    rows = table(4)\n    rows.add_(1)\n    return rows + x",
            TENSOR,
        ),
    },
)
