"""A tiny Llama whose decode step is compiled for one gear."""

from __future__ import annotations

import copy

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.scenarios.zoo import DECODER, Served, static_cache
from tests.support.scenarios import Run


def decode(run: Run) -> None:
    served = Served(LlamaForCausalLM(LlamaConfig(**DECODER)))
    cached = run.cache(served.decode, gears={"ids": {0: [2]}})
    ours = static_cache(served.model.config, 2)
    theirs = copy.deepcopy(ours)
    for step in (0, 1, 2):
        ids, position = torch.randint(0, 64, (2, 1)), torch.full((2, 1), step)
        with torch.no_grad():
            expected = served.decode(ids, theirs, position)
        run.check(f"step {step}", cached(ids, ours, position), expected)
