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


#: Gives transformers another release, and prints what the integration logs and raises.
IMPORTED = """
import json, logging, sys, transformers
import transformers.cache_utils
transformers.__version__, lost = sys.argv[1:]
if lost == "name": del transformers.cache_utils.get_layer_types_and_kwargs
if lost == "parameter": transformers.cache_utils.CacheLayerMixin.get_mask_sizes = lambda self, other: (1, 0)
if lost == "duty": transformers.cache_utils.CacheLayerMixin.__abstractmethods__ |= {"unknown"}
logged = []
class Keep(logging.Handler):
    def emit(self, record): logged.append((record.levelname, record.name, record.getMessage()))
logging.getLogger().addHandler(Keep())
said = ""
try:
    import gearcache.integrations.transformers
except ImportError as error:
    said = str(error)
print(json.dumps([said, logged]))
"""


@pytest.mark.parametrize("version", ["5.9.1", "5.99.0"])
def test_a_transformers_that_was_not_tried_is_used_with_one_warning(version: str) -> None:
    pytest.importorskip("transformers")
    said, ((level, logger, text),) = run_python(IMPORTED, version, "nothing")
    assert (said, level, logger) == ("", "WARNING", "gearcache")
    assert "was tried with transformers 5.22, 5.23, 5.24, this is " + version in text


@pytest.mark.parametrize(
    ("lost", "name"),
    [
        ("name", "`cache_utils.get_layer_types_and_kwargs`"),
        ("parameter", "`query_length=` of `cache_utils.CacheLayerMixin.get_mask_sizes`"),
        ("duty", "a known `cache_utils.CacheLayerMixin.unknown`"),
    ],
)
def test_what_transformers_lacks_is_named(lost: str, name: str) -> None:
    pytest.importorskip("transformers")
    said, logged = run_python(IMPORTED, "5.99.0", lost)
    assert f"this is 5.99.0, which lacks {name}: `pip install 'gearcache[transformers]'`" in said
    assert logged == []


@pytest.mark.parametrize(
    ("library", "name"), [("transformers", "attach_generate"), ("sentence_transformers", "attach_encode")]
)
def test_the_first_name_of_an_integration_is_the_same_function(library: str, name: str) -> None:
    pytest.importorskip(library)
    integration = importlib.import_module(f"gearcache.integrations.{library}")
    assert integration.attach is getattr(integration, name)
    assert integration.attach.__name__ == name
