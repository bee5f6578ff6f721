"""`attach` of a model that generates names what is made for it, once."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest

import gearcache
from gearcache.attaching import generation_hint
from tests.support.language_models import language_model

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
