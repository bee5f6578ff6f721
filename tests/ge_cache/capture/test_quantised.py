"""Models whose weights torchao has quantised: served as eager answers, relaunched, and missed where they differ."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.relaunch import run_python
from tests.support.source_tree import ROOT

#: Where `make` puts torchao: no other test may find it.
TORCHAO = Path(sys.prefix) / "torchao"
KINDS = ["int8", "dynamic int8", "float8"]
COLD = {"equal": True, "traces": 1, "misses": 1}
RELAUNCHED = {"equal": True, "traces": 0, "misses": 0}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (TORCHAO / "torchao").is_dir(), reason=f"torchao is not in {TORCHAO}"),
]


def launch(call: str, cache: Path, folder: Path = TORCHAO, *, compiles: bool = True) -> Any:
    """Return what an expression over `tests.support.quantised_models` gives in a new process."""
    code = f"import json, tests.support.quantised_models as models\nprint(json.dumps({call}))"
    paths = os.pathsep.join(filter(None, [str(ROOT), str(folder), os.environ.get("PYTHONPATH")]))
    environ = {"TORCHAIR_CACHE_HOME": str(cache), "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}
    return run_python(code, environ=environ, compiles=compiles)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quantised") / "cache"


@pytest.fixture(scope="module")
def first(cache: Path) -> Any:
    """What the process shows that fills the cache."""
    return launch("models.first_process()", cache)


def test_quantised_weights_are_served_as_eager_answers_and_relaunched(
    first: Any, cache: Path, subtests: pytest.Subtests
) -> None:
    """The models have one class, and tensors of the same names and sizes: only their settings differ."""
    assert first["served"] == dict.fromkeys(KINDS, COLD)
    relaunched = launch("{kind: models.served(kind) for kind in models.CONFIGS}", cache, compiles=False)
    assert relaunched == dict.fromkeys(KINDS, RELAUNCHED)
    with subtests.test("compiled graphs take them"):
        assert first["compiled"] == COLD
    with subtests.test("weights that a process exchanges are seen"):
        assert first["exchanged"] == [True] * 6
    with subtests.test("parts of a weight are not taken for tensors with like names"):
        assert first["beside neighbours"] is True
    with subtests.test("a quantised tensor is not returned"):
        assert "graph cannot be traced" in first["refusals"]["part"]
        assert "passes on `self" in first["refusals"]["whole"]


@pytest.mark.thorough  # tests of staleness edit other libraries; here, what Dynamo does not trace
@pytest.mark.usefixtures("first")
def test_an_edit_of_the_library_is_a_miss(cache: Path, tmp_path: Path) -> None:
    folder, copied = tmp_path / "site", tmp_path / "cache"
    shutil.copytree(TORCHAO / "torchao", folder / "torchao")
    shutil.copytree(cache, copied)
    file = folder / "torchao/quantization/quantize_/workflows/int8/int8_tensor.py"
    assert launch("models.served('int8')", copied, folder, compiles=False) == RELAUNCHED
    text, begin = file.read_text(), "def _(func, types, args, kwargs):\n"
    assert begin in text
    file.write_text(text.replace(begin, f"{begin}    edited = 1\n"))
    assert launch("models.served('int8')", copied, folder) == COLD
