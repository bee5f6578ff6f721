"""Manifests with a right sha256 and odd values at any place: each is one damaged entry, or is shown as it is."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec import msgpack

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.health import check_health
from gearcache.cache.admin.verify import verify
from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.limits import Limits
from gearcache.cache.result import Hit, Miss, MissReason
from gearcache.cache.store import DiskStore
from gearcache.cli import main
from gearcache.errors import CacheError
from gearcache.readable.entry import readable_cache
from tests.cache.test_manifest import framed
from tests.support.commands import DECODE, PRODUCER, store
from tests.support.recorded import gear as recorded_gear

ODD: list[Any] = [
    float("-inf"),
    float("nan"),
    1e300,
    -1,
    (1 << 64) - 1,
    True,
    None,
    "",
    "\x1b]0;title\x07\x1b[2J",
    "line\nimported 3 entries",
    "x" * 5000,
    b"\xff\x00",
    [],
    {},
    {"a": {"b": [float("nan")]}},
]
DEEP: Any = "leaf"
for _ in range(45):
    DEEP = [DEEP]
ODD.append(DEEP)
BLOB = b"code"


def key(number: int) -> CacheKey:
    return CacheKey("Model.odd", (("number", number),))


def sound(wanted: CacheKey) -> dict[str, Any]:
    """The fields of a manifest whose variant has all that the commands read."""
    digest = sha256(BLOB).hexdigest()
    gear = recorded_gear("x=1", 1.5, digest, {"sizes": [[1, 4]], "conditions": ["a"]})
    variant = {"inputs": 0, "attributes": 1, "call_checks": 2, "evidence": 3, "sources": 4}
    return {
        "name": wanted.name,
        "key_digest": wanted.digest,
        "components": {**wanted.lowered(), "versions": {"python": "3.11.7", "torch": "2.13.0"}},
        "payload": {
            "method": "Model.odd",
            "parts": [
                [[[["argument", "x"], []], "float32", "cpu", True]],
                [["weight", [["argument", "self"], [["attr", "weight"]]]]],
                [["type", [["argument", "x"], []], "int"]],
                [[[[["type", "M"]], []]], [["argument", "self", 0]]],
                {"files": [["module", "ab"]]},
            ],
            "variants": [{**variant, "frame": {"co_name": "f"}, "gears": [gear]}],
        },
        "blobs": {digest: len(BLOB)},
        "created": 1.7e9,
        "producer": {**PRODUCER, "folders": False},
    }


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all nodes below a value, and of the value itself."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield from leaves(item, (*path, name))


def changed(fields: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy with another value at one place."""
    made: Any = copy.deepcopy(fields)
    node = made
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    return made  # type: ignore[no-any-return]


def cases() -> list[tuple[CacheKey, tuple[Any, ...], bytes]]:
    """Odd values at every node of a sound manifest, each under a key of its own; and names that are odd."""
    made = []
    for turn, path in enumerate(leaves(sound(key(0)))):
        # Of the large parts that commands only show, each node gets every eighth value, or with THOROUGH every third.
        step = 3 if os.environ.get("THOROUGH") else 8
        for value in ODD if path[0] not in ("payload", "components") else ODD[turn % step :: step]:
            wanted = key(len(made))
            made.append((wanted, path, framed(msgpack.encode(changed(sound(wanted), path, value)))))
    for name in ("\x1b[2J", "", "a\nb", "../x"):
        wanted = key(len(made))
        fields = sound(wanted)
        fields["producer"] = {name: 1, **fields["producer"]}
        fields["components"] = {name: {name: 1}, **fields["components"]}
        made.append((wanted, ("names",), framed(msgpack.encode(fields))))
    return made


CASES = cases()


def write(layout: Layout, wanted: CacheKey, data: bytes) -> Path:
    """Put a manifest into its place."""
    manifest = layout.manifest(wanted)
    manifest.parent.mkdir(parents=True, mode=0o700)
    manifest.write_bytes(data)
    manifest.chmod(0o600)
    return manifest


def run(*arguments: str) -> Result:
    """Run a command, which may find what is wrong but not fall over it; all it prints is harmless text."""
    result = CliRunner().invoke(main, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.output.replace("\n", "").isprintable(), arguments
    if "--json" in arguments and result.exit_code in (0, 1, 4):
        json.loads(result.stdout, parse_constant=refuse)
    return result


def refuse(text: str) -> None:
    raise AssertionError(f"`{text}` is no JSON")


@pytest.mark.slow
def test_odd_manifests_are_listed_stepped_over_and_repaired(cache_dir: Path) -> None:
    store(cache_dir, DECODE, BLOB)
    layout = Layout(cache_dir)
    cases = CASES if os.environ.get("THOROUGH") else CASES[::5]
    for wanted, _, data in cases:
        write(layout, wanted, data)
    catalog = Catalog(layout)
    readable = {entry.digest for entry in catalog.entries()}
    damaged = {fault.path for fault in catalog.damaged()}
    assert DECODE.digest in readable
    assert len(readable) + len(damaged) == len(cases) + 1
    assert min(len(readable), len(damaged)) > 30, "the test must meet both"
    for arguments in (
        ("list", "--json"),
        ("list", "--sort", "size"),
        ("stats",),
        ("stats", "--json"),
        ("verify",),
        ("verify", "--json"),
        ("prune", "--older-than", "5000w", "--max-size", "1TB", "--json"),
        ("clear", "--older-than", "5000w"),
        ("clear", "--all", "--dry-run", "--json"),
        ("pack", "--file", str(layout.root.parent / "bundle.tar")),
        ("show", DECODE.digest, "--json"),
        ("explain", "Model.decode"),
    ):
        result = run(*arguments)
        if "pack" not in arguments and "explain" not in arguments and "show" not in arguments:
            told = result.stderr if "verify" not in arguments else result.stdout
            assert all(path.parent.name in told for path in damaged), arguments
    assert {check.name: check.ok for check in check_health(layout)}["entries"] is False
    DiskStore(layout, limits=Limits(max_size=1 << 60, max_age=1e15)).keep_limits(DECODE)
    assert len(Catalog(layout).entries()) == len(readable)
    assert run("verify", "--repair").exit_code == 0
    assert not any(path.exists() for path in damaged)
    assert verify(layout).is_sound
    of_another_size = {wanted.digest for wanted, path, _ in cases if path[0] == "blobs"}
    assert readable - {entry.digest for entry in Catalog(layout).entries()} <= of_another_size


def test_each_odd_manifest_is_shown_compared_and_looked_up(cache_dir: Path) -> None:
    """One after the other, so that each is the nearest of its method."""
    layout = Layout(cache_dir)
    store(cache_dir, DECODE, BLOB)
    readable = 0
    cases = CASES if os.environ.get("THOROUGH") else CASES[::3]
    for number, (wanted, path, data) in enumerate(cases):
        manifest = write(layout, wanted, data)
        missed = DiskStore(layout).lookup(CacheKey("Model.odd", (("other", 1),)))
        assert isinstance(missed, Miss), path
        assert missed.reason is MissReason.ABSENT
        assert missed.detail.isprintable()
        found = DiskStore(layout).lookup(wanted)
        if isinstance(found, Hit):
            readable += 1
            if number % 20 == 0 or path[0] == "names":
                for arguments in (("show", "--full"), ("show", "--json"), ("explain",)):
                    assert run(arguments[0], wanted.digest, *arguments[1:]).exit_code in (0, 3), path
                with suppress(CacheError):
                    readable_cache(manifest, print_output=False)
        else:
            assert found.reason is MissReason.CORRUPT, path
            assert not manifest.exists()
        shutil.rmtree(manifest.parent)
    assert readable > 50
