"""Optional libraries are imported by the integration that is for them, and by nothing else."""

from __future__ import annotations

import importlib

import pytest

from tests.support.relaunch import run_python


def test_gearcache_imports_no_optional_library() -> None:
    code = (
        "import json, sys, gearcache, gearcache.integrations; gearcache.cache_compile; gearcache.attach; "
        "print(json.dumps([name for name in ('transformers', 'tokenizers', 'safetensors') if name in sys.modules]))"
    )
    assert run_python(code) == []


@pytest.mark.parametrize("version", ["5.9.1", "5.24.0"])
def test_another_transformers_is_refused_by_its_version(version: str) -> None:
    pytest.importorskip("transformers")
    code = f"""
import json, transformers
transformers.__version__ = "{version}"
try:
    import gearcache.integrations.transformers
except ImportError as error:
    print(json.dumps(str(error)))
"""
    assert f"works with transformers 5.23, this is {version}" in run_python(code)


@pytest.mark.parametrize(
    ("library", "name"), [("transformers", "attach_generate"), ("sentence_transformers", "attach_encode")]
)
def test_the_first_name_of_an_integration_is_the_same_function(library: str, name: str) -> None:
    pytest.importorskip(library)
    integration = importlib.import_module(f"gearcache.integrations.{library}")
    assert integration.attach is getattr(integration, name)
    assert integration.attach.__name__ == name
