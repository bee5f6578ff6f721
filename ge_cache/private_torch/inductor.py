"""Private names of torch with which AOTInductor compiles. One test per name; nothing of Inductor is imported before."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from gearcache.errors import UnsafePath
from gearcache.ge_cache.private_torch.core import OpOverload, storage_key
from gearcache.ge_cache.private_torch.cpp_objects import ObjectMaker, as_written, objects_by
from gearcache.ge_cache.workers.interpreter import python_command, python_environment
from gearcache.guards.evidence.identity import is_users
from gearcache.guards.evidence.operators import is_outside


def inductor_compile(
    module: torch.fx.GraphModule,
    inputs: list[torch.Tensor],
    options: dict[str, Any],
    inner: Callable[..., Any],
    linker_flags: Sequence[str] = (),
    weights: Sequence[torch.Tensor] = (),
    objects: ObjectMaker = as_written,
) -> Any:
    """Compile with AOTInductor; `inner(compile_inner, module, inputs, **options)` wraps the last stage.

    `weights` are the attributes of the module whose values must not get into the code. `objects` makes the object of
    the C++ that Inductor has written, in place of Inductor.
    """
    from torch._inductor.compile_fx import compile_fx_aot, compile_fx_inner

    def wrapped(graph: Any, example_inputs: Any, **keywords: Any) -> Any:
        return inner(compile_fx_inner, graph, example_inputs, **keywords)

    patches = {**unassigned_settings(), **options}
    with unread(weights), probed_alike(), objects_by(objects, linker_flags, header_folder()):
        return compile_fx_aot(module, inputs, inner_compile=wrapped, config_patches=patches)  # type: ignore[arg-type]


def settle_folder(fallback: str) -> str:
    """Fix and return the folder of Inductor's files, by default in the temporary folder.

    It is `fallback` where others can write there: what lies in it is loaded and becomes part of entries.
    """
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    from gearcache.cache.trust import check_parents

    usual = cache_dir()
    try:
        check_parents(Path(usual, "file"))
    except (OSError, UnsafePath) as error:
        sys.stderr.write(f"gearcache worker: {error}\n")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = fallback
        return fallback
    return usual


def header_folder() -> Path:
    """Return where Inductor keeps precompiled headers: in what the temporary folder was when it was imported."""
    from torch._inductor import codecache

    return Path(codecache._HEADER_DIR)


@contextlib.contextmanager
def probed_alike() -> Iterator[None]:
    """Let Inductor's probes of instruction sets, which run Python in the working folder, import nothing from there.

    Inductor probes all that it knows, up to 1.7 s for each, and takes the first one that works: others are left out.
    """
    from torch._inductor import cpu_vec_isa

    module: Any = cpu_vec_isa
    original, original_list = module.subprocess, module.valid_vec_isa_list
    module.subprocess, module.valid_vec_isa_list = _Probes(), functools.partial(_instruction_sets, original_list)
    try:
        yield
    finally:
        module.subprocess, module.valid_vec_isa_list = original, original_list


def _instruction_sets(original: Callable[[], list[Any]]) -> list[Any]:
    """Return the instruction set that Inductor would take, where it takes the first one of `original()`."""
    from torch._inductor import config, cpu_vec_isa

    is_x86 = sys.platform == "linux" and platform.machine() == "x86_64"
    if not is_x86 or config.cpp.simdlen is not None or os.environ.get("ATEN_CPU_CAPABILITY"):
        return original()
    flags = cpu_vec_isa.x86_isa_checker()
    known = (item for item in cpu_vec_isa.supported_vec_isa_list if all(flag in flags for flag in str(item).split()))
    first = next((item for item in known if item), None)
    return [] if first is None else [first]


class _Probes:
    """The module `subprocess`, but Python is run as this process runs it."""

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
    """Return `env` for Python: what the probe adds is where libraries are found."""
    if not _is_python(command):
        return {}
    libraries = (keywords.get("env") or {}).get("LD_LIBRARY_PATH")
    return {"env": python_environment() | ({"LD_LIBRARY_PATH": libraries} if libraries else {})}


@contextlib.contextmanager
def unread(weights: Sequence[torch.Tensor]) -> Iterator[None]:
    """Keep Inductor from folding weights of one element, whose value it would read off the attribute."""
    from torch._inductor.fx_passes.joint_graph import UniformValueConstantFolder

    folder: Any = UniformValueConstantFolder
    original = folder._deduce_value
    storages = {storage_key(tensor) for tensor in weights}

    def deduce_value(self: Any, node: torch.fx.Node) -> Any:
        if node.op == "get_attr":
            value = functools.reduce(getattr, str(node.target).split("."), self.module)
            if isinstance(value, torch.Tensor) and storage_key(value) in storages:
                return self.unknown_value
        return original(self, node)

    folder._deduce_value = deduce_value
    try:
        yield
    finally:
        folder._deduce_value = original


def unassigned_settings() -> dict[str, Any]:
    """Return the settings that the process has assigned to, with what they were before: defaults and environment."""
    from torch._inductor import config
    from torch.utils._config_module import _UNSET_SENTINEL as UNSET

    settings: Any = config
    found = {}
    for name, entry in settings._config.items():
        assigned = entry.user_override.get()
        started = entry.default if entry.env_value_default is UNSET else entry.env_value_default
        # A list or dict counts as assigned once it was read.
        if assigned is not UNSET and assigned != started:
            found[name] = started
    return found


def known_settings() -> set[str]:
    """Return the names of all settings of Inductor."""
    import torch._inductor.config as settings

    return set(settings.get_config_copy())


def replaced(operators: set[Any]) -> list[str]:
    """Return the names of operators that this process has registered code for with Inductor itself.

    Those are of `operators`, which are not torch's, and all operators of torch that have code of a user's.
    """
    from torch._inductor import decomposition, lowering

    own = lowering.lowerings.keys() - lowering.fallbacks  # for a fallback Inductor registers what calls the operator
    found = {item.name() for item in operators if item in decomposition.decompositions or item in own}
    tables: list[dict[Any, Any]] = [lowering.lowerings, decomposition.decompositions]
    entries = [entry for table in tables for entry in table.items()]
    users: set[Any] = {item for item, function in entries if isinstance(item, OpOverload) and is_users(function)}
    return sorted(found | {item.name() for item in users if not is_outside(item.name())})
