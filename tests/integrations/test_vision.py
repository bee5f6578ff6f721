"""Models of torchvision and timm, attached: batches are gears. Skipped where torchvision does not fit torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

try:
    import timm
    import torchvision
except (ImportError, RuntimeError) as error:  # RuntimeError: a torchvision for CUDA beside a torch without
    pytest.skip(f"timm or torchvision: {error}", allow_module_level=True)

import gearcache


def model(name: str) -> Any:
    torch.manual_seed(0)
    if name == "vision transformer":
        return torchvision.models.VisionTransformer(64, 16, 2, 2, 32, 64).eval()
    if name == "resnet18":
        return torchvision.models.resnet18().eval()
    options = {"img_size": 64, "depth": 2} if name.startswith("vit") else {}
    return timm.create_model(name, **options).eval()


@pytest.mark.parametrize(
    "name", ["resnet18", "vision transformer", "resnet10t", "vit_tiny_patch16_224", "convnext_atto"]
)
def test_batches_and_a_binding_that_traces_nothing(tmp_path: Path, name: str) -> None:
    images = [torch.randn(size, 3, 64, 64) for size in (1, 4)]
    with torch.inference_mode():
        expected = [model(name)(image) for image in images]
        for traces in (2, 0):
            made = model(name)
            config = gearcache.CompilerConfig(backend="eager", strict=True)
            served = gearcache.attach(made, gears={"x": {0: [1, 4]}}, config=config, cache_dir=tmp_path)
            for image, wanted in zip(images, expected, strict=True):
                torch.testing.assert_close(made(image), wanted, atol=1e-5, rtol=0)
            assert (served.stats.calls, served.stats.eager_calls) == (2, 0)
            assert (served.stats.traces == 0) == (traces == 0)
