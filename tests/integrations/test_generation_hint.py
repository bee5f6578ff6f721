"""`attach` of a model that generates names what is made for it, once."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

import gearcache
from gearcache.attaching import generation_hint
from tests.support.language_models import language_model
from tests.support.relaunch import run_python

Told = Callable[[], list[str]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Told:
    """Classes of which a process that has said nothing yet says that there is `attach_generate`."""
    monkeypatch.setattr(generation_hint, "_warned", weakref.WeakKeyDictionary())
    return lambda: [
        record.message.split("`")[1]
        for record in caplog.records
        if "gearcache.integrations.transformers.attach_generate(model, batch=" in record.message
        and (record.name, record.levelname) == ("gearcache", "WARNING")
    ]


def llama() -> Any:
    pytest.importorskip("transformers")
    return language_model("llama", num_hidden_layers=2)


def test_each_class_is_named_once(told: Told) -> None:
    made = llama()

    class Mine(type(made)):  # type: ignore[misc]
        pass

    for model in (made, llama(), Mine(made.config), Mine(made.config)):
        assert gearcache.attach(model).is_attached
    assert told() == ["LlamaForCausalLM", "Mine"]


class Speaker(nn.Module):
    """Generates, and is none of transformers."""

    def generate(self) -> None: ...

    def can_generate(self) -> bool:
        return True

    def forward(self, x: Any) -> Any:
        return x


def test_where_it_is_of_no_use_nothing_is_said(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> bool:
        raise RuntimeError("not now")

    model, silent = llama(), llama()
    from transformers import MambaConfig, MambaForCausalLM

    from gearcache.integrations.transformers import attach_generate

    monkeypatch.setattr(silent, "can_generate", fail)
    recurrent = MambaForCausalLM(MambaConfig(vocab_size=97, hidden_size=32, num_hidden_layers=1))
    for other in (silent, model.model, recurrent, Speaker(), nn.Linear(4, 4)):
        assert gearcache.attach(other).is_attached
    assert gearcache.attach(llama(), repeated=True).is_attached
    assert attach_generate(model, batch=[1], prompt=[4], cache_length=8).is_attached
    assert told() == []


def test_no_library_is_imported_for_it() -> None:
    code = """
import json, sys, torch, gearcache
class Speaker(torch.nn.Linear):
    def generate(self): ...
gearcache.attach(Speaker(2, 2))
print(json.dumps([name for name in sys.modules if "transformers" in name]))
"""
    assert run_python(code) == []
