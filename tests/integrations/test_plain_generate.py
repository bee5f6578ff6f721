"""`generate` of a model of transformers through plain `attach`: a prompt and its steps take three traces."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import gearcache
from tests.support.language_models import language_model, needs_transformers
from tests.support.scenarios import strict_config

#: Thorough: `test_generate` has the graphs of `attach_generate`, and scenarios of `attached` have plain `attach`.
pytestmark = [pytest.mark.slow, pytest.mark.thorough, needs_transformers]


def test_generated_texts_are_those_of_the_plain_model(cache_dir: Path) -> None:
    for launch in range(2):
        plain, model = (language_model("llama", num_hidden_layers=1) for _ in range(2))
        served = gearcache.attach(model, config=strict_config())
        for rows, length in [(2, 5), (2, 9)][:: -1 if launch else 1]:  # relaunched, the second request comes first
            ids = torch.randint(3, 90, (rows, length), generator=torch.Generator().manual_seed(length))
            mask = torch.ones_like(ids)
            expected, found = (
                each.generate(ids, attention_mask=mask, max_new_tokens=7, do_sample=False) for each in (plain, model)
            )
            assert torch.equal(found, expected)
            if not launch:
                assert served.stats.traces <= (3 if length == 5 else 4), served.explain()
        assert served.stats.eager_calls == 0
        assert launch == 0 or served.stats.traces == 0, served.explain()
