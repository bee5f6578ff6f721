"""The `eager` backend: runs the recorded ATen graph unchanged. No compiler, instant, bit for bit eager."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from msgspec import msgpack

from gearcache.ge_cache.aten import decode_tensor, to_python
from gearcache.ge_cache.backend import Artifact, Backend, Runner, Stage, StoredArtifact

if TYPE_CHECKING:
    from gearcache.ge_cache.compile_job import CompileJob

_GRAPH = "graph.msgpack"


class EagerBackend(Backend):
    """Stores the graph; loading it writes one Python function of operator calls."""

    name = "eager"
    allows_random = True
    compiles = False

    def fingerprint(self) -> dict[str, Any]:
        """Return the version of torch_npu, if installed: its operators computed sizes while the graph was made."""
        torch_npu = sys.modules.get("torch_npu")
        return {} if torch_npu is None else {"torch_npu": str(getattr(torch_npu, "__version__", ""))}

    def compile(self, job: CompileJob, stage: Stage) -> Artifact:
        """Encode the graph."""
        return Artifact({"inputs": job.inputs_and_numbers}, {_GRAPH: msgpack.encode(job.graph)})

    def load(self, artifact: StoredArtifact, attributes: Mapping[str, torch.Tensor], device: torch.device) -> Runner:
        """Write the graph as a function over the inputs and the live attributes."""
        graph = msgpack.decode(artifact.read(_GRAPH))
        if artifact.groups:
            from gearcache.ge_cache.process_groups import renamed, role

            graph = renamed(graph, {role(number): name for number, name in enumerate(artifact.groups)})
        constants = {name: decode_tensor(plain, device) for name, plain in graph["constants"].items()}
        placeholders = sum(node[0] == "input" for node in graph["nodes"])
        if placeholders != artifact.header["inputs"] + len(attributes):
            raise ValueError(f"the graph takes {placeholders} tensors, its inputs and weights are others")
        run = to_python(graph, constants)
        # Not detached: `aten::linear` folds differently for a weight that requires grad, which shows in the last bit.
        weights = list(attributes.values())
        no_grad = torch.no_grad

        def run_eager(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
            with no_grad():
                return run(*inputs, *weights)

        return run_eager
