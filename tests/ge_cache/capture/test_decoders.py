"""Decoders of transformers through `forward` as it is, which makes a cache of its own: cold, and in another process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from tests.support.relaunch import run_python
from tests.support.scenarios import strict_config


def decoder() -> Any:
    """A small Mamba, with random weights that are the same each time; `tests/integrations` has other decoders."""
    import transformers

    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 1}
    return transformers.MambaForCausalLM(transformers.MambaConfig(**sizes)).eval()


def served() -> dict[str, Any]:
    """Whether a cached forward gives what the plain one does, and what it took."""
    model = decoder()
    cached = gearcache.cache_compile(model.forward, config=strict_config(), dynamic=False)
    ids = torch.arange(4).view(2, 2)
    with torch.inference_mode():
        found, expected = cached(input_ids=ids), model(input_ids=ids)
        is_equal = torch.allclose(found.logits, expected.logits, atol=1e-6)
        pairs = zip(_states(found), _states(expected), strict=True)
        is_equal &= all(torch.allclose(left, right, atol=1e-6) for left, right in pairs)
    stats = cached.stats
    return {"equal": is_equal, "misses": stats.misses, "traces": stats.traces, "eager": stats.eager_calls}


def _states(output: Any) -> list[torch.Tensor]:
    """What the layers of the cache hold that a model returns: keys and values, or states of a recurrent layer."""
    from gearcache.integrations.transformers.cache_name import CACHE

    cache = output.get(CACHE)
    if cache is None:
        return []
    leaves = torch.utils._pytree.tree_leaves([vars(layer) for layer in cache.layers])
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")  # in that of Mamba
def test_a_decoder_is_served_as_it_is_and_in_another_process(cache_dir: Path) -> None:
    pytest.importorskip("transformers")
    cold = served()
    assert (cold["equal"], cold["eager"]) == (True, 0)
    code = "import json\nfrom tests.ge_cache.capture.test_decoders import served\nprint(json.dumps(served()))"
    environ = {"TORCHAIR_CACHE_HOME": str(cache_dir)}
    assert run_python(code, environ=environ) == {"equal": True, "misses": 0, "traces": 0, "eager": 0}
