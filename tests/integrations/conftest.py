"""Entries that tests of several files serve, and who serves them: a run makes them once, in its first process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import gearcache

if TYPE_CHECKING:
    from gearcache.integrations.transformers import AttachedModel


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


@pytest.fixture
def attach(request: pytest.FixtureRequest) -> Callable[..., AttachedModel]:
    """Attach models as `attach_generate` does, a Mistral or a T5 with the sizes and the graphs of those above."""
    from tests.support.language_models import MISTRAL_SIZES, T5_SIZES, attach_generate

    def attached(model: Any, on_miss: str = "eager", **sizes: Any) -> AttachedModel:
        family = model.config.model_type
        root = request.getfixturevalue(f"{family}_entries" if family in ("mistral", "t5") else "tmp_path")
        given = {**(T5_SIZES if family == "t5" else MISTRAL_SIZES), **sizes}
        config = gearcache.CompilerConfig(backend="eager", strict=True, on_miss=on_miss)
        return attach_generate(model, **given, config=config, cache_dir=root)

    return attached


def _root(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    # The processes of pytest-xdist have folders of their own in that of the run.
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"entries_of_{family}"


def _warm(model: Any, sizes: dict[str, Any], root: Path) -> None:
    from gearcache.integrations.transformers import attach_generate

    config = gearcache.CompilerConfig(backend="eager", strict=True)
    attach_generate(model, **sizes, config=config, cache_dir=root).warm()
