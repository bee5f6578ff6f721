"""Private names by which Inductor chooses the vector instructions that it writes. Each has a test."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from gearcache.child_process import python_command, python_environment
from gearcache.ge_cache.capture.exchanged import exchanged

#: Calls the function of libtorch that `at::vec::Vectorized<float>::exp` calls (`VecISA._avx_code` of torch 2.13).
_SLEEF_PROBE = """
#if defined(CPU_CAPABILITY_AVX512)
#define WIDTH 64
#define EXP Sleef_expf16_u10
#else
#define WIDTH 32
#define EXP Sleef_expf8_u10
#endif
typedef float floats __attribute__((vector_size(WIDTH)));
extern "C" floats EXP(floats);
alignas(64) float values[16] = {0.0};
extern "C" void gearcache_probe() {
    *(floats*)values = EXP(*(floats*)values);
}
"""


@contextlib.contextmanager
def probed_alike() -> Iterator[None]:
    """Keep Inductor's probes of instruction sets, which run Python in the working folder, from importing files there.

    Inductor probes every known set, up to 1.7 s each, and takes the first one that works: the others are left out. A
    probe includes all of torch's headers for vectors, which are compiled anyway: here it has only what it calls.
    """
    from torch._inductor import cpu_vec_isa

    instruction_sets = functools.partial(_instruction_sets, cpu_vec_isa.valid_vec_isa_list)
    replaced: list[tuple[Any, str, Any]] = [
        (cpu_vec_isa, "subprocess", _Probes()),
        (cpu_vec_isa, "valid_vec_isa_list", instruction_sets),
    ]
    if _is_x86():
        replaced.append((cpu_vec_isa.VecISA, "_avx_code", _SLEEF_PROBE))
    with exchanged(replaced):
        yield


@contextlib.contextmanager
def vectors_of(name: str) -> Iterator[None]:
    """Make Inductor use one class of instruction sets, none for "", regardless of the CPU and the environment.

    `config.cpp.simdlen` must be None.
    """
    from torch._inductor import cpu_vec_isa

    instruction_sets = [_without_probes(name)] if name else []
    with exchanged(
        [
            (cpu_vec_isa, "valid_vec_isa_list", lambda: instruction_sets),
            (cpu_vec_isa, "get_isa_from_cpu_capability", lambda capability, available, invalid: available[0]),
        ]
    ):
        yield


@functools.cache
def _without_probes(name: str) -> Any:
    """Return an instruction set that works, without the extensions that Inductor adds where the CPU has them."""
    from torch._inductor import cpu_vec_isa

    kind: Any = getattr(cpu_vec_isa, name)

    class Taken(kind):  # type: ignore[misc]
        __hash__ = kind.__hash__

        def __bool__(self) -> bool:
            return True

        def build_arch_flags(self) -> str:
            return str(self._arch_flags)

        def is_avx512_bf16_supported(self) -> bool:
            return False

    return Taken()


def _instruction_sets(original: Callable[[], list[Any]]) -> list[Any]:
    """Return the instruction set that Inductor would choose: the first working one of `original()`."""
    from torch._inductor import config, cpu_vec_isa

    if not _is_x86() or config.cpp.simdlen is not None or os.environ.get("ATEN_CPU_CAPABILITY"):
        return original()
    flags = cpu_vec_isa.x86_isa_checker()
    supported = (
        item for item in cpu_vec_isa.supported_vec_isa_list if all(flag in flags for flag in str(item).split())
    )
    first = next((item for item in supported if item), None)
    return [] if first is None else [first]


def _is_x86() -> bool:
    return sys.platform == "linux" and platform.machine() == "x86_64"


class _Probes:
    """The module `subprocess`, except that Python runs with the settings of this process."""

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def run(self, command: list[str], **keywords: Any) -> Any:
        return subprocess.run(_alike(command), **keywords | _environment(command, keywords))

    def check_call(self, command: list[str], **keywords: Any) -> Any:
        return subprocess.check_call(_alike(command), **keywords | _environment(command, keywords))


def _is_python(command: list[str]) -> bool:
    return command[:2] == [sys.executable, "-c"] and len(command) == 3


def _alike(command: list[str]) -> list[str]:
    return python_command(command[2]) if _is_python(command) else command


def _environment(command: list[str], keywords: dict[str, Any]) -> dict[str, Any]:
    """Return `env` for Python: the probe adds the places of libraries."""
    if not _is_python(command):
        return {}
    libraries = (keywords.get("env") or {}).get("LD_LIBRARY_PATH")
    return {"env": python_environment() | ({"LD_LIBRARY_PATH": libraries} if libraries else {})}
