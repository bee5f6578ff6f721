"""One state, two places: what a method writes through one of them and reads through the other is right or refused.

Dynamo keeps what a trace writes beside the object it was written to, and finds it nowhere else. Each pair of a write
and a read is a method of its own, called twice beside eager.
"""

from __future__ import annotations

import itertools
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache.errors import CaptureError
from tests.support.scenarios import strict_config

HEAD = """
import sys
import torch

count = 0
this = sys.modules[__name__]

class Base:
    n = 0

    @classmethod
    def up(cls):
        cls.n += 1

class Model(torch.nn.Module, Base):
    pass

class Sub(Model):
    pass

def bump():
    global count
    count += 1

"""
CLASS_WRITES = ["type(self).n += 1", "self.up()"]
CLASS_READS = ["self.n", "Model.n", "vars(Model).get('n', 5)"]
MODULE_WRITES = ["this.count += 1", "bump()"]
MODULE_READS = ["count", "this.count"]
#: Where Dynamo finds what was written: these have to be served.
RIGHT = {
    ("type(self).n += 1", "Model.n"),
    ("self.up()", "Model.n"),
    ("this.count += 1", "this.count"),
    ("bump()", "count"),
}
PAIRS = [*itertools.product(CLASS_WRITES, CLASS_READS), *itertools.product(MODULE_WRITES, MODULE_READS)]


def made(name: str, bodies: list[str]) -> types.ModuleType:
    """Return a module with a method per body."""
    text = HEAD + "".join(
        f"def method{number}(self, x):\n" + "".join(f"    {line}\n" for line in body.split("; "))
        for number, body in enumerate(bodies)
    )
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, f"<{name}>", "exec"), vars(module))  # noqa: S102
    for number in range(len(bodies)):
        setattr(module.Model, f"method{number}", getattr(module, f"method{number}"))
    return module


def state(module: types.ModuleType) -> Any:
    return {
        **{cls: vars(getattr(module, cls)).get("n", "absent") for cls in ("Base", "Model", "Sub")},
        "": module.count,
    }


def outcome(bodies: list[str], number: int, root: Path) -> str:
    """Call one method twice beside eager; returns "right", or the refusal."""
    name = f"views_{number}"
    plain, cached = made(f"{name}_plain", bodies), made(name, bodies)
    try:
        models = plain.Model(), cached.Model()
        method = getattr(models[0], f"method{number}")
        served = gearcache.cache_compile(
            getattr(models[1], f"method{number}"), dynamic=False, cache_dir=root, config=strict_config("eager")
        )
        for call in range(2):
            x = torch.arange(2.0) + call
            before = state(cached)
            try:
                found = served(x)
            except CaptureError as error:
                assert state(cached) == before, bodies[number]
                return str(error)
            assert torch.equal(found, method(x)), (bodies[number], call)
            assert state(cached) == state(plain), (bodies[number], call)
        return "right"
    finally:
        for each in (name, f"{name}_plain"):
            del sys.modules[each]


def outcomes(bodies: list[str], root: Path) -> list[str]:
    return [outcome(bodies, number, root / str(number)) for number in range(len(bodies))]


def test_what_is_written_at_one_place_and_read_at_another_is_right_or_refused(tmp_path: Path) -> None:
    found = dict(zip(PAIRS, outcomes([f"{write}; return x + {read}" for write, read in PAIRS], tmp_path), strict=True))
    assert {pair for pair, text in found.items() if text == "right"} >= RIGHT
    refusals = [text for text in found.values() if text != "right"]
    assert all("and then reads it at another place" in text for text in refusals), refusals


def test_what_is_not_there_is_not_deleted_in_silence(tmp_path: Path) -> None:
    bodies = ["del self.spare; return x + 1", "del self.buffer; return x + 1"]
    for number, name in enumerate(("spare", "buffer")):
        module = made("views_deleted", bodies)
        model = module.Model()
        model.register_buffer("buffer", torch.ones(2))
        model.spare = 1
        method = getattr(model, f"method{number}")
        served = gearcache.cache_compile(method, dynamic=False, cache_dir=tmp_path, config=strict_config("eager"))
        served(torch.ones(2))
        assert not hasattr(model, name)
        with pytest.raises((CaptureError, AttributeError), match=name):
            served(torch.ones(2))
        del sys.modules["views_deleted"]
