"""The stored form of evidence and of the variants of an entry: equal parts once, and no two different ones as one."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch
from msgspec import msgpack

from gearcache.guards.access import Access, Scope
from gearcache.guards.dispatch.stored.packed_entry import entry_from_plain, entry_to_plain
from gearcache.guards.dispatch.stored.variant import StoredGear, StoredInput, StoredVariant
from gearcache.guards.evidence.checks import observe
from gearcache.guards.evidence.tree import evidence_failure, evidence_tree

MODEL = Access(("argument", "self"))


def layers(*scales: Any) -> Scope:
    model = types.SimpleNamespace(layers=[types.SimpleNamespace(scale=scale, bias=None) for scale in scales])
    return Scope({"self": model}, {})


def tree_of(scope: Scope) -> Any:
    checks = []
    for index, layer in enumerate(scope.arguments["self"].layers):
        access = MODEL.then("attr", "layers").then("item", index)
        for name in ("scale", "bias"):
            checks.append(observe("constant", access.then("attr", name), getattr(layer, name)))
    return msgpack.decode(msgpack.encode(evidence_tree(checks)))


@pytest.mark.parametrize("changed", [0, 1, 2])
def test_a_change_below_a_shared_node_names_its_own_path(changed: int) -> None:
    tree = tree_of(layers(2, 2, 2))
    assert evidence_failure(tree, layers(2, 2, 2)) is None
    scales: list[Any] = [2, 2, 2]
    scales[changed] = 2.0
    failure = evidence_failure(tree, layers(*scales))
    assert failure is not None
    assert f"layers[{changed}].scale" in str(failure)


def test_true_and_1_are_never_one_node() -> None:
    tree = tree_of(layers(1, True))
    assert evidence_failure(tree, layers(1, True)) is None
    assert evidence_failure(tree, layers(1, 1)) is not None
    assert evidence_failure(tree, layers(True, True)) is not None


def variant(argument: Any) -> StoredVariant:
    inputs = [StoredInput(Access(("argument", "x"), (("item", argument),)), torch.float32, "cpu")]
    frame = {"co_names": ["graph"]}
    gear = StoredGear("", [[None]], [[None]], [], {}, {})
    return StoredVariant(frame, {}, "graph", inputs, {}, [], [[], []], {"files": [], "functions": []}, [gear])


def test_equal_parts_of_variants_become_one_object_and_others_stay_apart() -> None:
    plain = msgpack.decode(msgpack.encode(entry_to_plain([variant(1), variant(1), variant(True)])))
    first, second, third = entry_from_plain(plain)
    assert first.inputs is second.inputs
    assert first.evidence is third.evidence
    assert [type(each.inputs[0].access.steps[0][1]) for each in (first, third)] == [int, bool]
