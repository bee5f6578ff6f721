"""Functions with a `functools.lru_cache`: those that only compute are served, and others refused by name."""

import functools

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


class Net(Case):
    @functools.lru_cache(None)  # noqa: B019 - as models do
    def rows(self, size):
        return table(size) * SETTINGS["scale"]


DRAWS = "it draws random numbers in `.*`, which has a cache .* call it in `__init__`"
WRITES = "it writes in `.*` to what is outside of it, which has a cache"
TENSOR, OBJECT = "it writes to a tensor that `.*` made", "it writes to an object that `.*` made"
#: Served as Python runs them.
SERVED = texts(
    Net,
    {
        "a table that is read": "return x + table(x.shape[1])[None] + table(4).expand(3, 4)",
        "a table of a method": "return x + self.rows(x.shape[1])",
        "tables in a dictionary": 'return x + tables(4)["sin"] + tables(4)["both"][0] + tables(4)["both"][1][:4]',
    },
)
#: Refused, with what the refusal says.
REFUSED = texts(
    Net,
    {
        "random numbers": ("return x + noise(4)", DRAWS),
        "dropout": ("return x + dropped(4)", DRAWS),
        "a list outside grows": ("return x + appended(4)", WRITES),
        "a global is assigned": ("return x + counted(4)", WRITES),
        "a tensor outside is written": ("return x + added(4) + BUFFER", WRITES),
        "a table is written": ("return table(4).add_(1) + x", TENSOR),
        "a view of a table is written": ("table(4)[None, 1:].mul_(2)\nreturn table(4) + x", TENSOR),
        "a table in a dictionary is written": ('tables(4)["both"][0].zero_()\nreturn x * 1', TENSOR),
        "a list is written": ("found = numbers(4)\nfound.append(1)\nreturn x + len(found)", OBJECT),
    },
)
