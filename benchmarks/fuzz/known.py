"""What is no failure although the two worlds differ: the whole list, each with the sentence that it rests on."""

from __future__ import annotations

import re

#: Names in dictionaries of the user's (globals of a file, attributes of tensors) that only the cached world has.
LEFT_BEHIND = {
    re.compile(r"_dynamo_"): "Dynamo marks tensors that it has seen, as under `torch.compile`",
    re.compile(r"_\d+_c\d+$"): "Dynamo keeps constants of a trace in the globals of the file, as under `torch.compile`",
    re.compile(
        r"_gearcache "
    ): "a frame finds what Dynamo made for it under a name in the globals that no program can write",
}


def is_left_behind(name: str) -> bool:
    """Whether a name is one of `LEFT_BEHIND`."""
    return any(pattern.match(name) for pattern in LEFT_BEHIND)
