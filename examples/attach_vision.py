"""Run the forward of a timm model with random weights from graphs on disk: each batch size is a gear.

    pip install 'gearcache[torch,timm]'                     # timm imports torchvision, which must fit torch
    python examples/attach_vision.py                        # compiles; started again, it traces nothing
    python examples/attach_vision.py --model vit_tiny_patch16_224 --backend eager

Fails unless the scores equal those of the plain model.
"""

from __future__ import annotations

import argparse
import time

import timm
import torch

import gearcache


def main() -> None:
    """Score images plainly, attach, score them again, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet10t", help="a name that timm knows (default: resnet10t)")
    parser.add_argument("--backend", choices=("inductor", "eager"), default="inductor", help="eager: no compiler")
    parser.add_argument("--cache-dir", help="default: $TORCHAIR_CACHE_HOME, else ./.torchair_cache")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = timm.create_model(options.model).eval()
    batches = [torch.randn(size, *model.default_cfg["input_size"]) for size in (1, 4)]
    with torch.inference_mode():
        expected = [model(batch) for batch in batches]
        config = gearcache.CompilerConfig(backend=options.backend)
        attached = gearcache.attach(model, gears={"x": {0: [1, 4]}}, config=config, cache_dir=options.cache_dir)
        begin = time.perf_counter()
        found = [model(batch) for batch in batches]
    stats = attached.stats
    counts = f"{stats.traces} traces, {stats.compiles} compiled, {stats.loads} loaded"
    print(f"{time.perf_counter() - begin:.2f} s: {counts}")
    difference = max(float((one - right).abs().max()) for one, right in zip(found, expected, strict=True))
    if difference > 1e-4 or stats.eager_calls:
        raise SystemExit(f"WRONG: the scores differ by {difference:g}")
    print(f"The scores equal those of the plain model within {max(difference, 1e-7):.0e}.")


if __name__ == "__main__":
    main()
