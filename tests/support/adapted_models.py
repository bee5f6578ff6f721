"""Models with adapters of peft, for a process that may import it: transformers looks for it."""

from __future__ import annotations

from typing import Any

import peft
import torch
from torch import nn

import gearcache

X = torch.arange(48.0).reshape(3, 16) / 10


class Network(nn.Module):
    """Two layers, both with adapters."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.value = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.value(torch.relu(self.query(x)))


def adapted(active: str, *others: str, rank: int = 4) -> Any:
    """Return a model with several adapters, of which one is active."""
    torch.manual_seed(0)
    config = peft.LoraConfig(r=rank, target_modules=["query", "value"], init_lora_weights=False)
    model = peft.get_peft_model(Network(), config, adapter_name=active)
    for name in others:
        model.add_adapter(name, peft.LoraConfig(r=8, target_modules=["query"], init_lora_weights=False))
    model.set_adapter(active)
    return model.eval()


def served(model: Any, cache: str) -> dict[str, Any]:
    """Attach a model and call it; its result has to be that of the plain model."""
    with torch.no_grad():
        expected = model(X)
    config = gearcache.CompilerConfig(backend="eager", strict=True)
    attachment = gearcache.attach(model, cache_dir=cache, config=config)
    answer, stats = model(X), attachment.stats
    return {"equal": torch.equal(answer, expected), "traces": stats.traces, "hits": stats.hits}


def tenants(cache: str) -> list[dict[str, Any]]:
    """Serve launches that differ in the adapters that they do not use, then some that differ in the active one."""
    reports = [served(adapted("mine", *others), cache) for others in (["a"], ["b"], ["c", "d"], [], list("efghij"))]
    other_rank, switched = adapted("mine", "a", rank=8), adapted("mine", "a")
    switched.set_adapter("a")
    without = adapted("mine", "b")
    without.base_model.disable_adapter_layers()
    return reports + [served(model, cache) for model in (other_rank, switched, without, adapted("yours", "a"))]
