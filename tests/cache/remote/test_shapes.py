"""Shapes in a tier: nobody loses another one's, what is read is checked, and there are never too many."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gearcache.cache.layout import Layout
from gearcache.cache.manifest import Manifest, decode_manifest, encode_manifest
from gearcache.cache.remote import shapes
from gearcache.cache.remote.names import SHAPES, parse_name
from gearcache.cache.remote.protocol import Deadline
from gearcache.cache.remote.shapes import MethodShapes, ProcessShapes, ShapesTier, decode_shapes, encode_shapes
from gearcache.cache.remote.tier import open_tiers
from gearcache.cache.remote.trust import Trust
from gearcache.cache.remote.urls import parse_urls
from gearcache.errors import CacheError, CorruptEntry, RemoteError
from tests.support.signing import Pair

MET = MethodShapes("Model.decode", (("ids", 0),), ((2,), (4,)), {(2,): 10, (3,): 5})
HOSTS = ("a" * 16, "b" * 16)


def shapes_in(folder: Path, root: Path, trust: Trust | None = None, *, unsigned: bool = True) -> ShapesTier:
    """The shapes in a folder."""
    folder.mkdir(exist_ok=True)
    url = f"folder:{folder}{'?unsigned=1' if unsigned else ''}"
    (tier,) = open_tiers(parse_urls([url], "test"), Layout(root))
    return ShapesTier(tier, trust or Trust())


@pytest.fixture
def tier(tmp_path: Path) -> ShapesTier:
    return shapes_in(tmp_path / "tier", tmp_path / "cache")


def soon() -> Deadline:
    return Deadline.after(20)


def told(host: str = HOSTS[0], process: int = 1, sequence: int = 1, created: float = 1e9) -> ProcessShapes:
    return ProcessShapes(host, f"{process:016x}", sequence, created, (MET,))


def test_hosts_and_processes_keep_their_own(tier: ShapesTier) -> None:
    sent = [told(host, process) for host in HOSTS for process in (1, 2)]
    names = [tier.send(each, "", soon()) for each in sent]
    assert sorted(names) == tier.names(soon())
    assert sorted(tier.latest(soon()), key=repr) == sorted(sent, key=repr)
    assert [parse_name(name) for name in names] == [None] * 4, "none is taken for an entry"


def test_what_a_process_tells_again_takes_the_place_of_what_it_told(tier: ShapesTier) -> None:
    first = tier.send(told(sequence=1), "", soon())
    later = tier.send(told(sequence=2), first, soon())
    assert tier.names(soon()) == [later]
    tier.send(told(sequence=1), "", soon())  # as if the first could not be removed
    assert [each.sequence for each in tier.latest(soon())] == [2]


def test_signatures_are_asked_for_as_of_manifests(tmp_path: Path) -> None:
    pair, other = Pair(tmp_path), Pair(tmp_path, "other")
    signing = shapes_in(tmp_path / "tier", tmp_path / "cache", pair.signs, unsigned=False)
    signing.send(told(), "", soon())
    assert [
        each.host for each in shapes_in(tmp_path / "tier", tmp_path / "b", pair.checks, unsigned=False).latest(soon())
    ]
    for trust in (other.checks, Trust()):
        stranger = shapes_in(tmp_path / "tier", tmp_path / "c", trust, unsigned=False)
        assert stranger.latest(soon()) == []
        assert ["is not trusted" in reason for reason in stranger.refused.values()] == [True]
    nobody = shapes_in(tmp_path / "tier", tmp_path / "d", unsigned=False)
    with pytest.raises(CacheError, match="shapes that nobody signed are refused there"):
        nobody.send(told(), "", soon())
    shapes_in(tmp_path / "tier", tmp_path / "e").send(told(process=2), "", soon())
    asking = shapes_in(tmp_path / "tier", tmp_path / "f", pair.checks, unsigned=False)
    assert len(asking.latest(soon())) == 1, "what nobody signed is refused"


def wrong_payloads() -> list[tuple[str, Any]]:
    """Payloads that no process writes."""
    _, data = encode_shapes(told(), Trust())
    right: Any = decode_manifest(data, Path("right")).payload
    found = []

    def add(name: str, change: Any) -> None:
        payload = copy.deepcopy(right)
        change(payload)
        found.append((name, payload))

    row = lambda payload: payload["methods"][0]  # noqa: E731
    add("another host", lambda p: p.update(host=HOSTS[1]))
    add("a host that leads elsewhere", lambda p: p.update(host="../../../../etc"))
    add("no sequence", lambda p: p.pop("sequence"))
    add("a sequence below 0", lambda p: p.update(sequence=-1))
    add("methods that are no list", lambda p: p.update(methods={"a": 1}))
    add("too many methods", lambda p: p.update(methods=p["methods"] * (shapes.MOST_METHODS + 1)))
    add("a method that is no map", lambda p: p.update(methods=[1]))
    add("a name that steers a terminal", lambda p: row(p).update(method="\x1b[2J"))
    add("a long name", lambda p: row(p).update(method="x" * 201))
    add("no name", lambda p: row(p).update(method=""))
    add("a dim that is a text", lambda p: row(p).update(dims=[["ids", "0"]]))
    add("a dim that is a bool", lambda p: row(p).update(dims=[["ids", True]]))
    add("too many dims", lambda p: row(p).update(dims=[["ids", 0]] * 17))
    add("a shape of other dims", lambda p: row(p).update(shapes=[[[1, 2], 3]]))
    add("a negative size", lambda p: row(p).update(shapes=[[[-1], 3]]))
    add("a huge size", lambda p: row(p).update(shapes=[[[1 << 41], 3]]))
    add("calls that are no number", lambda p: row(p).update(shapes=[[[1], 3.5]]))
    add("endless calls", lambda p: row(p).update(shapes=[[[1], 1 << 60]]))
    add("a shape without calls", lambda p: row(p).update(shapes=[[[1]]]))
    add("too many shapes", lambda p: row(p).update(shapes=[[[1], 1]] * (shapes.MOST_SHAPES + 1)))
    add("a gear of other dims", lambda p: row(p).update(gears=[[]]))
    add("no others", lambda p: row(p).pop("others"))
    return found


@pytest.mark.parametrize("name, payload", wrong_payloads())
def test_what_no_process_writes_is_refused(name: str, payload: Any, tier: ShapesTier) -> None:
    right_name, data = encode_shapes(told(), Trust())
    manifest = replace(decode_manifest(data, Path("right")), payload=payload)
    written = encode_manifest(manifest)
    place = right_name.rpartition("-")[0]
    with pytest.raises(CorruptEntry):
        decode_shapes(tier.tier, f"{place}-{shapes.sha256(written).hexdigest()}.msgpack", written, Trust())


def test_an_object_is_what_its_name_says(tier: ShapesTier) -> None:
    name, data = encode_shapes(told(), Trust())
    assert decode_shapes(tier.tier, name, data, Trust()) == told()
    elsewhere = name.replace(HOSTS[0], HOSTS[1])
    for wrong, text in ((f"{name[:-9]}0.msgpack", data), (elsewhere, data), (name, data + b"x"), (name, b"")):
        with pytest.raises(CorruptEntry):
            decode_shapes(tier.tier, wrong, text, Trust())
    entry = encode_manifest(Manifest("Model.decode-" + "0" * 64, "0" * 64, {}, {}, {}, 1.0, {**shapes._PRODUCER}))
    with pytest.raises(CorruptEntry, match="it holds no shapes"):
        decode_shapes(
            tier.tier, f"{SHAPES}{HOSTS[0]}/{1:016x}-{shapes.sha256(entry).hexdigest()}.msgpack", entry, Trust()
        )


def test_one_bad_object_does_not_hide_the_others(tier: ShapesTier, tmp_path: Path) -> None:
    tier.send(told(), "", soon())
    bad = tmp_path / "tier" / SHAPES / HOSTS[1]
    bad.mkdir()
    for number, data in enumerate((b"", b"\0" * (shapes.MAX_BYTES + 1), b"noise")):
        (bad / f"{number:016x}-{'0' * 64}.msgpack").write_bytes(data)
    (bad / "leads elsewhere.msgpack").write_bytes(b"x")
    assert tier.latest(soon()) == [told()]
    assert len(tier.refused) == 3


def test_a_tier_that_cannot_be_reached_is_told(tier: ShapesTier, tmp_path: Path) -> None:
    (tmp_path / "tier").rmdir()
    with pytest.raises(RemoteError):
        tier.latest(soon())


def test_of_one_host_the_oldest_go(tier: ShapesTier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "MOST_OF_HOST", 3)
    tier.send(told(HOSTS[1], 9, created=1.0), "", soon())
    for process in range(1, 6):
        assert tier.send(told(process=process, created=1e9 + process), "", soon())
    left = {(each.host, each.process) for each in tier.latest(soon())}
    assert left == {(HOSTS[1], f"{9:016x}"), *((HOSTS[0], f"{process:016x}") for process in (3, 4, 5))}


def test_a_full_tier_takes_no_more_processes(tier: ShapesTier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "MOST_OBJECTS", 2)
    first = tier.send(told(process=1), "", soon())
    assert tier.send(told(HOSTS[1], 2), "", soon())
    assert tier.send(told(process=3), "", soon()) == ""
    assert tier.send(told(process=1, sequence=2), first, soon()), "who has a place keeps it"
    assert len(tier.names(soon())) == 2


def test_what_is_old_is_removed(tier: ShapesTier) -> None:
    tier.send(told(process=1, created=100.0), "", soon())
    young = tier.send(told(process=2, created=200.0), "", soon())
    assert len(tier.prune(150.0, soon(), dry_run=True)) == 1
    assert len(tier.names(soon())) == 2
    assert len(tier.prune(150.0, soon(), dry_run=False)) == 1
    assert tier.names(soon()) == [young]


def test_rare_shapes_are_summed(tier: ShapesTier) -> None:
    many = {(size,): 1 + (size < 3) for size in range(shapes.MOST_SHAPES + 10)}
    tier.send(replace(told(), methods=(replace(MET, shapes=many),)), "", soon())
    ((method,),) = (each.methods for each in tier.latest(soon()))
    assert (len(method.shapes), method.others) == (shapes.MOST_SHAPES, 10)
    assert {(0,), (1,), (2,)} <= method.shapes.keys()


@pytest.mark.parametrize(
    "change",
    [
        {"dims": (("ids", 0),) * 17, "shapes": {}},
        {"dims": ()},
        {"dims": (("x" * 201, 0),)},
        {"method": "a\nb"},
        {"shapes": {(1 << 41,): 1}},
    ],
)
def test_what_others_would_refuse_is_not_told(change: dict[str, Any]) -> None:
    assert MET.is_tellable
    assert not replace(MET, **change).is_tellable
