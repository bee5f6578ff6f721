"""A relaunch that hits imports what is listed beside this test, and no more: each module costs every start.

`python -m tests.serving.test_hit_imports` prints the list of the present code.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.fork_server import run_code
from tests.support.source_tree import ROOT

LIST = Path(__file__).with_name("hit_imports.txt")
PROGRAM = """
import sys
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def decode(self, x):
        return self.layer(x).relu()

before = set(sys.modules)
from gearcache import CompilerConfig, cache_compile
config = CompilerConfig(backend="eager")
method = cache_compile(Model().decode, config=config, gears={"x": {0: [1, 2]}}, cache_dir=sys.argv[1])
method(torch.ones(2, 8))
new = sorted(set(sys.modules) - before)
ours = ("gearcache", "torch", "msgpack", "msgspec", "filelock")
print("\\n".join(name for name in new if name.partition(".")[0] in ours))
assert method.stats.hits == int(sys.argv[2]), method.stats
"""


def imported() -> list[str]:
    """Return what a relaunch imports after `import torch`."""
    with tempfile.TemporaryDirectory() as folder:
        first = run_code(PROGRAM, folder, "0", environ=os.environ, cwd=ROOT, compiles=True)
        assert first.returncode == 0, first.stderr
        environ = {**os.environ, "GEARCACHE_REMOTES": "redis://127.0.0.1:1/0"}  # a hit asks no tier
        command = [sys.executable, "-c", PROGRAM, folder, "1"]
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()


def test_a_hit_imports_what_is_listed() -> None:
    listed = LIST.read_text().split()
    found = imported()
    assert sorted(set(found) - set(listed)) == [], "a hit imports more; if each hit needs it, list it"
    assert sorted(set(listed) - set(found)) == [], "a hit imports less: take these from the list"
    assert "torch._dynamo" not in found
    assert not [name for name in found if ".cache.remote" in name]


if __name__ == "__main__":
    print("\n".join(imported()))
