"""Optional libraries are imported by the integration that is for them, and by nothing else."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from tests.support.relaunch import run_python


def test_gearcache_imports_no_optional_library() -> None:
    code = (
        "import json, sys, gearcache, gearcache.integrations; gearcache.cache_compile; gearcache.attach; "
        "print(json.dumps([name for name in ('transformers', 'tokenizers', 'safetensors') if name in sys.modules]))"
    )
    assert run_python(code) == []


VERSIONS = ["5.9.1", "5.99.0"]
LOST = {
    "name": "`cache_utils.get_layer_types_and_kwargs`",
    "parameter": "`query_length=` of `cache_utils.CacheLayerMixin.get_mask_sizes`",
    "duty": "a known `cache_utils.CacheLayerMixin.unknown`",
}
#: In a fork for each case gives transformers another release; prints what the integration logs and raises in all.
IMPORTED = """
import json, logging, os, sys, transformers
import transformers.cache_utils
import gearcache.integrations.transformers  # with all of transformers that it needs, which the forks then have
for name in [name for name in sys.modules if name.startswith("gearcache.integrations")]:
    del sys.modules[name]
found = []
for version, lost in json.loads(sys.argv[1]):
    result, report = os.pipe()
    if os.fork() == 0:
        break
    os.close(report)
    found.append(json.loads(os.fdopen(result).read()))
    os.wait()
else:
    print(json.dumps(found))
    sys.exit()
transformers.__version__ = version
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
os.write(report, json.dumps([said, logged]).encode())
os._exit(0)
"""


@pytest.fixture(scope="module")
def imported() -> dict[str, Any]:
    """What is said and logged, by the version or by what is lost."""
    pytest.importorskip("transformers")
    cases = [*((version, "nothing") for version in VERSIONS), *(("5.99.0", lost) for lost in LOST)]
    return dict(zip([*VERSIONS, *LOST], run_python(IMPORTED, json.dumps(cases)), strict=True))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transformers_that_was_not_tried_is_used_with_one_warning(imported: dict[str, Any], version: str) -> None:
    said, ((level, logger, text),) = imported[version]
    assert (said, level, logger) == ("", "WARNING", "gearcache")
    assert "was tried with transformers 5.20, 5.22, 5.23, 5.24, this is " + version in text


@pytest.mark.parametrize(("lost", "name"), LOST.items())
def test_what_transformers_lacks_is_named(imported: dict[str, Any], lost: str, name: str) -> None:
    said, logged = imported[lost]
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
