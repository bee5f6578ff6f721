"""Write the storage formats of a GE graph's input tensors into the graph, before GE compiles it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gearcache.ge_cache.npu.ascend import converter_module, torch_npu_module

#: NCHW, NHWC, ND and NCDHW, for which torchair writes only their number. For others it writes more.
_PLAIN = (0, 1, 2, 30)


def note_formats(graph: Any, inputs: Sequence[torch.Tensor]) -> None:
    """Do for a `GraphDef` what torchair's `_update_internal_format_from_inputs` does before the first run.

    That function is in the converter, whose import takes two seconds; so it is called only for private and other
    non-plain formats.
    """
    get_format = torch_npu_module().get_npu_format
    operators = {op.attr["index"].i: op for op in graph.op if op.type in ("Data", "RefData")}
    formats = {index: int(get_format(tensor)) for index, tensor in enumerate(inputs) if tensor.device.type == "npu"}
    if len(inputs) > len(operators) or any(kind not in _PLAIN for kind in formats.values()):
        converter_module()._update_internal_format_from_inputs(graph, inputs)
        return
    for index, kind in formats.items():
        for description in (operators[index].output_desc[0], operators[index].input_desc[0]):
            description.attr["format_for_int"].i = kind
