"""Run the UNet of a diffusers pipeline from graphs on disk: each resolution is a gear. Random weights.

    pip install 'gearcache[torch,diffusers]'
    python examples/attach_pipeline.py                      # compiles; started again, it traces nothing
    python examples/attach_pipeline.py --backend eager

Fails unless the images equal those of the plain pipeline.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from diffusers import DDIMPipeline, DDIMScheduler, UNet2DModel

import gearcache

SIDES = [8, 16]


def pipeline() -> Any:
    """Return a pipeline with a small UNet with attention; the weights are the same each time."""
    torch.manual_seed(0)
    network = UNet2DModel(
        sample_size=SIDES[0],
        layers_per_block=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=8,
    ).eval()
    made = DDIMPipeline(network, DDIMScheduler(num_train_timesteps=10))
    made.set_progress_bar_config(disable=True)
    return made


def images(made: Any, side: int) -> torch.Tensor:
    """Return an image (1, side, side, 3) of a fixed seed."""
    made.unet.register_to_config(sample_size=side)  # this pipeline reads the resolution from here
    generator = torch.Generator().manual_seed(3)
    return torch.as_tensor(made(generator=generator, num_inference_steps=2, output_type="np").images)


def main() -> None:
    """Make images plainly, attach, make them again, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("inductor", "eager"), default="inductor", help="eager: no compiler")
    parser.add_argument("--cache-dir", help="default: $TORCHAIR_CACHE_HOME, else ./.torchair_cache")
    options = parser.parse_args()
    made = pipeline()
    expected = [images(made, side) for side in SIDES]
    side = gearcache.Symbol("side", gears=SIDES)
    config = gearcache.CompilerConfig(backend=options.backend)
    attached = gearcache.attach(
        made.unet, gears={"sample": {2: side, 3: side}}, config=config, cache_dir=options.cache_dir
    )
    begin = time.perf_counter()
    found = [images(made, side) for side in SIDES]
    stats = attached.stats
    counts = f"{stats.traces} traces, {stats.compiles} compiled, {stats.loads} loaded"
    print(f"{time.perf_counter() - begin:.2f} s: {counts}")
    print(f"calls of graphs: {dict(stats.gears)}; by the model itself: {dict(stats.eager_reasons)}")
    difference = max(float((one - right).abs().max()) for one, right in zip(found, expected, strict=True))
    if difference > 1e-4 or stats.eager_calls:
        raise SystemExit(f"WRONG: the images differ by {difference:g}")
    print(f"The images equal those of the plain pipeline within {max(difference, 1e-7):.0e}.")


if __name__ == "__main__":
    main()
