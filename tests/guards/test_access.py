"""Access paths: walked, printed and stored alike."""

from __future__ import annotations

from types import CellType, SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec import msgpack

from gearcache.guards.access import Access, Scope, Walker

OBJECT = SimpleNamespace(items=[1, {"k": 2, 3: "three"}], cell=CellType(5))
SCOPE = Scope({"x": OBJECT}, {"G": [7]}, {"c": CellType("closed")})
X = Access(("argument", "x"))

PATHS: list[tuple[Access, Any, str]] = [
    (X.then("attr", "items").then("list_item", 1).then("dict_item", "k"), 2, "x.items[1]['k']"),
    (X.then("attr", "items").then("item", 1).then("nth_key", 1), 3, "nth_key(x.items[1], 1)"),
    (X.then("attr", "items").then("item", 1).then("nth_value", 1), "three", "nth_value(x.items[1], 1)"),
    (X.then("attr", "cell").then("attr", "cell_contents"), 5, "x.cell.cell_contents"),
    (Access(("global", "G")).then("item", 0), 7, "G[0]"),
    (Access(("closure", "c")), "closed", "c"),
    (Access(("module", "torch.nn")), torch.nn, "torch.nn"),
    (Access(("builtins", "")).then("item", "len"), len, "builtins['len']"),
]


@pytest.mark.parametrize(("access", "value", "text"), PATHS, ids=[text for _, _, text in PATHS])
def test_a_path_is_walked_and_printed(access: Access, value: Any, text: str) -> None:
    again = Access.from_plain(msgpack.decode(msgpack.encode(access.to_plain())))
    assert again == access
    assert hash(again) == hash(access)
    assert access.text == text
    assert access.resolve(SCOPE) is value
    assert Walker(SCOPE).resolve(again) is value


def tensor_path(*names: Any, root: tuple[str, str] = ("argument", "self"), dictionary: str = "_parameters") -> Access:
    path = Access(root)
    for name in names[:-1]:
        path = path.then("attr", "_modules").then("item", name)
    return path.then("attr", dictionary).then("item", names[-1])


@pytest.mark.parametrize(
    ("access", "plain"),
    [
        (tensor_path("layers", "0", "q", "weight"), "argument self _parameters layers.0.q.weight"),
        (tensor_path("norm", "mean", dictionary="_buffers"), "argument self _buffers norm.mean"),
        (tensor_path("a.b", "c"), None),
        (tensor_path("a", 0), None),
        (tensor_path("a", root=("argument", "b _parameters c")), None),
        (X.then("attr", "_parameters").then("dict_item", "w"), None),
    ],
)
def test_the_path_of_a_tensor_of_a_module_is_one_text(access: Access, plain: str | None) -> None:
    found = msgpack.decode(msgpack.encode(access.to_plain()))
    assert found == plain if plain is not None else isinstance(found, list)
    again = Access.from_plain(found)
    assert again == access
    assert repr(again) == repr(access)


def test_what_is_no_path_is_refused() -> None:
    for text in ("", "argument self", "argument self _modules a", "argument self __dict__ a"):
        with pytest.raises(ValueError, match=r"unpack|unknown dictionary"):
            Access.from_plain(text)
    with pytest.raises(ValueError, match="unknown access step 'eval'"):
        Access.from_plain([["argument", "x"], [["eval", "1"]]])
