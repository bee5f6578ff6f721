"""Containers of users' classes: each use gives what Python gives or is refused, which depends on the release."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from gearcache.errors import CaptureError
from tests.support.bodies import Nets, assert_as_in_python, nets_of

MODULE = """
import collections, copy, types
import torch


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


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.queue, self.renamed, self.table = Queue([1, 2], maxlen=2), Renamed(a=1), Table(a=1, b=2)
        self.ordered, self.things = Ordered(a=1, b=2), [1, 2]

    def method(self, x):
"""
BODIES = {
    "a copy of a deque": "return x * 1, self.queue.copy()",
    "a copy of a deque by copy": "return x * 1, copy.copy(self.queue)",
    "a deque repeated": "return x * 1, self.queue * 2, 2 * self.queue",
    "deques joined": "return x * 1, self.queue + self.queue",
    "a deque filled": "self.queue.append(7)\nself.queue.extra = 3\nreturn x * sum(self.queue)",
    "a deque that holds nothing is filled": "d = collections.deque(maxlen=0)\nd.append(1)\nreturn x * 1, list(d)",
    "update with keys of a class": "d = {}\nd.update(self.renamed)\nreturn x * 1, d",
    "dict of keys of a class": "return x * 1, dict(self.renamed)",
    "unpacked keys of a class": "return x * 1, {**self.renamed}",
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
}


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nets:
    return nets_of(MODULE, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", BODIES)
def test_a_container_of_a_class_is_as_in_python_or_refused(name: str, nets: Nets, tmp_path: Path) -> None:
    with contextlib.suppress(CaptureError):
        assert_as_in_python(nets(BODIES[name]), tmp_path)


#: What depends on the address of an object: the hash of a user's object, and its text.
@pytest.mark.parametrize(
    "body",
    [
        "return x * (Thing().__hash__() % 7)",
        "return x * 1, self.__hash__()",
        "return x * 1, object.__repr__(self.things)",
        "return x * 1, Thing().__repr__()",
    ],
)
def test_addresses_never_get_into_a_graph(body: str, nets: Nets, tmp_path: Path) -> None:
    with pytest.raises(CaptureError):
        assert_as_in_python(nets(body), tmp_path)
