"""The `torchair` backend: gear graphs for Ascend NPUs, through the Python half of torchair.

Our own capture, gears, evidence and dispatch stay; torchair turns one traced graph into a GE graph (mode
`max-autotune`) or an aclgraph (`npugraph_ex`, `reduce-overhead`) and writes the Python text that runs it. That text
is the artifact: a relaunch runs it and neither traces nor converts. GE compiles again in each process, unless
`ge_cache=True` keeps GE's own files beside the entry.

Developed against torch_npu 2.13.0 and an emulated GE (`tests/npu`); what only a real NPU can show is listed in
`docs/npu.md`.
"""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from gearcache.ge_cache import _compat_fake
from gearcache.ge_cache.all_gears import check_assumptions
from gearcache.ge_cache.ascend import decompositions, hf32, torch_npu_module
from gearcache.ge_cache.backend import Artifact, CompileJob, Runner, Stage, StoredArtifact
from gearcache.ge_cache.functional import FunctionalGraph, functional_graph
from gearcache.ge_cache.ge_text import gear_lists, graph_name, ordered_gears
from gearcache.ge_cache.npu_call import kernel_call
from gearcache.ge_cache.npu_config import NpuOptions
from gearcache.ge_cache.npu_load import CODE, load_kernel
from gearcache.guards.expressions import checked_expression

#: Environment variables that change what GE compiles.
_VARIABLES = ("AUTOFUSE_FLAGS",)


class TorchairBackend:
    """Compiles through torchair and runs what it generated. One object serves one cached method."""

    name = "torchair"
    parallel = False
    allows_random = False
    allows_dynamic = True
    keeps_files = True

    def __init__(self, options: NpuOptions | None = None) -> None:
        self.options = options or NpuOptions()
        self.takes_all_gears = self.options.gear_execution == "ge"
        self._shared: dict[tuple[Any, ...], Runner] = {}

    def fingerprint(self) -> dict[str, Any]:
        """CANN, torch_npu, SoC, determinism, precision and every option that may change the code."""
        torch_npu = torch_npu_module()
        npu = torch_npu.npu
        return {
            "torch_npu": str(torch_npu.__version__),
            "cann": str(npu.utils.get_cann_version()),
            "soc": str(npu.get_device_name()),
            "deterministic_level": npu._get_deterministic_level(),
            "hf32": hf32(),
            "environment": {name: os.environ.get(name) for name in _VARIABLES},
            "mode": self.options.effective_mode,
            "gear_execution": self.options.gear_execution,
            "config": self.options.component(),
        }

    def check_compiler(self) -> None:
        """Import the compiler now; `BackendUnavailable` names what is missing."""
        self.options.package()
        if self.options.effective_mode == "reduce-overhead":
            warnings.warn(
                "mode='reduce-overhead' is deprecated by torchair; use mode='npugraph_ex'",
                DeprecationWarning,
                stacklevel=2,
            )

    def compile(self, job: CompileJob, workdir: Path, stage: Stage) -> Artifact:
        """Convert one gear (or, with `gear_execution="ge"`, all of them) and return the generated text."""
        stage("lower")
        functional = functional_graph(job, decompositions(self.options.package()))
        stage("compile")
        gears = gear_lists(job)
        first = len(functional.owners)
        for tensor, lists in zip(functional.examples[first:], gears, strict=False):
            if lists:
                tensor.dim_gears = lists
        with _compat_fake.tracing(functional.mode):
            text = self._convert(functional, first + len(job.inputs), graph_name(job))
        conditions = functional.symbolic.assumptions() if functional.symbolic is not None else []
        if gears:
            names, values = [name for name, _ in job.graph["symbols"]["hints"]], job.graph["symbols"]["gears"]
            check_assumptions(job.method, conditions, names, values)
            text, conditions = ordered_gears(text, [{}] * first + gears), []
        is_ge = "ge_graph = GeGraph(" in text
        if is_ge and "_is_first_run = True" not in text:
            raise RuntimeError("this torchair generates text of another form than torch_npu 2.13.0 does")
        outputs = len(job.graph["outputs"])
        header = {"ge": is_ge, "outputs": outputs, "copied_back": functional.copied_back}
        header |= {"method": job.method, "owners": functional.owners, "written": functional.written}
        header["sizes"] = [list(spec.sizes) for spec in job.inputs]
        header["geared"] = [index for index, lists in enumerate(gears) if lists]
        return Artifact(
            header,
            {CODE: text.encode()},
            [checked_expression(item.replace("torch.sym_float", "float")) for item in conditions],
        )

    def _convert(self, functional: FunctionalGraph, first: int, name: str) -> str:
        for weight in functional.examples[first:]:
            # They are bound once: GE may take their addresses as fixed (`frozen_parameter`), aclgraph as captured.
            weight._torchair_is_parameter = True
        options, package = self.options, self.options.package()
        if options.is_npugraph_ex:
            compiled = package.compile_fx(functional.module, functional.examples, options.npugraph_ex_options())
        else:
            compiled = package.get_compiler(options.torchair_config())(functional.module, functional.examples)
        counted = str(compiled.runner.graph.name)
        if options.is_ge:
            compiled.runner.graph.name = name
        text = compiled.get_code(options.static_kernel_options())
        if not isinstance(text, str):
            raise RuntimeError("torchair generates no code for this graph under these options")
        # Graphs are counted per process (`graph_1`): no text may depend on that, and no two share a name.
        return re.sub(rf"\b{re.escape(counted)}\b", name, text)

    def load(self, artifact: StoredArtifact, attributes: Mapping[str, torch.Tensor], device: torch.device) -> Runner:
        """Run the generated text: GE loads or compiles its graph now, an aclgraph is captured at the first call."""
        # The live tensors themselves: a weight whose `.data` is replaced is seen.
        weights = list(attributes.values())
        code = artifact.read(CODE)
        shared = (hashlib.sha256(code).digest(), *(id(tensor) for tensor in weights))
        if shared in self._shared:
            return self._shared[shared]
        kernel = load_kernel(code, artifact, weights, self.fingerprint, self.options.package)
        run = kernel_call(kernel, weights, artifact.header, artifact.examples())
        if self.takes_all_gears:
            self._shared[shared] = run
        return run
