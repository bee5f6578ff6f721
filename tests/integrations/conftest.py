"""Entries that tests of several files serve: a run makes them once, in whichever of its processes comes first."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache


@pytest.fixture(scope="session")
def mistral_entries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds the graphs of `language_model("mistral")` with `MISTRAL_SIZES`, made on `meta`."""
    from tests.support.language_models import MISTRAL_SIZES, language_model

    root = _root("mistral", tmp_path_factory)

    def build() -> None:
        with torch.device("meta"):
            _warm(language_model("mistral"), MISTRAL_SIZES, root)

    report = gearcache.prewarm(build)
    assert report.is_complete, report
    return root


@pytest.fixture(scope="session")
def t5_entries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds the graphs of `language_model("t5")` with `T5_SIZES`."""
    from tests.support.language_models import T5_SIZES, language_model

    root = _root("t5", tmp_path_factory)
    _warm(language_model("t5"), T5_SIZES, root)
    return root


def _root(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    # The processes of pytest-xdist have folders of their own in that of the run.
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"entries_of_{family}"


def _warm(model: Any, sizes: dict[str, Any], root: Path) -> None:
    from gearcache.integrations.transformers import attach_generate

    config = gearcache.CompilerConfig(backend="eager", strict=True)
    attach_generate(model, **sizes, config=config, cache_dir=root).warm()
