"""Containers of users' classes: each use gives what Python gives or is refused, which depends on the release."""

import collections
import copy
import types

import torch

from tests.cases.case import Case, texts


class Queue(collections.deque):
    pass


class Renamed(dict):
    def keys(self):
        return ["other"]

    def __iter__(self):
        return iter(["other"])

    def __getitem__(self, key):
        return 5


class Table(dict):
    pass


class Ordered(collections.OrderedDict):
    pass


class Lost(KeyError):
    pass


class Thing:
    pass


class Net(Case):
    def __init__(self):
        super().__init__()
        self.queue, self.renamed, self.table = Queue([1, 2], maxlen=2), Renamed(a=1), Table(a=1, b=2)
        self.ordered, self.things = Ordered(a=1, b=2), [1, 2]


#: As in Python, or refused.
BODIES = texts(
    Net,
    {
        "a copy of a deque": "return x * 1, self.queue.copy()",
        "a copy of a deque by copy": "return x * 1, copy.copy(self.queue)",
        "a deque repeated": "return x * 1, self.queue * 2, 2 * self.queue",
        "deques joined": "return x * 1, self.queue + self.queue",
        "a deque filled": "self.queue.append(7)\nself.queue.extra = 3\nreturn x * sum(self.queue)",
        "a deque that holds nothing is filled": "d = collections.deque(maxlen=0)\nd.append(1)\nreturn x * 1, list(d)",
        "update with keys of a class": "d = {}\nd.update(self.renamed)\nreturn x * 1, d",
        "unpacked keys of a class": "return x * 1, {**self.renamed}",
        "dict of keys of a class": "return x * 1, dict(self.renamed)",
        "union with keys of a class": "return x * 1, {} | self.renamed",
        "a class without own keys": "return x * 1, dict(self.table), {**self.table}, {} | self.table, self.table.copy()",
        "items and attributes written": 'self.table["n"] = 3\nself.table.extra = 4\nreturn x * len(self.table)',
        "an attribute written": 'self.table.extra = 4\nreturn x * self.table["a"]',
        "move_to_end": 'self.ordered.move_to_end("a")\nreturn x * 1, list(self.ordered)',
        "a key popped": 'return x * self.table.pop("gone", 5) * self.table.get("a")',
        "the text of a class of KeyError": 'return x * 1, str(Lost("a"))',
        "an attribute of a namespace written": "n = types.SimpleNamespace(a=1)\nn.b = 2\nreturn x * (n.a + n.b)",
        "a reversed list uses up": "rest = reversed(self.things)\nreturn x * 1, next(rest), list(rest), list(rest)",
        "items of a set go into a list": "items = [0]\nitems += {2, 1}\nreturn x * 1, items",
    },
    refused=None,
)
#: What depends on the address of an object: the hash of a user's object, and its text.
ADDRESSES = texts(
    Net,
    {
        "the hash of a new object": "return x * (Thing().__hash__() % 7)",
        "the text of a list by object": "return x * 1, object.__repr__(self.things)",
        "the text of a new object": "return x * 1, Thing().__repr__()",
    },
    refused="",
)
