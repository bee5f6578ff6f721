"""Graphs that one CPU cannot lower for another one, though the code that is compiled would run there.

Operators that are called at run time choose among instruction sets themselves. With which strides their results come
is asked while a graph is lowered, and compiled code relies on it. Where that hangs on the CPU, no target is enough.
"""

from __future__ import annotations

import torch

from gearcache.ge_cache.inductor.targets import NATIVE

_LOW_PRECISION = (torch.bfloat16, torch.float16)
_VOLUMES = 5


def check_portable(graph: torch.fx.GraphModule, target: str) -> None:
    """Raise `RuntimeError` for a convolution of volumes in low precision, where a target is given.

    A CPU with such arithmetic has oneDNN compute it, which keeps the order of channels; another one keeps no order
    (`_conv_determine_backend_memory_format`). In two dimensions, and in float32, all do the same.
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
