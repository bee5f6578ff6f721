"""Keys: equal for equal components, and the first difference between two of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearcache.cache.keys import key as key_module
from gearcache.cache.keys.encoding import encode
from gearcache.cache.keys.key import CacheKey, Difference, Missing, first_difference
from tests.support.sampled import examples

GOLDEN = CacheKey(
    "Model.decode",
    (
        ("method", {"name": "decode", "code": b"\x01\x02"}),
        ("module", (("weight", (2, 3), "float32", True), ("bias", None))),
        ("config", {"mode": "max", "epsilon": 1e-6, "level": -1, "big": 1 << 80}),
    ),
)


def test_the_digest_is_golden_for_format_7() -> None:
    """A change here needs a new FORMAT_VERSION: every stored entry is lost to its users."""
    assert key_module.FORMAT_VERSION == 7
    assert GOLDEN.digest == "a86649a7fd39eb3702d1a65d1560099501c89ab657e3a260a91203ed2e7f3154"


def test_the_label_is_in_the_name_but_not_in_the_digest() -> None:
    left, right = CacheKey("A.run", ()), CacheKey("B.run", ())
    assert left.digest == right.digest
    assert left != right
    assert left != "A.run"
    assert left.name == f"A.run-{left.digest}"


@pytest.mark.parametrize(
    "label, safe",
    [
        pytest.param("Model.decode", "Model.decode", id="plain"),
        pytest.param("make.<locals>.Model.run", "make._locals_.Model.run", id="local class"),
        pytest.param("../../etc", "_.._etc", id="no way out"),
        pytest.param("A" * 90 + ".run", "A" * 76 + ".run", id="long ones keep the method"),
    ],
)
def test_labels_become_safe_file_names(label: str, safe: str) -> None:
    key = CacheKey(label, ())
    assert key.name == f"{safe}-{key.digest}"


@pytest.mark.parametrize(
    "wanted, stored, path, left, right",
    [
        pytest.param({"a": 1, "b": [0, 1]}, {"a": 1, "b": [0, 2]}, "b.1", 1, 2, id="nested"),
        pytest.param(
            {"parameters": [{"dtype": "float32"}, {"dtype": "float32"}]},
            {"parameters": [{"dtype": "float32"}, {"dtype": "float16"}]},
            "parameters.1.dtype",
            "float32",
            "float16",
            id="parameter",
        ),
        pytest.param([1], [1, 2], "1", Missing.MISSING, 2, id="longer"),
        pytest.param({"a": None}, {}, "a", None, Missing.MISSING, id="none is not missing"),
    ],
)
def test_the_first_differing_leaf_is_named(
    wanted: object, stored: object, path: str, left: object, right: object
) -> None:
    found = first_difference({"same": 1, "c": wanted}, {"same": 1, "c": stored})  # type: ignore[dict-item]
    assert found == Difference("c", path, left, right)  # type: ignore[arg-type]


LEAVES = st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from(["a", "", 0.0, 1.0])
PLAIN = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


@settings(max_examples=examples(60))
@given(PLAIN, PLAIN)
def test_a_difference_is_found_exactly_where_the_encodings_differ(left: object, right: object) -> None:
    found = first_difference({"c": left}, {"c": right})  # type: ignore[dict-item]
    assert (found is None) == (encode("c", left) == encode("c", right))  # type: ignore[arg-type]
    if found is not None and Missing.MISSING not in (found.wanted, found.stored):
        assert encode("c", found.wanted) != encode("c", found.stored)  # type: ignore[arg-type]
