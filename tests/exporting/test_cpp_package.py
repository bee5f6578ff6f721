"""All gears of a cached method in one file, run by a C++ program."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import CaptureError, MissingTorchNames
from gearcache.exporting.cpp_package import header_folder
from gearcache.ge_cache.inductor.targets import host_targets
from tests.support.source_tree import ROOT

#: Targets that hosts have which run tests. The first one is also that of `test_targets`: its headers are made once.
LEVELS = {"x86_64": ["x86-64-v3", "x86-64-v2"], "aarch64": ["armv8-a"]}


class Step(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 6)
        self.register_buffer("offset", torch.arange(6.0))

    def step(self, x: Tensor, cache: Tensor) -> dict[str, Tensor]:
        hidden = torch.tanh(self.project(x)) + self.offset
        cache.mul_(0.5).add_(hidden)
        return {"hidden": hidden, "top": hidden[:, 1:3], "cache": cache, "weight": self.project.weight[0]}


def build(target: Path) -> None:
    root = Path(torch.__file__).parent
    include = [root / "include", root / "include/torch/csrc/api/include", header_folder()]
    command = ["g++", "-std=c++20", "-O0", str(ROOT / "tests/exporting/run_package.cpp"), "-o", str(target)]
    command += [f"-I{path}" for path in include]
    command += [f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_here")
@pytest.mark.thorough  # it compiles torch's headers for a minute; nothing else runs a package
def test_a_cpp_program_runs_every_gear_of_a_package(cache_dir: Path, tmp_path: Path) -> None:
    model = Step().eval()
    target = next(name for name in LEVELS[platform.machine()] if name in host_targets())
    config = gearcache.CompilerConfig(backend="inductor", strict=True, target=target)
    cached = gearcache.cache_compile(model.step, config=config, gears={"x": {0: [2, 4]}})
    cached.warm(torch.randn(2, 8), torch.randn(2, 6))
    compiled = cached.stats.compiles
    package = tmp_path / "step.gears"
    gearcache.export(cached, package)
    assert cached.stats.compiles == compiled
    program = tmp_path / "run_package"
    build(program)
    for rows in (2, 4):
        x, cache = torch.randn(rows, 8), torch.randn(rows, 6)
        with torch.no_grad():
            ours = cached(x, cache.clone())
            theirs = model.step(x, cache.clone())
        torch.save([x, cache], tmp_path / "inputs.pt")
        done = subprocess.run(
            [program, package, tmp_path / "inputs.pt", tmp_path / "outputs.pt"],
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split("\n")[:2] == ["x.size(0)=2", "x.size(0)=4"]
        found = torch.load(tmp_path / "outputs.pt", weights_only=False)
        for name, expected in theirs.items():
            alike = [tensor for tensor in found if tensor.shape == expected.shape]
            assert any(torch.allclose(tensor, expected, atol=1e-6) for tensor in alike), name
            assert any(torch.equal(tensor, ours[name].detach()) for tensor in alike), name
    torch.save([torch.randn(3, 8), torch.randn(3, 6)], tmp_path / "inputs.pt")
    done = subprocess.run(
        [program, package, tmp_path / "inputs.pt", tmp_path / "outputs.pt"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "no gear takes these inputs: x[3, 8]float" in done.stderr
    done = subprocess.run([program, package], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["apart 0", "one memory 1", "lazy negative 1"]


class Bits(nn.Module):
    def bits(self, x: Tensor) -> Tensor:
        return x.view(torch.int32)


@pytest.mark.usefixtures("compiled_here")
def test_a_result_that_the_header_cannot_make_is_refused(cache_dir: Path, tmp_path: Path) -> None:
    config = gearcache.CompilerConfig(backend="inductor", strict=True)
    cached = gearcache.cache_compile(Bits().bits, config=config, gears={"x": {0: [2]}})
    assert cached(torch.ones(2)).dtype is torch.int32
    with pytest.raises(CaptureError, match="view of another dtype"):
        gearcache.export(cached, tmp_path / "package")


def test_a_method_that_was_not_called_cannot_be_exported(cache_dir: Path, tmp_path: Path) -> None:
    cached = gearcache.cache_compile(Step().step, gears={"x": {0: [2, 4]}})
    with pytest.raises(ValueError, match=r"call it, or `.warm"):
        gearcache.export(cached, tmp_path / "p")


@pytest.mark.usefixtures("compiled_here")
def test_an_attached_module_is_exported(cache_dir: Path, tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    attached = gearcache.attach(model, config=gearcache.CompilerConfig(backend="inductor", strict=True))
    with torch.no_grad():
        model(torch.ones(3, 4))
    gearcache.export(attached, tmp_path / "attached")
    gearcache.export(attached.method, tmp_path / "method")
    assert len(torch.load(tmp_path / "attached")["gears"]) == 1
    assert (tmp_path / "attached").stat().st_size == (tmp_path / "method").stat().st_size


@pytest.mark.parametrize("thing", [nn.Linear(2, 2), nn.Linear(2, 2).forward, "decode"])
def test_what_is_no_cached_method_is_named(thing: object, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=rf"export takes a cached method or .*, not .*{type(thing).__name__}"):
        gearcache.export(thing, tmp_path / "p")


def test_another_backend_makes_no_code_for_cpp(cache_dir: Path, tmp_path: Path) -> None:
    cached = gearcache.cache_compile(
        Step().step, config=gearcache.CompilerConfig(backend="eager"), gears={"x": {0: [2, 4]}}
    )
    with torch.no_grad():
        cached(torch.randn(2, 8), torch.randn(2, 6))
    with pytest.raises(ValueError, match="backend `eager`"):
        gearcache.export(cached, tmp_path / "p")
    assert not (tmp_path / "p").exists()


def test_where_torch_lacks_a_name_the_error_says_so(
    cache_dir: Path, tmp_path: Path, release_of_torch: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gearcache.torch_names.missing_names", lambda: ("torch._C._gone",))
    release_of_torch("2.99.0")
    config = gearcache.CompilerConfig(backend="inductor")
    cached = gearcache.cache_compile(Step().step, config=config)
    with torch.no_grad():
        cached(torch.ones(2, 8), torch.zeros(2, 6))
    assert cached.stats.eager_reasons == {"torch": 1}
    with pytest.raises(MissingTorchNames, match=r"torch 2\.99\.0 lacks `torch\._C\._gone`"):
        gearcache.export(cached, tmp_path / "package")
