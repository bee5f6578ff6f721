"""`attach` of a model that generates names what is made for it, once, and serves it all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import gearcache
from gearcache.attaching import generation_hint
from tests.support.language_models import language_model
from tests.support.scenarios import strict_config


def test_a_model_that_generates_is_served_and_named(
    cache_dir: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(generation_hint, "_told", set())
    for launch in range(2):
        plain, model = (language_model("llama", num_hidden_layers=1) for _ in range(2))
        model.load_state_dict(plain.state_dict())
        served = gearcache.attach(model, config=strict_config())
        for rows, length in ((2, 5), (2, 7)):
            ids = torch.randint(3, 60, (rows, length), generator=torch.Generator().manual_seed(length))
            mask = torch.ones_like(ids)
            expected, found = (
                each.generate(ids, attention_mask=mask, max_new_tokens=6, do_sample=False) for each in (plain, model)
            )
            assert torch.equal(found, expected)
        assert served.stats.traces <= (0 if launch else 4), "a prompt and a step, static; then both dynamic"
        assert served.stats.eager_calls == 0
    assert [record.message.count("attach_generate(model") for record in caplog.records].count(1) == 1


def test_other_modules_are_attached_without_a_word(cache_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    served = gearcache.attach(torch.nn.Linear(4, 4), config=strict_config())
    assert not caplog.messages
    assert served.explain().endswith("call the module itself")
    served.module(torch.ones(2, 4))
    assert "call the module itself" not in served.explain()
