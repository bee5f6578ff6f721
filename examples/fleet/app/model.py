"""The model of the deployment; builder, checks and server import it under this name, which is in the key."""

import torch

import gearcache

GEARS = [1, 2, 4, 8]


class Classifier(torch.nn.Module):
    """Computes features, and scores of 10 classes, for rows of 64 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU())
        self.head = torch.nn.Linear(128, 10)
        config = gearcache.CompilerConfig(
            target="x86-64-v3",  # all nodes have it; by default the key contains the CPU of the builder
            on_miss="pad",
            pad_values={"rows": 0.0},
        )
        self.features = gearcache.cache_compile(self.embed, gears={"rows": {0: GEARS}}, config=config)
        self.scores = gearcache.cache_compile(self.classify, gears={"rows": {0: GEARS}}, config=config)

    def embed(self, rows: torch.Tensor) -> torch.Tensor:
        """Return features [rows, 128] of rows [rows, 64]."""
        return self.body(rows)

    def classify(self, rows: torch.Tensor) -> torch.Tensor:
        """Return scores [rows, 10] of rows [rows, 64]."""
        return self.head(self.body(rows)).softmax(-1)
