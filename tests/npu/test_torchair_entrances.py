"""`install()` and `uninstall()` at every entrance to torchair and npugraph_ex, before and after their import."""

from __future__ import annotations

import marshal
import pickle
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torchair
from torch import Tensor, nn

from gearcache.compat import torchair as compat
from tests.support.relaunch import run_python

OURS = "gearcache."
#: Names that torchair's own code uses.
INTERNAL = ("._cache_compile", "._cache_compiler.set_dim_gears")


@pytest.fixture(autouse=True)
def uninstalled() -> Iterator[None]:
    yield
    compat.uninstall()


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that bound torchair's own functions before `install()`."""
    module: Any = types.ModuleType("a_program")
    module.cached = torchair.inference.cache_compile
    module.set_dim_gears = torchair.inference.set_dim_gears
    monkeypatch.setitem(sys.modules, "a_program", module)
    return module


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two programs found that import torchair, and npugraph_ex, only after `install()`."""
    code = "import pathlib, sys; from tests.npu import entrances; entrances.main(pathlib.Path(sys.argv[1]))"
    environ = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    found: dict[str, Any] = run_python(code, str(tmp_path_factory.mktemp("entrances")), environ=environ)
    return found


def owners(names: dict[str, str]) -> dict[str, bool]:
    return {name: owner.startswith(OURS) for name, owner in names.items() if not name.endswith(INTERNAL)}


def test_install_imports_nothing_and_every_later_import_is_ours(found: dict[str, Any]) -> None:
    torchair = found["torchair"]
    assert torchair["lazy"] == "_LazyTorchair"
    assert torchair["imported by install"] == []
    for moment in ("installed", "again"):
        assert len(owners(torchair[moment])) == 15
        assert all(owners(torchair[moment]).values()), torchair[moment]
    assert torchair["installed"]["torchair.inference._cache_compile"] == "torchair.inference._cache_compiler"
    assert torchair["watched"], "nobody saw with which precision GE is started"


def test_after_uninstall_every_name_is_that_of_its_own_module(found: dict[str, Any]) -> None:
    torchair = found["torchair"]["uninstalled"]
    exports = {name: owner.rpartition(".")[2] for name, owner in torchair.items() if "dynamo_export" in name}
    assert set(exports.values()) == {"npu_export"}
    for name in ("torchair.inference", "torch_npu.dynamo.torchair.inference"):
        for function in ("cache_compile", "readable_cache", "set_dim_gears"):
            assert torchair[f"{name}.{function}"] == name
        assert torchair[f"{name}._cache_compiler.cache_compile"] == f"{name}._cache_compiler"
        assert torchair[f"{name}._cache_compile"] == "torchair.inference._cache_compiler"
    assert torchair["tests.npu.entrances.cache_compile"] == "torch_npu.dynamo.torchair.inference"
    assert torchair["tests.npu.entrances.set_dim_gears"] == "torchair.inference"


def test_npugraph_ex_is_served_by_options_and_by_config_without_torchair(found: dict[str, Any]) -> None:
    npugraph_ex = found["npugraph_ex"]
    assert npugraph_ex["imported before"] == []
    assert npugraph_ex["imported"] == ["npugraph_ex"]
    assert npugraph_ex["equal"] == [True, True]
    assert npugraph_ex["one entry"]
    assert "options.mode = 'npugraph_ex'" in npugraph_ex["key"]
    assert "backend.config.frozen_parameter = True" in npugraph_ex["key"]
    assert all(owners(npugraph_ex["installed"]).values()), npugraph_ex["installed"]
    assert not any(owners(npugraph_ex["uninstalled"]).values()), npugraph_ex["uninstalled"]


def test_names_that_were_bound_before_install_follow_and_go_back(program: Any) -> None:
    own = dict(vars(program))
    for _ in range(2):
        compat.install()
        compat.install()
        assert program.cached.__module__ == program.set_dim_gears.__module__ == compat.__name__
        program.later = torchair.inference.readable_cache
        compat.uninstall()
        compat.uninstall()
        assert program.later is torchair.inference.readable_cache
        del program.later
        assert dict(vars(program)) == own


class Sum(nn.Module):
    def added(self, x: Tensor) -> Tensor:
        return x + x


def test_readable_cache_tells_what_a_file_of_torchairs_is(tmp_path: Path) -> None:
    # As `CompiledModel.save` does; through a compile torchair saves a file at some of the attempts only.
    own = torchair.inference._cache_compiler
    meta, graph = own.ModelCacheMeta("added", "2026-11-23", own.CompiledModel.VERSION), own.CompiledFX("", "", [])
    path = tmp_path / "compiled_module"
    path.write_bytes(pickle.dumps(own.ModelCacheArtifact(meta, marshal.dumps(Sum.added.__code__), graph)))
    compat.install()
    for read in (torchair.inference.readable_cache, torchair.inference._cache_compiler.readable_cache):
        with pytest.raises(ValueError, match=r"a cache file of torchair's own.*entry_path"):
            read(cache_bin=str(path), print_output=False)
