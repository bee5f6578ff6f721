"""A model that is prewarmed on `meta`, under fake tensors and with real weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import gearcache

CONFIG = gearcache.CompilerConfig(backend="eager", strict=True)


class Decoder(nn.Module):
    """Tied weights, a buffer, a cache in a list that is a view of another, and three cached methods."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 8)
        self.head = nn.Linear(8, 32, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.ones(8), persistent=False)
        self.pool = torch.zeros(2, 4, 8)
        self.keys = [self.pool[0], self.pool[1]]
        self.cached_decode = gearcache.cache_compile(self.decode, config=CONFIG, gears={"ids": {0: [1, 2, 4]}})
        self.cached_score = gearcache.cache_compile(self.score, config=CONFIG, dynamic=False)
        self.cached_unused = gearcache.cache_compile(self.unused, config=CONFIG)

    def decode(self, ids: Tensor, scaled: bool = False) -> Tensor:
        hidden = self.embed(ids)
        self.keys[0].add_(hidden.mean())
        if scaled:
            hidden = hidden * self.scale
        return self.head(hidden) + self.keys[1].sum()

    def score(self, logits: Tensor) -> Tensor:
        return logits.softmax(-1).amax(-1)

    def unused(self, x: Tensor) -> Tensor:
        return x


def calls(make: Callable[[], tuple[Decoder, Tensor]]) -> None:
    model, ids = make()
    logits = model.cached_decode(ids)
    assert logits.shape == (2, 3, 32)
    model.cached_decode(ids, scaled=True)
    model.cached_score(logits)


def on_meta() -> None:
    with torch.device("meta"):
        calls(lambda: (Decoder(), torch.zeros(2, 3, dtype=torch.long)))


def built_on_meta() -> None:
    with torch.device("meta"):
        model = Decoder()
    calls(lambda: (model, torch.zeros(2, 3, dtype=torch.long, device="meta")))


def default_on_meta() -> None:
    torch.set_default_device("meta")
    try:
        calls(lambda: (Decoder(), torch.zeros(2, 3, dtype=torch.long)))
    finally:
        torch.set_default_device(None)


def fake() -> None:
    with FakeTensorMode():
        calls(lambda: (Decoder(), torch.zeros(2, 3, dtype=torch.long)))


def real() -> None:
    calls(lambda: (Decoder(), torch.zeros(2, 3, dtype=torch.long)))


def warm_only() -> None:
    with torch.device("meta"):
        model = Decoder()
        model.cached_decode.warm(torch.zeros(2, 3, dtype=torch.long))


def nothing() -> None:
    with torch.device("meta"):
        Decoder()


def broken() -> None:
    built_on_meta()
    raise RuntimeError("the deployment script is wrong")


def serve() -> dict[str, object]:
    """What a relaunched server does, with real weights: results compared with eager, and the statistics."""
    torch.manual_seed(0)
    ours, theirs = Decoder(), Decoder()
    theirs.load_state_dict(ours.state_dict())
    equal = []
    for size in (1, 2, 4):
        ids = torch.randint(32, (size, 3))
        for scaled in (False, True):
            found = ours.cached_decode(ids, scaled)
            with torch.no_grad():
                expected = theirs.decode(ids, scaled)
            equal.append(bool(torch.allclose(found, expected, atol=1e-5)) and torch.equal(ours.pool, theirs.pool))
    equal.append(torch.allclose(ours.cached_score(found[:2]), theirs.score(expected[:2])))
    stats = [ours.cached_decode.stats, ours.cached_score.stats]
    return {
        "equal": all(equal),
        "traces": sum(item.traces for item in stats),
        "misses": [reason for item in stats for reason in item.miss_reasons],
        "loads": [item.loads for item in stats],
    }


class Geared(nn.Module):
    """The kinds of gear specs: shared symbols, a range, padding, and a product with gears that cannot be."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        batch, length = gearcache.Symbol("batch", gears=[1, 2, 4]), gearcache.Symbol("length", gears=[3, 6])
        product = gearcache.CompilerConfig(backend="eager", strict=True)
        product.inference_config.dynamic_gears_merge_policy = "product"
        padding = gearcache.CompilerConfig(backend="eager", strict=True, on_miss="pad", pad_values={"x": 0.0})
        cache = gearcache.cache_compile
        self.shared = cache(self.weighted, config=CONFIG, gears={"x": {0: batch, 1: length}, "weight": {0: batch}})
        self.ranged = cache(self.plain, config=CONFIG, gears={"x": {0: gearcache.Symbol("rows", min=2, max=8)}})
        self.padded = cache(self.plain_too, config=padding, gears={"x": {0: [2, 4]}})
        self.tied = cache(self.both, config=product, gears={"x": {0: [2, 4]}, "y": {0: [2, 4]}})

    def weighted(self, x: Tensor, weight: Tensor) -> Tensor:
        return self.linear(x) * weight[:, None, None]

    def plain(self, x: Tensor) -> Tensor:
        return self.linear(x)

    def plain_too(self, x: Tensor) -> Tensor:
        return self.linear(x)

    def both(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


def geared() -> None:
    with torch.device("meta"):
        model = Geared()
        model.shared(torch.zeros(2, 3, 4), torch.zeros(2))
        model.ranged(torch.zeros(3, 4))
        model.padded(torch.zeros(3, 4))
        model.tied(torch.zeros(2, 4), torch.zeros(2, 4))
