"""What CPUs code is compiled for: the key, the check of the host, and what the compiler is told."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import OptionError
from gearcache.ge_cache.compile_job import CompileJob, job_of_plain, plain_job
from gearcache.ge_cache.inductor import targets
from gearcache.ge_cache.inductor.backend import InductorBackend
from gearcache.ge_cache.inductor.options import compile_options, vectors_for
from gearcache.ge_cache.inductor.portable import check_portable
from gearcache.options import CompilerConfig
from tests.support.scenarios import strict_config

#: What Linux lists for some CPUs, without what no target asks for.
NEHALEM = "cx16 lahf_lm pni popcnt sse4_1 sse4_2 ssse3"
HASWELL = f"{NEHALEM} abm avx avx2 bmi1 bmi2 f16c fma movbe xsave aes erms"
ZEN2 = f"{HASWELL} clwb rdpid sha_ni sse4a topoext"
ICE_LAKE = f"{HASWELL} avx512bw avx512cd avx512dq avx512f avx512vl avx512_vnni gfni"
NEOVERSE_N1 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp ssbs"
NEOVERSE_V1 = f"{NEOVERSE_N1} jscvt fcma sha3 sm3 sm4 sha512 sve asimdfhm dit uscat ilrcpc flagm bf16 i8mm paca pacg"
NEOVERSE_V2 = f"{NEOVERSE_V1} sve2 sveaes svebitperm svebf16 svei8mm flagm2 frint sb bti"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(4, 4)

    def run(self, x: Tensor) -> Tensor:
        return torch.tanh(self.project(x))


def on_a_host(patch: pytest.MonkeyPatch, flags: str, machine: str = "x86_64") -> None:
    patch.setattr(targets, "cpu_flags", lambda: tuple(sorted(flags.split())))
    patch.setattr(platform, "machine", lambda: machine)


@pytest.mark.parametrize(
    ("machine", "flags", "names"),
    [
        pytest.param("x86_64", ZEN2, ["x86-64-v2", "x86-64-v3"], id="zen 2"),
        pytest.param("x86_64", ICE_LAKE, ["x86-64-v2", "x86-64-v3", "x86-64-v4"], id="ice lake"),
        pytest.param("aarch64", NEOVERSE_V2, ["armv8-a", "armv8.2-a", "armv9-a"], id="neoverse v2"),
        pytest.param("riscv64", "", [], id="no target"),
    ],
)
def test_a_host_has_the_targets_whose_flags_it_has(
    machine: str, flags: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_host(monkeypatch, flags, machine)
    assert targets.host_targets() == [targets.NATIVE, *names]
    for name in targets.TARGETS:
        if name in names:
            InductorBackend(None, name)
        else:
            with pytest.raises(OptionError, match=f"option `target` is '{name}'"):
                InductorBackend(None, name)


def test_the_key_of_a_target_is_the_same_on_all_cpus_that_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: dict[str, list[str]] = {}
    for flags, capability in ((HASWELL, "AVX2"), (ZEN2, "AVX2"), (ICE_LAKE, "AVX512")):
        on_a_host(monkeypatch, flags)
        monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda word=capability: word)
        for name in ("x86-64-v2", "x86-64-v3", targets.NATIVE):
            keys.setdefault(name, []).append(repr(InductorBackend(None, name).fingerprint()))
    assert {name: len(set(found)) for name, found in keys.items()} == {"x86-64-v2": 1, "x86-64-v3": 1, "native": 3}
    assert "'target': 'x86-64-v3'" in keys["x86-64-v3"][0]
    assert keys["x86-64-v2"][0] != keys["x86-64-v3"][0]


@pytest.mark.parametrize(
    ("target", "machine", "flags", "words"),
    [
        pytest.param(
            "x86-64-v4",
            "x86_64",
            ZEN2,
            "this CPU lacks avx512bw, .*; allowed here: 'native', 'x86-64-v2', 'x86-64-v3'",
            id="lacks flags",
        ),
        pytest.param("armv8-a", "x86_64", NEHALEM, "this host is x86_64, .*", id="another architecture"),
    ],
)
def test_a_host_that_lacks_a_target_says_what_and_loads_nothing(
    cache_dir: Path, target: str, machine: str, flags: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_host(monkeypatch, flags, machine)
    module = Net()
    cached = gearcache.cache_compile(module.run, config=CompilerConfig(backend="inductor", target=target))
    for _ in range(2):
        with pytest.raises(OptionError, match=f"^option `target` is '{target}': {words}$"):
            cached(torch.zeros(2, 4))
    assert cached.stats.traces == cached.stats.compiles == 0
    assert not any(cache_dir.rglob("manifest*"))


def test_eager_leaves_a_target_aside_and_an_npu_has_none(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_host(monkeypatch, "")
    module, x = Net(), torch.zeros(2, 4)
    paths = set()
    for target in ("native", "x86-64-v4", "armv9-a"):
        cached = gearcache.cache_compile(module.run, config=strict_config("eager", target=target))
        with torch.no_grad():
            torch.testing.assert_close(cached(x), module.run(x))
        paths.add(cached.entry_path)
    assert len(paths) == 1
    cached = gearcache.cache_compile(module.run, config=strict_config("torchair", target="armv8-a"))
    with pytest.raises(OptionError, match="`target` is 'armv8-a'; only backend `inductor` has it"):
        cached(x)


def test_the_compiler_gets_the_target_and_no_other_setting_of_it() -> None:
    asked = CompileJob("", "", None, [], {}, {}, 1, target="x86-64-v3")
    assert job_of_plain(plain_job(asked)) == asked, "as a worker gets it"
    native = compile_options(CompileJob("", "", None, [], {}, {}, 1))
    added = {name: value for name, value in compile_options(asked).items() if name not in native}
    assert added == {"cpp.march": "x86-64-v3", "cpp.simdlen": None, "cpp.vec_isa_ok": None}
    assert vectors_for(asked) == "VecAVX2"
    assert vectors_for(CompileJob("", "", None, [], {}, {}, 1)) is None


def test_a_graph_whose_strides_hang_on_the_cpu_is_for_no_target() -> None:
    graph = torch.fx.Graph()
    x, weight = graph.placeholder("x"), graph.placeholder("weight")
    x.meta["val"] = torch.empty(1, 4, 8, 8, 8, dtype=torch.bfloat16, device="meta")
    ones, zeros = [1] * 3, [0] * 3
    graph.output(
        graph.call_function(torch.ops.aten.convolution.default, (x, weight, None, ones, zeros, ones, False, zeros, 1))
    )
    module = torch.fx.GraphModule(nn.Module(), graph)
    check_portable(module, targets.NATIVE)
    with pytest.raises(RuntimeError, match=r"it convolves volumes in torch.bfloat16.*target 'x86-64-v3'"):
        check_portable(module, "x86-64-v3")


class Tower(nn.Module):
    """Layers that are compiled once and linked to the runtime of all objects, with vectors and low precision."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(384, 384) for _ in range(7))

    def run(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x)).bfloat16().sin().float().exp()
        return torch.softmax(x, -1)


#: What no CPU of x86-64-v3 is sure to have, as `objdump` writes it.
ABOVE = r"%zmm|%k[0-7]|%[xy]mm(1[6-9]|2\d|3[01])|\tad[co]x"


@pytest.mark.slow
# It makes torch's headers for another CPU. What g++ is told is shown by `test_the_compiler_gets_the_target_…`, and by
# `test_the_instruction_set_of_a_target_is_taken_as_it_is` for vectors; what it makes of that may wait for a release.
@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump of binutils")
@pytest.mark.skipif("x86-64-v3" not in targets.host_targets(), reason="the CPU is below x86-64-v3")
def test_objects_hold_nothing_that_the_target_lacks_and_serve_other_cpus_that_have_it(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEARCACHE_JOBS", "1")  # each worker imports Inductor for seconds
    target = "x86-64-v3"
    tower, x = Tower(), torch.randn(3, 384)
    config = strict_config("inductor", target=target)
    cached = gearcache.cache_compile(tower.run, config=config, dynamic=False)
    with torch.no_grad():
        torch.testing.assert_close(cached(x), tower.run(x), atol=1e-3, rtol=1e-2)
    assert "operations compiled once, run 7 times" in gearcache.readable_cache(cached.entry_path, print_output=False)
    (library,) = (path for path in cache_dir.rglob("blobs/*/*") if path.read_bytes()[:4] == b"\x7fELF")
    code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", library], capture_output=True, text=True, check=True)
    assert re.findall(f".*(?:{ABOVE}).*", code.stdout)[:3] == []
    assert "%ymm" in code.stdout

    monkeypatch.setattr(targets, "cpu_flags", lambda: (*targets.TARGETS[target].flags, "of_tomorrow"))
    again = gearcache.cache_compile(tower.run, config=config, dynamic=False)
    with torch.no_grad():
        torch.testing.assert_close(again(x), cached(x), atol=0, rtol=0)
    assert (again.stats.traces, again.stats.hits) == (0, 1)
