"""The calls of the deployment, from shapes alone: for `gearcache prewarm deploy:build`, and for all checks."""

import torch
from model import Classifier


def build() -> None:
    """Call each cached method once for each kind of call."""
    with torch.device("meta"):
        model = Classifier()
        for method in (model.features, model.scores):
            method.warm(torch.empty(4, 64))
