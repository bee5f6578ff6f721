"""Entries that tests of several files serve: a run makes them once, in whichever of its processes comes first."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import gearcache


@pytest.fixture(scope="session")
def t5_entries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds the graphs of `language_model("t5")` with `T5_SIZES`."""
    from tests.support.language_models import T5_SIZES

    return _made("t5", T5_SIZES, tmp_path_factory)


@pytest.fixture(scope="session")
def llama_entries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds the graphs of `language_model("llama")` with `LLAMA_SIZES`."""
    from tests.support.language_models import LLAMA_SIZES

    return _made("llama", LLAMA_SIZES, tmp_path_factory)


def _made(family: str, sizes: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    from gearcache.integrations.transformers import attach_generate
    from tests.support.language_models import language_model

    base = tmp_path_factory.getbasetemp()
    # The processes of pytest-xdist have folders of their own in that of the run.
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"entries_of_{family}"
    config = gearcache.CompilerConfig(backend="eager", strict=True)
    attach_generate(language_model(family), **sizes, config=config, cache_dir=root).warm()
    return root
