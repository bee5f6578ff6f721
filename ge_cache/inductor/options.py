"""Inductor's settings for a gear: the user's, ours, and those that a cached graph fixes.

A compile must not depend on the values of weights: a cached graph takes them from the live module at every load, and
they are uninitialised while it is compiled. Settings that introduce such a dependency are refused, also where the
environment sets them (`TORCHINDUCTOR_FREEZING=1`).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from gearcache.errors import OptionError
from gearcache.ge_cache.compile_job import CompileJob
from gearcache.ge_cache.inductor.targets import NATIVE, TARGETS

_VALUES = "it computes with the values of weights while compiling, and a cached graph takes them from the live module"
_PACKS = "it packs the values of weights into the code while compiling, and a cached graph takes them from the module"
_OUTSIDE = "weights stay outside the compiled code, where all gears and the live module share them"
_OBJECT = "what is stored is one shared object, and not what this would make"

#: Setting -> its value, and the reason why it is fixed.
_FIXED: dict[str, tuple[Any, str]] = {
    "freezing": (False, _VALUES),
    "freezing_discard_parameters": (False, _VALUES),
    "always_keep_tensor_constants": (True, _VALUES),
    "max_autotune": (False, _PACKS),
    "max_autotune_gemm": (False, _PACKS),
    "aot_inductor.use_runtime_constant_folding": (
        False,
        "it computes with the values of weights when a graph is loaded, so that a later update would not be seen",
    ),
    "aot_inductor.package_constants_in_so": (False, _OUTSIDE),
    "aot_inductor.package_constants_on_disk_format": (None, _OUTSIDE),
    "aot_inductor.package": (False, _OBJECT),
    "aot_inductor.package_cpp_only": (None, _OBJECT),
    "fx_wrapper": (False, _OBJECT),
}


#: Settings that choose the CPUs for which the code is made.
_OF_TARGETS = ("cpp.march", "cpp.simdlen", "cpp.vec_isa_ok")


def check_options(options: Mapping[str, Any], target: str = NATIVE) -> None:
    """Raise `ValueError`, with the reason, for a setting that a cached graph cannot follow or the target fixes."""
    for name in _OF_TARGETS:
        if target != NATIVE and name in options:
            raise OptionError(
                f"option `options` sets `{name}` to {options[name]!r}; with target={target!r} it follows from the "
                "target: leave one of both out"
            )
    for name, value in options.items():
        fixed, reason = _FIXED.get(name, (value, ""))
        if value != fixed or type(value) is not type(fixed):
            raise OptionError(
                f"option `options` sets `{name}` to {value!r}; with backend `inductor` it is {fixed!r}: {reason}"
            )


def check_mode(mode: str | None) -> None:
    """Raise `ValueError` for a mode: Inductor's modes are shorthands for settings, and tuning ones are refused."""
    if mode not in (None, "default"):
        raise OptionError(f"option `mode` is {mode!r}; with backend `inductor` it is None or 'default'")


def check_names(options: Collection[str], known: Collection[str]) -> None:
    """Raise `ValueError` for a setting that the installed Inductor does not know."""
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            hint = f"; near it are {', '.join(f'`{item}`' for item in near)}" if near else ""
            raise OptionError(f"option `options` sets `{name}`, which `torch._inductor.config` does not have{hint}")


def compile_options(job: CompileJob) -> dict[str, Any]:
    """Return Inductor's settings for a gear; the user's override ours, except fixed ones."""
    return {
        "aot_inductor.compile_wrapper_opt_level": "O0",
        "compile_threads": 1,
        "cpp.threads": job.threads,
        **job.options,
        **{name: value for name, (value, _) in _FIXED.items()},
        **_settings_for(job.target),
    }


def vectors_for(job: CompileJob) -> str | None:
    """Return the vector instructions that Inductor may write; None for all of the CPU's."""
    return None if job.target == NATIVE else TARGETS[job.target].vectors


def _settings_for(target: str) -> dict[str, Any]:
    return {} if target == NATIVE else {"cpp.march": target, "cpp.simdlen": None, "cpp.vec_isa_ok": None}
