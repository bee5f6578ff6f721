"""What private functions of Inductor do where compiled graphs alone would not show it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from gearcache.ge_cache.private_torch.codegen import inductor as private_inductor
from gearcache.ge_cache.private_torch.codegen import instruction_sets


def test_the_probes_of_instruction_sets_import_nothing_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import cpu_vec_isa

    marker = tmp_path / "was run"
    for name in ("ctypes", "struct"):
        (tmp_path / f"{name}.py").write_text(f"open({str(marker)!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    program = cpu_vec_isa.VecISA._avx_py_load.replace("__lib_path__", torch._C.__file__)
    module: Any = cpu_vec_isa
    with instruction_sets.probed_alike():
        module.subprocess.run([sys.executable, "-c", program], check=False, stderr=-3)
    assert not marker.exists()
    assert module.subprocess is subprocess
    subprocess.run([sys.executable, "-c", program], check=False, stderr=subprocess.DEVNULL)
    assert marker.exists(), "without it the folder is imported from"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors have Inductor's own probe")
@pytest.mark.parametrize(
    ("name", "refused", "is_taken"),
    [
        ("VecAVX2", "-mnothing", True),
        ("VecAVX2", "-mavx2", False),
        ("VecAVX512", "-mavx512f", False),
    ],
)
def test_an_instruction_set_is_taken_if_the_compiler_and_libtorch_have_it(
    name: str, refused: str, is_taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import cpp_builder, cpu_vec_isa

    compiler = tmp_path / "c++"
    compiler.write_text(f'#!/bin/sh\ncase " $* " in *" {refused} "*) exit 1;; esac\nexec g++ "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", lambda: str(compiler))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    kind: Any = type(name, (getattr(cpu_vec_isa, name),), {"__hash__": object.__hash__})  # which no test has probed
    with instruction_sets.probed_alike():
        assert kind().check_build(cpu_vec_isa.VecISA._avx_code) is is_taken
    monkeypatch.setattr(instruction_sets, "_SLEEF_PROBE", instruction_sets._SLEEF_PROBE.replace("_u10", "_absent"))
    with instruction_sets.probed_alike():
        assert not kind().check_build(cpu_vec_isa.VecISA._avx_code)


@pytest.mark.parametrize(
    ("name", "width", "flags"),
    [
        ("", 0, ""),
        ("VecAVX512", 512, "-mavx512f -mavx512dq -mavx512vl -mavx512bw -mfma"),
        ("VecNEON", 128, ""),
    ],
)
@pytest.mark.parametrize("capability", [None, "avx2"])
def test_the_instruction_set_of_a_target_is_taken_as_it_is(
    name: str, width: int, flags: str, capability: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import cpu_vec_isa

    if capability is not None:
        monkeypatch.setenv("ATEN_CPU_CAPABILITY", capability)
    monkeypatch.setattr(cpu_vec_isa.VecISA, "check_build", lambda self, code: pytest.fail("it was probed"))
    before = cpu_vec_isa.valid_vec_isa_list, cpu_vec_isa.get_isa_from_cpu_capability
    with instruction_sets.vectors_of(name):
        found = cpu_vec_isa.pick_vec_isa()
    assert (found.bit_width(), found.build_arch_flags(), bool(found)) == (width, flags, bool(name))
    assert isinstance(found, getattr(cpu_vec_isa, name or "InvalidVecISA"))
    assert not name.startswith("VecAVX512") or not found.is_avx512_bf16_supported()  # type: ignore[attr-defined]
    assert before == (cpu_vec_isa.valid_vec_isa_list, cpu_vec_isa.get_isa_from_cpu_capability)


@pytest.mark.parametrize("mode", [0o700, 0o777], ids=oct)
def test_inductor_works_in_its_folder_unless_others_can_write_there(
    tmp_path: Path, mode: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = tmp_path / "usual"
    usual.mkdir()
    usual.chmod(mode)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(usual))
    private_inductor.settle_folder(str(tmp_path / "own"))
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(usual if mode == 0o700 else tmp_path / "own")
    assert (str(usual) in capsys.readouterr().err) is (mode == 0o777)
