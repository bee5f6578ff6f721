"""The features of a random module: each adds lines to a builder, and edits that may affect them."""

from __future__ import annotations

import random
from collections.abc import Callable

from benchmarks.fuzz.builder import Builder

Feature = Callable[[Builder], None]

_features: dict[str, tuple[Feature, float]] = {}


def feature(label: str, weight: float = 1.0) -> Callable[[Feature], Feature]:
    """Register a feature; the label begins with the section of the list of classes in `docs/fuzzing.md`."""

    def register(function: Feature) -> Feature:
        _features[label] = (function, weight)
        return function

    return register


def draw(chance: random.Random) -> tuple[str, Feature]:
    """Return one feature with its label."""
    labels = list(_features)
    label = chance.choices(labels, [_features[label][1] for label in labels])[0]
    return label, _features[label][0]


def all_features() -> dict[str, Feature]:
    """Return every feature by label."""
    return {label: function for label, (function, _) in _features.items()}
