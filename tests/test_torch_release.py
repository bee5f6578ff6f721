"""Which torch is taken, what is said of another one and of none, and who answers where private names are missing."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache import CompilerConfig
from gearcache.building.canary import uncalled_probes
from gearcache.errors import CaptureError, PreparationError
from gearcache.telemetry.counters import EAGER_REASONS
from gearcache.torch_parameters import known
from gearcache.torch_release import NEWEST, TESTED_TEXT, check_release
from tests.support.relaunch import run_python

#: Gives torch another release and prints what the import of gearcache raises, and what it warns of.
IMPORTED = """
import json, logging, sys, torch
logged = []
class Keep(logging.Handler):
    def emit(self, record): logged.append((record.levelname, record.name, record.getMessage()))
logging.getLogger().addHandler(Keep())
torch.__version__ = sys.argv[1]
import gearcache
raised = []
for name in ("cache_compile", "attach", "cache_compile"):
    try: getattr(gearcache, name)
    except ImportError as error: raised.append([type(error).__name__, str(error)])
print(json.dumps([raised, logged]))
"""


@pytest.mark.parametrize("version", ["2.12.1"])
def test_a_torch_older_than_the_tested_ones_is_refused_by_name(version: str) -> None:
    raised, logged = run_python(IMPORTED, version)
    words = f"gearcache works with torch {TESTED_TEXT} or newer, this is {version}: install `torch==2."
    assert [name for name, _ in raised] == ["UnsupportedTorch"] * 3
    assert all(said.startswith(words) for _, said in raised)
    assert logged == []


@pytest.mark.parametrize("version", ["2.98.0a0+git12"])
def test_a_newer_torch_is_taken_with_one_warning_that_names_the_tested_ones(version: str) -> None:
    raised, logged = run_python(IMPORTED, version)
    assert raised == []
    ((level, logger, said),) = logged
    assert (level, logger) == ("WARNING", "gearcache")
    assert said.startswith(f"gearcache is tested with torch {TESTED_TEXT}, this is {version}: ")


def test_without_torch_the_import_says_what_to_install() -> None:
    code = (
        "import json, sys\n"
        "class NotThere:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch': raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
        "sys.meta_path.insert(0, NotThere())\n"
        "import gearcache\n"
        "said = []\n"
        "for read in (lambda: gearcache.cache_compile, lambda: __import__('gearcache.compat.torchair')):\n"
        "    try: read()\n"
        "    except gearcache.GearcacheError as error: said.append([str(error), isinstance(error, ImportError)])\n"
        "print(json.dumps(said))"
    )
    said, also = run_python(code, has_torch=False)
    assert said == also
    assert said[1]
    assert said[0].startswith(
        f"gearcache works with torch {TESTED_TEXT}, and none is installed: `pip install 'gearcache[torch]'`"
    )
    assert f"`pip install 'torch=={NEWEST}.*' --index-url https://download.pytorch.org/whl/cpu`" in said[0]


#: Makes torch a release that nobody tested, spoils it, calls cached methods twice each, the last one strict, and prints
#: what came of it.
SPOILT = """
import json, logging, pkgutil, sys, torch
root, when = sys.argv[1:]
logged = []
class Keep(logging.Handler):
    def emit(self, record): logged.append(record.getMessage())
logging.getLogger("gearcache").addHandler(Keep())
def spoil():
SPOIL
torch.__version__ = "2.99.0"
if when == "import":
    spoil()
import gearcache
made = [torch.nn.Linear(2, 2) for _ in range(3)]
configs = [gearcache.CompilerConfig(backend="eager", strict=strict) for strict in (False, False, True)]
cached = [gearcache.cache_compile(each.forward, config=of, cache_dir=root) for each, of in zip(made, configs)]
if when == "call":
    spoil()
found, x = [], torch.ones(3, 2)
with torch.no_grad():
    for module, method in zip(made, cached):
        for _ in range(2):
            try:
                found.append(torch.equal(method(x), module(x)))
            except gearcache.GearcacheError as error:
                found.append([type(error).__name__, str(error), isinstance(error, ImportError)])
    cached[0].warm(x)
stats = [[method.stats.eager_reasons, method.stats.traces] for method in cached]
print(json.dumps([found, stats, logged, cached[0].explain()]))
"""

#: The names are looked up by other tests, which takes seconds.
NO_NAMES = """
from gearcache import torch_names
torch_names.missing_names = torch_names.missing_for_hits = tuple
"""
#: Where Dynamo calls another function in place of one that is watched: all that call it have another one.
ANOTHER_FUNCTION = (
    NO_NAMES
    + """
from torch._dynamo import convert_frame, utils
users = [each for title, each in sys.modules.items() if title.startswith("torch._dynamo") and each is not utils]
for user in [each for each in users if vars(each).get("iter_contains") is utils.iter_contains]:
    user.iter_contains = lambda *given, kept=utils.iter_contains, **named: kept(*given, **named)
"""
)
#: A table has it.
ANOTHER_METHOD = (
    NO_NAMES
    + """
from torch._dynamo import convert_frame
from torch._dynamo.variables.tensor import TensorVariable
call, get = TensorVariable.call_method, TensorVariable.__getattribute__
TensorVariable.__getattribute__ = lambda self, asked: (
    call.__get__(self) if asked == "call_method" else get(self, asked)
)
"""
)


def spoilt(spoil: str, root: Path, *, when: str = "import", compiles: bool = True) -> Any:
    program = SPOILT.replace("SPOIL\n", textwrap.indent(spoil, "    ") + "\n")
    return run_python(program, str(root), when, compiles=compiles)


def deleted(name: str) -> str:
    owner, _, attribute = name.rpartition(".")
    return f"delattr(pkgutil.resolve_name({owner!r}), {attribute!r})"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "spoil", "when"),
    [
        pytest.param("torch._C._InferenceMode", "", "import", id="a name of a hit, at the import"),
        pytest.param("torch._dynamo.symbolic_convert.InstructionTranslatorBase.jump", "", "call", id="at a call"),
        pytest.param("torch._dynamo.utils.iter_contains", ANOTHER_FUNCTION, "import", id="a probe of a function"),
        pytest.param(
            "torch._dynamo.variables.tensor.TensorVariable.call_method", ANOTHER_METHOD, "import", id="of a method"
        ),
    ],
)
def test_where_a_name_or_a_probe_is_missing_the_methods_answer_with_one_warning_of_it_and_strict_raises(
    name: str, spoil: str, when: str, tmp_path: Path
) -> None:
    is_of_hits = name == "torch._C._InferenceMode"  # a hit has imported no compiler
    found, stats, logged, explained = spoilt(spoil or deleted(name), tmp_path, when=when, compiles=not is_of_hits)
    lacking, error = f"lacks `{name}`, which gearcache uses: install", "MissingTorchNames"
    if spoil:
        lacking = f"does not call `{name}`, by which gearcache sees what a trace depends on: install"
        error = "UncalledProbes"
    assert found[:4] == [True] * 4
    assert [each[0] for each in found[4:]] == [error] * 2
    assert all(f"torch 2.99.0 {lacking}" in each[1] and each[2] for each in found[4:])
    # `warm` asks too where the compilers are imported.
    assert stats[:2] == [[{"torch": 3 if spoil or when == "call" else 2}, 0], [{"torch": 2}, 0]]
    assert "torch" in EAGER_REASONS
    untested, said = logged
    assert "is tested with torch" in untested
    assert lacking in said
    assert lacking in explained
    assert not list(tmp_path.rglob("*.so"))


@pytest.mark.slow
def test_a_release_that_nobody_tested_compiles_where_every_probe_is_called(tmp_path: Path) -> None:
    found, stats, logged, _ = spoilt(NO_NAMES, tmp_path)
    assert found == [True] * 6
    assert [traces for _, traces in stats] == [1, 0, 0]  # of equal modules the others load
    assert "is tested with torch" in logged[0]
    assert not [text for text in logged if "does not call" in text]


def test_the_installed_torch_calls_every_probe_that_is_put_in_place() -> None:
    """Where this fails for a probe that is new, `Canary` lacks what makes Dynamo call it."""
    uncalled_probes.cache_clear()
    assert uncalled_probes() == ((), "")


def test_what_fails_under_another_release_is_no_riddle(
    monkeypatch: pytest.MonkeyPatch, release_of_torch: Callable[[str], None], cache_dir: Path
) -> None:
    def fail(*_: object) -> None:
        raise TypeError("a parameter that is gone")

    cached = gearcache.cache_compile(torch.nn.Linear(2, 2).forward, config=CompilerConfig(backend="eager", strict=True))
    monkeypatch.setattr("gearcache.serving.find.binding.Binding.prepare", fail)
    release_of_torch("2.99.0")
    with (
        torch.no_grad(),
        pytest.raises(PreparationError, match=r"a parameter that is gone.*is tested with torch 2\.13.*, this is 2\.99"),
    ):
        cached(torch.ones(2, 2))


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.99.0", torch.__version__])
def test_a_probe_that_fails_under_another_release_leaves_the_call_to_the_method(
    version: str, monkeypatch: pytest.MonkeyPatch, release_of_torch: Callable[[str], None], cache_dir: Path
) -> None:
    class Net(torch.nn.Module):
        def run(self, x: torch.Tensor) -> torch.Tensor:
            return x + (2 in [1, self.weight])

        weight = 2

    def probe(self: object) -> None:
        """What Dynamo would call with an argument more."""

    monkeypatch.setattr("gearcache.torch_names.missing_names", lambda: ())  # would import all of torch
    uncalled_probes()  # is asked once in a process, and here before the probes fail
    monkeypatch.setattr("gearcache.ge_cache.private_torch.corrections.comparisons._is_among", probe)
    monkeypatch.setattr("gearcache.ge_cache.private_torch.probes.attributes._note_maker", probe)
    net, x = Net(), torch.ones(2, 2)
    cached = gearcache.cache_compile(net.run, config=CompilerConfig(backend="eager"))
    release_of_torch(str(version))
    with torch.no_grad():
        if version != "2.99.0":
            with pytest.raises(CaptureError, match="positional argument"):
                cached(x)
            return
        assert [torch.equal(cached(x), net.run(x)) for _ in range(3)] == [True] * 3
    assert cached.stats.eager_reasons == {"torch": 3}
    assert "positional argument" in cached.explain()


#: In a process that may import the compilers, as the names and parameters are looked up in all of torch.
REGISTRY = """
import json
from torch._dynamo import utils
from gearcache.torch_names import functions, missing_for_hits, missing_names
found = [missing_names(), missing_for_hits(), functions()]
missing_names.cache_clear()
utils.specialize_symnode = lambda arg, more: arg
print(json.dumps([*found, missing_names()]))
"""


@pytest.mark.slow
def test_the_installed_torch_has_every_name_in_the_source_with_the_parameters_on_record(
    subtests: pytest.Subtests,
) -> None:
    missing, missing_for_hits, functions, missing_then = run_python(REGISTRY, compiles=True)
    assert (missing, missing_for_hits) == ([], [])
    with subtests.test("a function of other parameters is missing"):
        assert missing_then == ["torch._dynamo.utils.specialize_symnode(arg)"]
    release = ".".join(torch.__version__.split(".")[:2])
    seen = {name: [form for form, releases in forms.items() if release in releases] for name, forms in known().items()}
    if not any(seen.values()):
        pytest.skip(f"torch {release} is not on record; once its tests pass: scripts/torch_parameters.py")
    assert {name: [form] for name, form in functions.items()} == {name: forms for name, forms in seen.items() if forms}


@pytest.mark.parametrize("version", ["2.13.1+cpu", "2.13.0a0"])
def test_a_patch_or_another_build_of_the_release_is_taken(version: str) -> None:
    check_release(version)
