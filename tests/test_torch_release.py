"""Which torch is taken, and what is said of another one, of none, and of one that lacks private names."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import gearcache
from gearcache import CompilerConfig
from gearcache.errors import PreparationError
from gearcache.ge_cache.private_torch import attributes
from gearcache.torch_names import missing_names, names_in
from gearcache.torch_release import check_release
from tests.support.relaunch import run_python


@pytest.mark.parametrize("version", ["2.12.1", "2.14.0+cpu", "3.13.0", "2.15.0a0+git12", "1", ""])
def test_another_release_of_torch_is_refused_by_name(version: str) -> None:
    code = (
        "import json, sys, torch\n"
        "torch.__version__ = sys.argv[1]\n"
        "import gearcache\n"
        "try: gearcache.cache_compile\n"
        "except ImportError as error: print(json.dumps(str(error)))\n"
    )
    said = run_python(code, version, environ={"GEARCACHE_ANY_TORCH": "0"})
    assert f"gearcache works with torch 2.13, this is {version}: install `torch==2.13.*`" in said
    code = (
        "import json, sys, torch; torch.__version__ = sys.argv[1]; import gearcache; gearcache.cache_compile; print(1)"
    )
    assert run_python(code, version, environ={"GEARCACHE_ANY_TORCH": "1"}) == 1


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
    said, also = run_python(code)
    assert said == also
    assert said[1]
    assert said[0].startswith(
        "gearcache works with torch 2.13, and none is installed: `pip install 'gearcache[torch]'`"
    )
    assert "`pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu`" in said[0]


#: Makes torch one of 2.15 that lacks a name, and prints what gearcache says of that.
LACKING = """
import importlib, json, sys, torch
owner, name, at_import = sys.argv[1], sys.argv[2], sys.argv[3] == "import"
def lose():
    module, _, cls = owner.partition(":")
    delattr(getattr(importlib.import_module(module), cls) if cls else importlib.import_module(module), name)
torch.__version__ = "2.15.0"
if at_import:
    lose()
import gearcache
try:
    config = gearcache.CompilerConfig(backend="eager")
    cached = gearcache.cache_compile(torch.nn.Linear(2, 2).forward, config=config, cache_dir=sys.argv[4])
    lose()
    cached(torch.ones(2, 2))
except gearcache.GearcacheError as error:
    print(json.dumps([type(error).__name__, str(error), isinstance(error, ImportError)]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "when"),
    [
        pytest.param("torch._C", "_InferenceMode", "import", id="at the import"),
        pytest.param("torch._dynamo.variables.object_protocol", "generic_bool", "call", id="a module's, at a call"),
        pytest.param(
            "torch._dynamo.symbolic_convert:ExceptionStack", "set_current_exception", "call", id="a class's, at a call"
        ),
    ],
)
def test_a_private_name_that_another_torch_lacks_is_told(owner: str, name: str, when: str, tmp_path: Path) -> None:
    found = run_python(LACKING, owner, name, when, str(tmp_path), environ={"GEARCACHE_ANY_TORCH": "1"})
    lacking = f"{owner.replace(':', '.')}.{name}"
    assert found[0] == "MissingTorchNames"
    assert f"torch 2.15.0 lacks `{lacking}`, which gearcache uses: install `torch==2.13.*`" in found[1]
    assert found[2]


def test_what_fails_under_another_release_is_no_riddle(
    monkeypatch: pytest.MonkeyPatch, release_of_torch: Callable[[str], None], cache_dir: Path
) -> None:
    def fail(*_: object) -> None:
        raise TypeError("a parameter that is gone")

    cached = gearcache.cache_compile(torch.nn.Linear(2, 2).forward, config=CompilerConfig(backend="eager", strict=True))
    monkeypatch.setattr("gearcache.serving.binding.Binding.prepare", fail)
    release_of_torch("2.15.0")
    with (
        torch.no_grad(),
        pytest.raises(PreparationError, match=r"a parameter that is gone.*torch 2\.13, this is 2\.15"),
    ):
        cached(torch.ones(2, 2))


@pytest.mark.slow
def test_the_installed_torch_lacks_none_of_the_names_in_the_source() -> None:
    names = names_in(ast.parse(Path(attributes.__file__).read_text(encoding="utf-8")))
    assert "torch._dynamo.variables.dicts.ConstDictVariable.getitem_const_raise_exception_if_absent" in names
    assert "torch._dynamo.variables.functions.MemberDescriptorVariable.tp_descr_get_impl" in names
    assert missing_names() == ()


@pytest.mark.parametrize("version", ["2.13.0", "2.13.1+cpu", "2.13.0a0"])
def test_a_patch_or_another_build_of_the_release_is_taken(version: str) -> None:
    check_release(version, {})
