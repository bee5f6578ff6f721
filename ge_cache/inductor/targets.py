"""CPU targets: levels of CPU features, so that one compile serves all hosts that have at least these.

`native` is this CPU with all its features. The others are levels that compilers know by the same name: those of the
x86-64 psABI, and of Arm's architecture. The flags are those of `/proc/cpuinfo`.
"""

from __future__ import annotations

import functools
import platform
import sys
from pathlib import Path

from msgspec import Struct

from gearcache.errors import OptionError

NATIVE = "native"
_CPUINFO = Path("/proc/cpuinfo")


class Target(Struct, frozen=True):
    """A level: a name for `-march`, the flags of a CPU of this level, and the vectors that Inductor writes."""

    name: str
    machine: str
    flags: tuple[str, ...]
    #: The class of `torch._inductor.cpu_vec_isa`; empty where Inductor has none that every CPU of the target supports.
    vectors: str


_V2 = ("cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3")
# `abm` is Linux' name for LZCNT; the system has enabled AVX where it lists `xsave` and `avx`.
_V3 = (*_V2, "abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave")
_V4 = (*_V3, *["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"])
_ARM8 = ("asimd", "fp")
_ARM82 = (*_ARM8, *["asimdrdm", "atomics", "crc32"])
# Everything that compilers use by default from what `-march=armv9-a` allows: Armv8.5 and SVE2.
_ARM9 = (
    *_ARM82,
    *["asimddp", "asimdfhm", "asimdhp", "fcma", "flagm", "fphp", "ilrcpc", "jscvt", "lrcpc", "sve", "sve2", "uscat"],
)

#: By name, each architecture from the lowest level to the highest.
TARGETS = {
    target.name: target
    for target in (
        Target("x86-64-v2", "x86_64", _V2, ""),
        Target("x86-64-v3", "x86_64", _V3, "VecAVX2"),
        Target("x86-64-v4", "x86_64", _V4, "VecAVX512"),
        Target("armv8-a", "aarch64", _ARM8, "VecNEON"),
        Target("armv8.2-a", "aarch64", _ARM82, "VecNEON"),
        # The width of SVE's vectors differs among CPUs of this level.
        Target("armv9-a", "aarch64", _ARM9, "VecNEON"),
    )
}


@functools.cache
def cpu_flags() -> tuple[str, ...]:
    """Return the CPU's flags as Linux lists them, sorted; empty elsewhere. Read once in a process."""
    if not _CPUINFO.exists():
        return ()
    with _CPUINFO.open(encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith(("flags", "Features")):
                return tuple(sorted(line.partition(":")[2].split()))
    return ()


def missing_flags(target: Target) -> list[str]:
    """Return the flags that this CPU lacks for a target of its architecture."""
    return sorted(set(target.flags) - set(cpu_flags()))


def host_targets() -> list[str]:
    """Return the targets that this host can run."""
    levels = [target for target in TARGETS.values() if target.machine == platform.machine()]
    return [NATIVE, *(target.name for target in levels if cpu_flags() and not missing_flags(target))]


def check_target(name: str) -> None:
    """Raise `OptionError` where this host cannot run code for a target: nothing may be compiled or loaded then."""
    if name == NATIVE:
        return
    target, machine = TARGETS[name], platform.machine()
    if machine != target.machine:
        reason = f"this host is {machine}, and that is a target for {target.machine}"
    elif not cpu_flags():
        reason = f"what this CPU has is not known: {sys.platform} has no `/proc/cpuinfo` that lists its flags"
    elif missing := missing_flags(target):
        reason = f"this CPU lacks {', '.join(missing)}"
    else:
        return
    allowed = ", ".join(repr(item) for item in host_targets())
    raise OptionError(f"option `target` is {name!r}: {reason}; allowed here: {allowed}")
