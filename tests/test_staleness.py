"""What makes an entry stale, and what must not: every lookup happens in a fresh process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.relaunch import run_python

MODEL = '''\
import torch
from torch import nn

import callee

SCALE = 2.0
UNUSED = 1


def helper(x):
    return x * SCALE


def unrelated(x):
    return x - 5


class Model(nn.Module):
    def __init__(self, width=4, factor=3.0, dtype=torch.float32):
        super().__init__()
        self.linear = nn.Linear(width, width, dtype=dtype)
        self.factor = factor
        self.unused = 0

    def run(self, x):
        return self.linear(helper(x)) * self.factor + callee.shift(x)
'''
CALLEE = '''\
OFFSET = 1.0


def shift(x):
    return x + OFFSET


def unrelated(x):
    return x
'''
CODE = """
import json, sys, torch, gearcache
import model
torch.manual_seed(0)
torch.set_num_threads(1)
keywords = eval(sys.argv[1], {"torch": torch})
net = model.Model(**keywords)
exec(sys.argv[2])
config = gearcache.CompilerConfig(backend="eager", strict=True)
cached = gearcache.cache_compile(net.run, config=config, cache_dir=sys.argv[3])
weight = net.linear.weight
x = torch.randn(2, weight.size(1), dtype=weight.dtype)
found = cached(x)
with torch.no_grad():
    right = torch.equal(found, net.run(x))
stats = cached.stats
compilers = [name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules]
print(json.dumps([right, stats.traces, stats.miss_reasons, compilers if not stats.traces else []]))
"""


class Project:
    """A model in files of its own, served by one process after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.source = folder / "source"
        self.source.mkdir()
        (self.source / "model.py").write_text(MODEL)
        (self.source / "callee.py").write_text(CALLEE)

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.source / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def serve(
        self, keywords: str = "{}", change: str = "", cwd: Path | None = None, **environ: str
    ) -> tuple[int, list[str]]:
        """Return traces and miss reasons of a process whose result was right."""
        paths = {"PYTHONPATH": f"{self.source}:{Path(__file__).parent.parent}", "PYTHONDONTWRITEBYTECODE": "1"}
        right, traces, reasons, compilers = run_python(
            CODE, keywords, change, str(self.cache), cwd=cwd or self.source, environ=paths | environ
        )
        assert right, "the result is not eager's"
        assert compilers == []
        return traces, reasons


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that was served once; tests copy it."""
    project = Project(tmp_path_factory.mktemp("served"))
    assert project.serve()[0] == 1
    return project


@pytest.fixture
def project(served: Project, tmp_path: Path) -> Project:
    import shutil

    copy = Project(tmp_path)
    shutil.copytree(served.cache, copy.cache)
    return copy


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        pytest.param("model.py", "* self.factor", "* self.factor * 2", ["method"], id="the method"),
        pytest.param("model.py", "return x * SCALE", "return x * SCALE + 1", ["helper", "model.py"], id="same file"),
        pytest.param("callee.py", "return x + OFFSET", "return x - OFFSET", ["shift", "callee.py"], id="other file"),
        pytest.param("model.py", "SCALE = 2.0", "SCALE = 4.0", ["SCALE"], id="global constant"),
        pytest.param("callee.py", "OFFSET = 1.0", "OFFSET = 7.0", ["OFFSET"], id="global of a callee"),
        pytest.param("model.py", "factor=3.0", "factor=5.0", ["factor"], id="attribute"),
    ],
)
def test_an_edit_of_what_the_trace_went_through_is_a_miss_that_names_it(
    project: Project, file: str, old: str, new: str, words: list[str]
) -> None:
    project.edit(file, old, new)
    traces, reasons = project.serve()
    assert traces == 1
    for word in words:
        assert word in reasons[0], reasons
    project.edit(file, new, old)
    assert project.serve()[0] == 0, "the first variant was lost"


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        pytest.param("model.py", "    def run", "    # a comment\n\n    def run", id="comment"),
        pytest.param("model.py", "return x - 5", "return x - 6", id="unrelated function"),
        pytest.param("callee.py", "    return x\n", "    return -x\n", id="unrelated function of a callee's file"),
        pytest.param("model.py", "UNUSED = 1", "UNUSED = 2\nMORE = 3", id="unused global"),
        pytest.param("model.py", "self.unused = 0", "self.unused = 1", id="unused attribute"),
    ],
)
def test_an_edit_elsewhere_is_a_hit(project: Project, file: str, old: str, new: str) -> None:
    project.edit(file, old, new)
    assert project.serve() == (0, [])


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        pytest.param('{"dtype": torch.float64}', "module", id="dtype"),
        pytest.param('{"width": 6}', "module", id="width"),
    ],
)
def test_another_structure_is_a_miss_that_names_the_component(project: Project, keywords: str, words: str) -> None:
    traces, reasons = project.serve(keywords)
    assert traces == 1
    assert words in reasons[0]
    assert project.serve(keywords)[0] == 0
    assert project.serve()[0] == 0


def test_a_changed_attribute_is_a_miss_and_both_values_are_kept(project: Project) -> None:
    assert project.serve(change="net.factor = 11.0")[0] == 1
    assert project.serve(change="net.factor = 11.0")[0] == 0
    assert project.serve()[0] == 0


def test_another_folder_home_and_working_directory_are_a_hit(project: Project, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = tmp_path / "moved"
    project.source.rename(moved)
    project.source = moved
    assert project.serve(cwd=elsewhere, HOME=str(elsewhere)) == (0, [])


def test_weights_of_other_values_are_a_hit(project: Project) -> None:
    change = "[parameter.data.normal_() for parameter in net.parameters()]"
    assert project.serve(change=change) == (0, [])
