"""What a method asks of a tensor that no later call can compare: its place in memory, and which object a result is."""

import torch

from tests.cases.case import Case, texts


class Net(Case):
    pass


REFUSED = texts(
    Net,
    {
        "the offset in a storage": "return x + 1 if x.storage_offset() > 20 else x - 1",
        "the offset of a view": "return x + x[1:].storage_offset()",
        "an offset as a float": "return x - float(x.storage_offset()), x.norm()",
        "the size of a storage": "return x + x[1:].untyped_storage().size()",
        "the base of a view": "base = x[1:]._base\nreturn x + (0 if base is None else base.shape[0])",
        "an attribute of what may be the tensor itself": 'return x + int(getattr(x.contiguous(), "tag", 0))',
        "whether what may be the tensor itself has one": 'return x + 1 if hasattr(x.contiguous(), "tag") else x - 1',
        "the gradient of what may be the tensor itself": "return x + 1 if x.contiguous().grad is None else x - 1",
    },
    refused="",
)
