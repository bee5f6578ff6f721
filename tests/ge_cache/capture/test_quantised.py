"""Models whose weights torchao has quantised: served as eager answers, relaunched, and missed where they differ."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.relaunch import run_python
from tests.support.sampled import sampled
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


def launch(call: str, cache: Path, folder: Path = TORCHAO) -> Any:
    """Return what a call of `tests.support.quantised_models` gives in a new process."""
    code = f"import json, tests.support.quantised_models as models\nprint(json.dumps(models.{call}))"
    paths = os.pathsep.join(filter(None, [str(ROOT), str(folder), os.environ.get("PYTHONPATH")]))
    environ = {"TORCHAIR_CACHE_HOME": str(cache), "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}
    return run_python(code, environ=environ, has_torch=False)


@pytest.mark.parametrize("dtype", sampled(["float32", "bfloat16"], ["float32"]))
@pytest.mark.parametrize("kind", KINDS)
def test_quantised_weights_are_served_as_eager_answers_and_relaunched(kind: str, dtype: str, tmp_path: Path) -> None:
    call = f"served({kind!r}, dtype={dtype!r})"
    assert [launch(call, tmp_path) for _ in range(2)] == [COLD, RELAUNCHED]


@pytest.mark.usefixtures("compiled_here")
@pytest.mark.parametrize("kind", sampled(KINDS, ["dynamic int8"]))
def test_compiled_graphs_take_quantised_weights(kind: str, tmp_path: Path) -> None:
    assert launch(f"served({kind!r}, 'inductor')", tmp_path) == COLD


def test_another_quantisation_of_the_same_sizes_is_a_miss(tmp_path: Path) -> None:
    """The same class, tensors and sizes, with other settings."""
    assert [launch(f"served({kind!r})", tmp_path) for kind in KINDS[:2]] == [COLD, COLD]


def test_weights_that_a_process_exchanges_are_seen(tmp_path: Path) -> None:
    assert launch("exchanged()", tmp_path) == [True] * 6


def test_parts_of_a_weight_are_not_taken_for_tensors_with_like_names(tmp_path: Path) -> None:
    assert launch("beside_neighbours()", tmp_path) is True


@pytest.mark.parametrize(("method", "words"), [("part", "graph cannot be traced"), ("whole", "passes on `self")])
def test_a_quantised_tensor_is_not_returned(method: str, words: str, tmp_path: Path) -> None:
    assert words in launch(f"refusal({method!r})", tmp_path)


def test_an_edit_of_the_library_is_a_miss(tmp_path: Path) -> None:
    folder, cache = tmp_path / "site", tmp_path / "cache"
    shutil.copytree(TORCHAO / "torchao", folder / "torchao")
    file = folder / "torchao/quantization/quantize_/workflows/int8/int8_tensor.py"
    assert [launch("served('int8')", cache, folder) for _ in range(2)] == [COLD, RELAUNCHED]
    text, begin = file.read_text(), "def _(func, types, args, kwargs):\n"
    assert begin in text
    file.write_text(text.replace(begin, f"{begin}    edited = 1\n"))
    assert launch("served('int8')", cache, folder) == COLD
