"""A relaunch that hits imports what is listed beside this test and no more, and sets off no full garbage collection:
each module costs every start, and a collection walks all that torch has made.

`python -m tests.serving.test_hit_imports` prints the list of the present code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.fork_server import run_code
from tests.support.source_tree import ROOT

LIST = Path(__file__).with_name("hit_imports.txt")
#: Counts full collections in each phase, with thresholds at which some thousand new objects suffice for one.
PROGRAM = """
import collections, gc, json, sys
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(8)])

    def decode(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x

model, phase, full = Model(), "", collections.Counter()
before = set(sys.modules)

def note(when, info):
    if when == "start" and info["generation"] == 2:
        full[phase] += 1

def begin(name):
    global phase
    phase = "between"
    gc.freeze()
    gc.collect()  # of nothing: the next full pass comes as soon as something is new
    phase = name

gc.set_threshold(100, 2, 2)
gc.callbacks.append(note)
begin("import")
from gearcache import CompilerConfig, cache_compile
begin("made")
gears = {"x": {0: [1, 2, 4]}}
method = cache_compile(model.decode, config=CompilerConfig(backend="eager"), gears=gears, cache_dir=sys.argv[1])
begin("load")
passes = gc.get_stats()[0]["collections"]
method(torch.ones(2, 8))
passes = gc.get_stats()[0]["collections"] - passes
begin("end")
made = [[] for _ in range(10000)]
begin("")
ours = ("gearcache", "torch", "msgpack", "msgspec", "filelock")
print(json.dumps({
    "imported": sorted(name for name in set(sys.modules) - before if name.partition(".")[0] in ours),
    "collector": [gc.isenabled(), gc.get_threshold()[0]],
    "hits": method.stats.hits,
    "passes": passes,
    "full": [full["import"], full["load"]],
    "full at the end": full["end"],
}))
"""

#: Prints how many young objects a pass during an import has walked at most, in a program that has frozen nothing or all
#: that torch holds.
IMPORT = """
import gc, json, sys
import torch

if sys.argv[1] == "frozen":
    gc.freeze()
frozen, walked = gc.get_freeze_count(), [0]
gc.callbacks.append(lambda when, info: walked.append(gc.get_count()[0]))
from gearcache import cache_compile
made = [[] for _ in range(1000)]  # enough for a pass over what is young
print(json.dumps([max(walked), gc.get_freeze_count() > frozen / 2, gc.isenabled()]))
"""


def launches() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a process that compiles reports, and a relaunch, which is fresh up to its `import torch`."""
    with TemporaryDirectory() as folder:
        cold = run_code(PROGRAM, folder, environ=os.environ, cwd=ROOT, compiles=True)
        assert cold.returncode == 0, cold.stderr
        environ = {**os.environ, "GEARCACHE_REMOTES": "redis://127.0.0.1:1/0"}  # a hit asks no tier
        command = [sys.executable, "-c", PROGRAM, folder]
        warm = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300)
        assert warm.returncode == 0, warm.stderr
        return json.loads(cold.stdout), json.loads(warm.stdout)


def test_a_hit_imports_what_is_listed_and_collects_no_garbage(subtests: pytest.Subtests) -> None:
    cold, warm = launches()
    assert (cold["hits"], warm["hits"]) == (0, 1)
    with subtests.test("imports"):
        listed, found = set(LIST.read_text().split()), set(warm["imported"])
        assert sorted(found - listed) == [], "a hit imports more; if each hit needs it, list it"
        assert sorted(listed - found) == [], "a hit imports less: take these from the list"
        assert "torch._dynamo" not in found
        assert not [name for name in found if ".cache.remote" in name]
    with subtests.test("collections"):
        assert cold["collector"] == warm["collector"] == [True, 100], "it is as the program has set it"
        assert cold["passes"] < 500, "a trace makes some 100,000 objects, each hundred of which would be a pass"
        assert warm["passes"] < 5
        assert warm["full"] == [0, 0]
        assert warm["full at the end"] > 0, "at these thresholds 10,000 objects are enough"


def test_no_pass_walks_what_an_import_makes_and_nothing_is_thawed() -> None:
    for state in ("not frozen", "frozen"):
        done = subprocess.run(
            [sys.executable, "-c", IMPORT, state], cwd=ROOT, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        walked, is_frozen, is_enabled = json.loads(done.stdout)
        assert (is_frozen, is_enabled) == (state == "frozen", True)
        assert state == "frozen" or walked < 2000, walked


if __name__ == "__main__":
    print("\n".join(launches()[1]["imported"]))
