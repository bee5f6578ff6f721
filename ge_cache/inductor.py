"""The `inductor` backend: one AOTInductor shared object per gear, weights outside.

`package_constants_in_so=False` leaves the weights out of the object; `user_managed` binding then makes every gear
and the live module share one copy, and an in-place weight update is seen. The object is loaded straight from the
blob store with `torch._C._aoti`, which needs no `torch._inductor`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgpack
import torch

from gearcache.errors import BackendUnavailable
from gearcache.ge_cache import _compat, _compat_inductor, _compat_symbols
from gearcache.ge_cache.aten import decode_tensor, encode_tensor, to_module
from gearcache.ge_cache.backend import Artifact, CompileJob, Runner, Stage, StoredArtifact
from gearcache.ge_cache.examples import symbolic_examples
from gearcache.guards.expressions import checked_expression

_LIBRARY = "graph.so"
_CONSTANTS = "constants.msgpack"


class InductorBackend:
    """Compiles with AOTInductor and loads without Inductor."""

    name = "inductor"
    parallel = True
    allows_random = False
    allows_dynamic = True
    takes_all_gears = False

    def fingerprint(self) -> dict[str, Any]:
        """Instruction sets (the code is built with `-march=native`) and the thread count baked into it."""
        return {
            "capability": _compat.cpu_capability(),
            "instructions": _cpu_flags(),
            "threads": torch.get_num_threads(),
        }

    def check_compiler(self) -> None:
        """Look for a C++ compiler; `BackendUnavailable` says what to do without one."""
        wanted = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
        if not any(shutil.which(name) for name in wanted):
            raise BackendUnavailable(
                self.name,
                f"no C++ compiler was found ({', '.join(wanted)}); install one, set `CXX`, use backend='eager', "
                "or bring a cache that a host with a compiler has made",
            )

    def compile(self, job: CompileJob, workdir: Path, stage: Stage) -> Artifact:
        """Build the shared object; takes seconds to minutes and a C++ compiler."""
        constants = {name: decode_tensor(plain) for name, plain in job.graph["constants"].items()}
        module = to_module(job.graph, constants)
        names = _attach_attributes(module, job)
        inputs, symbolic = _inputs(job)
        folded: dict[str, torch.Tensor] = dict(constants)

        def inner(compile_inner: Any, graph: Any, example_inputs: Any, **keywords: Any) -> Any:
            for node in graph.graph.nodes:
                if node.op == "get_attr" and node.target not in names.values():
                    value = getattr(graph, node.target)
                    if isinstance(value, torch.Tensor):
                        folded[node.target] = value
            stage("compile")
            return compile_inner(graph, example_inputs, **keywords)

        stage("lower")
        with torch.no_grad():
            library = Path(
                _compat_inductor.inductor_compile(module, inputs, compile_options(job), inner, linker_flags())
            )
        _strip(library)
        data = library.read_bytes()
        runner = _compat.aoti_runner(str(library))
        attribute_of = {attached: name for name, attached in names.items()}
        bound: dict[str, list[str]] = {}
        for internal, original in runner.get_constant_names_to_original_fqns().items():
            if original in attribute_of:
                bound[internal] = ["attribute", attribute_of[original]]
            elif original in folded:
                bound[internal] = ["constant", original]
            else:
                raise RuntimeError(f"AOTInductor made the constant `{original}`, whose value is not known")
        used = sorted(name for kind, name in bound.values() if kind == "constant")
        blobs = {_LIBRARY: data}
        if used:
            blobs[_CONSTANTS] = msgpack.packb({name: encode_tensor(folded[name]) for name in used}, use_bin_type=True)
        conditions = [checked_expression(text) for text in symbolic.assumptions()] if symbolic is not None else []
        return Artifact({"bound": bound}, blobs, conditions)

    def load(self, artifact: StoredArtifact, attributes: Mapping[str, torch.Tensor], device: torch.device) -> Runner:
        """Load the shared object and bind the live weights, without a copy."""
        runner = _compat.aoti_runner(str(artifact.path(_LIBRARY)))
        bound = artifact.header["bound"]
        constants: dict[str, torch.Tensor] = {}
        if any(kind == "constant" for kind, _ in bound.values()):
            stored = msgpack.unpackb(artifact.read(_CONSTANTS), raw=False)
            constants = {name: decode_tensor(plain, device) for name, plain in stored.items()}
        values = {
            internal: attributes[name] if kind == "attribute" else constants[name]
            for internal, (kind, name) in bound.items()
        }
        if values:
            runner.update_constant_buffer(values, False, True, True)
        return _Bound(runner.run, values)


class _Bound:
    """A runner together with the tensors that its `user_managed` constants point to."""

    __slots__ = ("run", "values")

    def __init__(self, run: Runner, values: dict[str, torch.Tensor]) -> None:
        self.run = run
        self.values = values

    def __call__(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return self.run(inputs)


def prepare(threads: int) -> None:
    """Compile a graph of one operator, so that Inductor's probes and precompiled headers exist."""
    module = torch.fx.symbolic_trace(_Increment())
    job = CompileJob("", "", None, [], {}, {}, threads)
    with torch.no_grad():
        _compat_inductor.inductor_compile(module, [torch.zeros(64)], compile_options(job), _pass_on, linker_flags())


class _Increment(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x + 1,)


def _pass_on(compile_inner: Any, graph: Any, inputs: Any, **keywords: Any) -> Any:
    return compile_inner(graph, inputs, **keywords)


def compile_options(job: CompileJob) -> dict[str, Any]:
    """Return Inductor's settings for a gear; the user's `options` win."""
    return {
        "aot_inductor.package": False,
        "aot_inductor.package_constants_in_so": False,
        "aot_inductor.compile_wrapper_opt_level": "O0",
        "always_keep_tensor_constants": True,
        "compile_threads": 1,
        "cpp.threads": job.threads,
        **job.options,
    }


def linker_flags() -> list[str]:
    """Return flags that export only the interface of the object: a third of the time to load it (GNU ld and lld)."""
    if not sys.platform.startswith("linux"):
        return []
    script = Path(__file__).with_name("exports.map")
    return [shlex.quote(f"Wl,--version-script={script}"), "Wl,--gc-sections"]


def _inputs(job: CompileJob) -> tuple[list[torch.Tensor], _compat_symbols.SymbolicInputs | None]:
    """Return example inputs: real tensors for a static gear, symbolic ones for dynamic dims."""
    symbols = job.graph.get("symbols")
    if not symbols:
        made = [
            torch.empty_strided(spec.sizes, spec.strides, dtype=spec.dtype, device=spec.device) for spec in job.inputs
        ]
        return made, None
    return symbolic_examples(symbols, job.inputs)


def _attach_attributes(module: torch.fx.GraphModule, job: CompileJob) -> dict[str, str]:
    """Turn the trailing placeholders into attributes, so that AOTInductor takes them for constants.

    The tensors are uninitialised and never read: their pages cost no memory.
    """
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"][len(job.inputs) :]
    names = {}
    for number, (node, (name, spec)) in enumerate(zip(placeholders, job.attributes.items(), strict=True)):
        attached = f"weight_{number}"
        tensor = torch.empty_strided(spec.sizes, spec.strides, dtype=spec.dtype, device=spec.device)
        module.register_buffer(attached, tensor)
        if node.users:
            with module.graph.inserting_before(node):
                replacement = module.graph.get_attr(attached)
            node.replace_all_uses_with(replacement)
        module.graph.erase_node(node)
        names[name] = attached
    module.recompile()
    return names


def _strip(library: Path) -> None:
    """Drop debug information, half of the file, where `strip` exists: less to hash at every load."""
    strip = shutil.which("strip")
    if strip is not None:
        subprocess.run([strip, "--strip-unneeded", str(library)], check=False, capture_output=True)


def _cpu_flags() -> list[str]:
    """Return the CPU's instruction set flags as Linux lists them; empty elsewhere."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return []
    with path.open(encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith(("flags", "Features")):
                return sorted(line.partition(":")[2].split())
    return []
