"""A relaunch imports a part of torchair, without Dynamo; the rest comes, once, when the program asks for it."""

from __future__ import annotations

import ast
from typing import Any

import pytest
import torch

import gearcache
from tests.npu import device
from tests.npu.decoders import Decoder, Size
from tests.support.relaunch import run_python

ENVIRON = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
BEGIN = """
import json, sys
from tests.npu import device, test_part_of_torchair
device.install()
{first}
COMPILERS = ("torch._dynamo", "torch._inductor", "torchair", "torchair._utils", "torchair.npu_fx_compiler")
report = test_part_of_torchair.decode(sys.argv[1])
report["imported"] = [name for name in COMPILERS if name in sys.modules and name != {lazy!r}]
"""
#: What a program may do afterwards, with torchair as a whole.
AFTERWARDS = """
import torch
before = {name: module for name, module in sys.modules.items() if name.startswith("torchair.")}
import torchair
torchair.get_compiler  # what torch_npu puts in its place imports it now
report["twice"] = sorted(name for name, module in before.items() if sys.modules.get(name) is not module)
missing = []
for name, module in sys.modules.items():
    parent, _, child = name.rpartition(".")
    if name.startswith("torchair.") and module.__spec__ is not None and not hasattr(sys.modules[parent], child):
        missing.append(name)
report["missing"] = missing
report["chain"] = torchair.core.utils.logger is before["torchair.core.utils"].logger
report["class"] = torchair.CompilerConfig is before["torchair.configs.compiler_config"].CompilerConfig
backend = torchair.get_npu_backend(compiler_config=torchair.CompilerConfig())
x = torch.ones(2, 3).to("npu")
report["compiled"] = torch.compile(lambda x: x * 3 + 1, backend=backend)(x).cpu().tolist()
"""
END = """
print(json.dumps(report))
"""


def decode(root: str) -> dict[str, Any]:
    """Call a decoder that is cached below a folder; what came out, and what it cost."""
    torch.manual_seed(0)
    model = Decoder(Size(layers=1)).to("npu").eval()
    ids, position = torch.zeros(2, 1, dtype=torch.long).to("npu"), torch.zeros(2, dtype=torch.long).to("npu")
    config = gearcache.CompilerConfig(backend="torchair", strict=True)
    cached = gearcache.cache_compile(model.decode, config=config, cache_dir=root, dynamic=False)
    found = cached(ids, position, model.caches(2, "npu", torch.float32))
    with torch.no_grad():
        expected = model.decode(ids, position, model.caches(2, "npu", torch.float32))
    assert torch.allclose(found.cpu(), expected.cpu(), atol=1e-5)
    return {"result": found.cpu().tolist(), "traces": cached.stats.traces, "hits": cached.stats.hits}


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    root = str(tmp_path_factory.mktemp("part"))
    return root, decode(root)


def lazy_torchair() -> None:
    """Put the real stand-in of torch_npu's `dynamo` package at `torchair`, as `import torch_npu` does with CANN."""
    import sys
    import types

    folder = device.wheel_folder() / "dynamo"
    package: Any = types.ModuleType("torch_npu.dynamo")
    package.__path__, package.__package__, package.__file__ = [str(folder)], "torch_npu.dynamo", str(folder)
    sys.modules["torch_npu.dynamo"] = package
    sys.path.remove(str(folder))
    names = ("_ImportError", "_LazyException", "_LazyBackend", "_bind_lazy_submodules", "_LazyTorchair")
    tree = ast.parse((folder / "__init__.py").read_text())
    tree.body = [node for node in tree.body if getattr(node, "name", None) in names]
    exec("import os, sys, time", vars(package))  # noqa: S102
    exec(compile(tree, str(folder / "__init__.py"), "exec"), vars(package))  # noqa: S102
    sys.modules["torchair"] = package._LazyTorchair("torchair")


def test_a_relaunch_imports_no_compiler_and_the_program_may_import_the_rest(cold: tuple[str, dict[str, Any]]) -> None:
    """Also after a part that could not be imported, as of another torch_npu: what was imported of it stays."""
    root, expected = cold
    first = """
test_part_of_torchair.lazy_torchair()
from gearcache.ge_cache.npu import part_of_torchair
assert not part_of_torchair.import_part(("torchair.core.utils", "torchair.core.of_another_release"))
assert part_of_torchair.import_part(("torchair.core.utils",))
assert type(sys.modules["torchair"]).__name__ == "_LazyTorchair"
"""
    begin = BEGIN.format(first=first, lazy="torchair")
    report = run_python(begin + AFTERWARDS + END, root, environ=ENVIRON)
    assert report["result"] == expected["result"]
    assert (report["traces"], report["hits"], report["imported"]) == (0, 1, [])
    assert (report["twice"], report["missing"]) == ([], [])
    assert report["chain"]
    assert report["class"]
    assert report["compiled"] == [[4.0] * 3] * 2


def test_the_process_ends_without_dynamo_and_with_the_end_of_ge(cold: tuple[str, dict[str, Any]]) -> None:
    watched = """
import atexit
def last():
    report["at the end"] = [name for name in COMPILERS if name in sys.modules]
    report["finalized"] = sum(counted)
    print(json.dumps(report))
counted = []
atexit.register(last)  # it was registered before torchair's own, so it runs after that
""" + BEGIN.format(first="", lazy=None).replace(
        "report = ", "sys.modules['torchair.core._torchair'].FinalizeGraphEngine = lambda: counted.append(1)\nreport = "
    )
    report = run_python(watched, cold[0], environ=ENVIRON)
    assert (report["at the end"], report["finalized"]) == ([], 1)


@pytest.mark.thorough  # a variable for a fault that nobody has met yet
def test_the_whole_package_is_imported_where_the_user_says_so(cold: tuple[str, dict[str, Any]]) -> None:
    begin = BEGIN.format(first="", lazy=None)
    report = run_python(begin + END, cold[0], environ={**ENVIRON, "GEARCACHE_WHOLE_TORCHAIR": "1"})
    assert (report["result"], report["traces"]) == (cold[1]["result"], 0)
    assert "torch._dynamo" in report["imported"]
