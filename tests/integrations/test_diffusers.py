"""A pipeline of diffusers whose network is attached gives the images of the plain one: resolutions are gears."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache

pytestmark = [
    pytest.mark.thorough,  # traces of a UNet take long; what `attach` does for a module is in tests/attaching
    pytest.mark.skipif(importlib.util.find_spec("diffusers") is None, reason="diffusers is not installed"),
]


def pipeline() -> Any:
    """A small UNet with random weights."""
    from diffusers import DDIMPipeline, DDIMScheduler, UNet2DModel

    torch.manual_seed(0)
    network = UNet2DModel(
        sample_size=8,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        attention_head_dim=8,
    ).eval()
    made = DDIMPipeline(network, DDIMScheduler(num_train_timesteps=10))
    made.set_progress_bar_config(disable=True)
    return made


def attached(made: Any, root: Any) -> Any:
    side = gearcache.Symbol("side", gears=[8, 16])
    return gearcache.attach(
        made.unet,
        gears={"sample": {2: side, 3: side}},
        config=gearcache.CompilerConfig(backend="eager", strict=True),
        cache_dir=root,
    )


def images(made: Any, size: int) -> Any:
    made.unet.register_to_config(sample_size=size)  # what the pipeline reads the resolution from
    generator = torch.Generator().manual_seed(3)
    return torch.as_tensor(made(batch_size=1, generator=generator, num_inference_steps=2, output_type="np").images)


def test_images_of_each_resolution_and_of_a_second_pipeline(tmp_path: Path) -> None:
    plain = pipeline()
    expected = [images(plain, size) for size in (8, 16)]
    for is_relaunched in (False, True):
        made = pipeline()
        served = attached(made, tmp_path)
        for size, image in zip((8, 16), expected, strict=True):
            torch.testing.assert_close(images(made, size), image, atol=1e-5, rtol=0)
        assert (served.stats.calls, served.stats.eager_calls, len(served.stats.gears)) == (4, 0, 2)
        assert (served.stats.traces == 0) == is_relaunched
