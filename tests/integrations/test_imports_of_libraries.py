"""Optional libraries are imported by the integration that is for them, and by nothing else."""

from __future__ import annotations

from tests.support.relaunch import run_python


def test_gearcache_imports_no_optional_library() -> None:
    code = (
        "import json, sys, gearcache, gearcache.integrations; gearcache.cache_compile; gearcache.attach; "
        "print(json.dumps([name for name in ('transformers', 'tokenizers', 'safetensors') if name in sys.modules]))"
    )
    assert run_python(code) == []
