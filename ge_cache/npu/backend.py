"""The `torchair` backend: gear graphs for Ascend NPUs, through the Python half of torchair.

Our own capture, gears, evidence and dispatch stay; torchair turns one traced graph into a GE graph (mode
`max-autotune`) or an aclgraph (`npugraph_ex`, `reduce-overhead`) and writes the Python text that runs it. That text is
the artifact: a relaunch runs it and neither traces nor converts. GE compiles again in each process, unless
`ge_cache=True` keeps GE's own files beside the entry.

Developed against torch_npu 2.13.0 and an emulated GE (`tests/npu`); `docs/npu.md` lists what only a real NPU can show.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch

from gearcache.ge_cache.backend import Artifact, Backend, Runner, Stage, StoredArtifact
from gearcache.ge_cache.npu.ascend import hf32, torch_npu_module
from gearcache.ge_cache.npu.call import kernel_call
from gearcache.ge_cache.npu.config import NpuOptions
from gearcache.ge_cache.npu.load import load_kernel, read_parts

if TYPE_CHECKING:
    from gearcache.ge_cache.compile_job import CompileJob

#: Environment variables that change what GE compiles.
_VARIABLES = ("AUTOFUSE_FLAGS",)


class TorchairBackend(Backend):
    """Compiles through torchair and runs the generated text. One object serves one cached method."""

    name = "torchair"
    keeps_files = True
    is_ge = True
    groups_by_role = False  # GE's communicators have their own names

    def __init__(self, options: NpuOptions | None = None) -> None:
        self.options = options or NpuOptions()
        self.takes_all_gears = self.options.gear_execution == "ge"
        #: As long as a graph uses them: each keeps its weights.
        self._shared: WeakValueDictionary[tuple[Any, ...], Runner] = WeakValueDictionary()

    def fingerprint(self) -> dict[str, Any]:
        """Return CANN, torch_npu, SoC, determinism, precision and every option that may change the code."""
        torch_npu = torch_npu_module()
        npu = torch_npu.npu
        return {
            "torch_npu": str(torch_npu.__version__),
            "cann": str(npu.utils.get_cann_version()),
            "soc": str(npu.get_device_name()),
            "deterministic_level": npu._get_deterministic_level(),
            "hf32": hf32(),
            "cube_math_type": str(npu.matmul.cube_math_type),
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

    def compile(self, job: CompileJob, stage: Stage) -> Artifact:
        """Convert one gear (or, with `gear_execution="ge"`, all of them) and return the generated text."""
        from gearcache.ge_cache.npu.convert import convert

        return convert(job, self.options, stage)

    def load(self, artifact: StoredArtifact, attributes: Mapping[str, torch.Tensor], device: torch.device) -> Runner:
        """Run the generated code: GE loads or compiles its graph now, an aclgraph is captured at the first call."""
        # The live tensors themselves: replacing the `.data` of a weight takes effect.
        weights = list(attributes.values())
        parts = read_parts(artifact)
        shared: tuple[Any, ...] = ()
        if self.takes_all_gears:
            shared = (*(hashlib.sha256(part).digest() for part in parts), *(id(tensor) for tensor in weights))
            if (former := self._shared.get(shared)) is not None:
                return former
        kernel = load_kernel(parts, artifact, weights, self.fingerprint, self.options.package)
        run = kernel_call(kernel, weights, artifact.header, artifact.examples())
        if self.takes_all_gears:
            self._shared[shared] = run
        return run
