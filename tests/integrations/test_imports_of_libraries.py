"""Optional libraries are imported by the integration that is for them, and by nothing else."""

from __future__ import annotations

import importlib
import logging

import pytest

from tests.support.relaunch import run_python


def test_gearcache_imports_no_optional_library() -> None:
    code = """
import json, sys, torch, gearcache, gearcache.integrations
class Speaker(torch.nn.Linear):
    def generate(self): ...
gearcache.cache_compile
gearcache.attach(Speaker(2, 2))
print(json.dumps([name for name in ("transformers", "tokenizers", "safetensors") if name in sys.modules]))
"""
    assert run_python(code) == []


def import_anew() -> None:
    pytest.importorskip("transformers")
    importlib.reload(importlib.import_module("gearcache.integrations.transformers"))


@pytest.mark.parametrize("version", ["5.9.1", "5.99.0"])
def test_a_transformers_that_was_not_tried_is_used_with_one_warning(
    version: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import_anew()
    monkeypatch.setattr("transformers.__version__", version)
    caplog.clear()
    for _ in range(2):
        import_anew()
    ((logger, level, text),) = caplog.record_tuples
    assert (logger, level) == ("gearcache", logging.WARNING)
    assert "was tried with transformers 5.20, 5.22, 5.23, 5.24, this is " + version in text


def test_what_transformers_lacks_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    import_anew()
    mixin = "transformers.cache_utils.CacheLayerMixin"
    caplog.clear()
    with monkeypatch.context() as patch:
        patch.setattr("transformers.__version__", "5.99.1")
        patch.delattr("transformers.cache_utils.get_layer_types_and_kwargs")
        patch.setattr(f"{mixin}.get_mask_sizes", lambda self, other: (1, 0))
        patch.setattr(f"{mixin}.__abstractmethods__", frozenset(["unknown"]))
        with pytest.raises(ImportError, match=r"this is 5\.99\.1, which lacks") as caught:
            import_anew()
    for name in (
        "`cache_utils.get_layer_types_and_kwargs`",
        "`query_length=` of `cache_utils.CacheLayerMixin.get_mask_sizes`",
        "a known `cache_utils.CacheLayerMixin.unknown`",
        "`pip install 'gearcache[transformers]'`",
    ):
        assert name in str(caught.value)
    assert caplog.records == []
