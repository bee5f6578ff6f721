"""`attach` of a model that generates names what is made for it, once, and serves it all the same."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gearcache
from gearcache.attaching import generation_hint
from tests.support.language_models import language_model
from tests.support.relaunch import run_python
from tests.support.scenarios import strict_config

Told = Callable[[], list[str]]
SIZES: dict[str, Any] = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 1}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Told:
    """Classes of which a process that has said nothing yet says that there is `attach_generate`."""
    monkeypatch.setattr(generation_hint, "_warned", weakref.WeakKeyDictionary())
    return lambda: [
        record.message.split("`")[1]
        for record in caplog.records
        if "gearcache.integrations.transformers.attach_generate(model, batch=" in record.message
        and (record.name, record.levelname) == ("gearcache", "WARNING")
        and "\n" not in record.message
    ]


def llama() -> Any:
    pytest.importorskip("transformers")
    return language_model("llama", num_hidden_layers=1)


def test_a_model_that_generates_is_served_and_named(cache_dir: Path, told: Told) -> None:
    pytest.importorskip("transformers")
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
    assert told() == ["LlamaForCausalLM"]


def test_each_class_is_named_once(told: Told) -> None:
    made = llama()

    class Mine(type(made)):  # type: ignore[misc]
        pass

    for model in (made, llama(), Mine(made.config), Mine(made.config)):
        assert gearcache.attach(model).is_attached
    assert told() == ["LlamaForCausalLM", "Mine"]


@pytest.mark.parametrize("repeated", [True, "model.layers"])
def test_of_its_blocks_nothing_is_said(told: Told, repeated: Any) -> None:
    pytest.importorskip("transformers")
    assert gearcache.attach(language_model("llama", num_hidden_layers=2), repeated=repeated).is_attached
    assert told() == []


def test_to_who_takes_it_nothing_is_said(told: Told) -> None:
    model = llama()
    from gearcache.integrations.transformers import attach_generate

    assert attach_generate(model, batch=[1], prompt=[4], cache_length=8).is_attached
    assert told() == []


def _without_a_head() -> Any:
    return llama().model


def _of_both_directions() -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.BertModel(transformers.BertConfig(**SIZES, intermediate_size=48, num_attention_heads=4))


def _recurrent() -> Any:
    """Generates; `attach_generate` refuses it."""
    transformers = pytest.importorskip("transformers")
    return transformers.MambaForCausalLM(transformers.MambaConfig(**SIZES))


@pytest.mark.parametrize("make", [_without_a_head, _of_both_directions, _recurrent])
def test_models_for_which_it_is_not_made_are_attached_without_a_word(told: Told, make: Callable[[], Any]) -> None:
    assert gearcache.attach(make()).is_attached
    assert told() == []


def test_a_model_that_cannot_be_asked_is_attached_nevertheless(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> bool:
        raise RuntimeError("not now")

    model = llama()
    monkeypatch.setattr(model, "can_generate", fail)
    assert gearcache.attach(model).is_attached
    assert told() == []


def test_a_release_of_transformers_that_was_not_tried_is_sent_to_it_too() -> None:
    code = """
import json, sys, logging, gearcache
from tests.support.language_models import language_model
model = language_model("llama", num_hidden_layers=1)
sys.modules["transformers"].__version__ = "5.99.0"
said = []
logging.getLogger("gearcache").addFilter(lambda record: said.append(record.getMessage()) or True)
served = gearcache.attach(model)
print(json.dumps([said, served.is_attached]))
"""
    pytest.importorskip("transformers")
    said, is_attached = run_python(code)
    assert is_attached
    assert any("attach_generate" in line for line in said)


class Speaker(nn.Module):
    """Generates, and is none of transformers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def generate(self) -> None: ...

    def can_generate(self) -> bool:
        return True


def test_other_modules_are_attached_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    for module in (nn.Linear(4, 4), Speaker()):
        assert gearcache.attach(module).is_attached
    assert not caplog.messages


def test_no_library_is_imported_for_it() -> None:
    code = """
import json, sys, torch, gearcache
class Speaker(torch.nn.Linear):
    def generate(self): ...
gearcache.attach(Speaker(2, 2))
print(json.dumps([name for name in sys.modules if "transformers" in name]))
"""
    assert run_python(code) == []
