"""Refuse graphs that one CPU cannot lower for another, although the compiled code would run there.

Operators called at run time choose among instruction sets themselves. The strides of their results are determined while
a graph is lowered, and compiled code relies on them. Where the strides depend on the CPU, choosing a target is not
enough.
"""

from __future__ import annotations

import torch

from gearcache.ge_cache.inductor.targets import NATIVE

_LOW_PRECISION = (torch.bfloat16, torch.float16)
_VOLUMES = 5


def check_portable(graph: torch.fx.GraphModule, target: str) -> None:
    """Raise `RuntimeError` for a convolution of volumes in low precision, where a target is given.

    On a CPU with such arithmetic oneDNN computes it, which keeps the order of channels; on another CPU no order is kept
    (`_conv_determine_backend_memory_format`). In two dimensions, and in float32, all CPUs behave alike.
    """
    if target == NATIVE:
        return
    for node in graph.graph.nodes:
        if node.target is not torch.ops.aten.convolution.default:
            continue
        tensor = node.args[0].meta["val"]
        if tensor.dim() == _VOLUMES and tensor.dtype in _LOW_PRECISION:
            raise RuntimeError(
                f"it convolves volumes in {tensor.dtype}, whose strides differ among the CPUs of target {target!r}: "
                "use target='native', or float32"
            )
