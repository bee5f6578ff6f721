"""Fuzzes the manifest decoder: `python -m benchmarks.fuzz manifest [inputs]`, a million by default.

Half of the inputs have a digest that matches; otherwise the decoder would never reach the body. An input is a failure
if it takes more than a second, needs more than `MAX_MEGABYTES` in all, or is neither read nor refused.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

from gearcache.cache.keys.key import FORMAT_VERSION
from gearcache.cache.manifest import _HEADER, MAGIC, Manifest, decode_manifest, encode_manifest
from gearcache.errors import CorruptEntry

MAX_MEGABYTES = 300
_PATH = Path("manifest")
_INTERESTING = bytes.fromhex("00017f80909f8fc0c1c4c5c6c7c8c9cbcfd3d4d5d6d8d9dadbdcdddedfe0ff")


def outcome(data: bytes) -> str:
    """Return `read` or `refused`; any other behaviour of the decoder is an exception."""
    try:
        decode_manifest(data, _PATH)
    except CorruptEntry:
        return "refused"
    return "read"


def sealed(body: bytes) -> bytes:
    """Return a body after its matching header."""
    return bytes(_HEADER.pack(MAGIC, FORMAT_VERSION, len(body), sha256(body).digest())) + body


def mutated(payload: Any, seed: int | None) -> bytes:
    """Return a manifest with this payload, a few changed bytes in its body, and a digest that matches."""
    digest = sha256(b"key").hexdigest()
    blobs = {sha256(b"blob").hexdigest(): 7}
    manifest = Manifest(f"M.f-{digest}", digest, {"a": [1, None]}, payload, blobs, 1.5, {"torch": "2"})
    data = encode_manifest(manifest)
    if seed is None:
        return data
    return sealed(_changed(data[_HEADER.size :], random.Random(seed)))


def _changed(data: bytes, chance: random.Random) -> bytes:
    body = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(body) + 1)
        kind = chance.randrange(6)
        if kind == 0 and at < len(body):
            body[at] ^= 1 << chance.randrange(8)
        elif kind == 1 and at < len(body):
            body[at] = chance.choice(_INTERESTING)
        elif kind == 2:
            body[at:at] = chance.choices(_INTERESTING, k=chance.randint(1, 8))
        elif kind == 3:
            del body[at : at + chance.randint(1, 8)]
        elif kind == 4:
            piece = body[at : at + chance.randint(1, 40)]
            body[at:at] = piece * chance.randint(1, 3)
        else:
            body = body[:at]
    return bytes(body)


def _payload(chance: random.Random, depth: int = 0) -> Any:
    if depth > 4 or chance.random() < 0.4:
        return chance.choice([None, True, -1, 1 << 63, 0.5, "text", b"bytes", "x" * 300, b"y" * 300])
    if chance.random() < 0.5:
        return [_payload(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {f"k{number}": _payload(chance, depth + 1) for number in range(chance.randrange(4))}


def main(inputs: int) -> int:
    """Fuzz, print the results, and return the number of failures."""
    chance = random.Random(7)
    samples = [encode_manifest(_sample(chance)) for _ in range(500)]
    found: Counter[str] = Counter()
    slowest = 0.0
    begin = time.perf_counter()
    for number in range(inputs):
        sample = chance.choice(samples)
        if number % 2:
            data = sealed(_changed(sample[_HEADER.size :], chance))
        else:
            data = _changed(sample, chance)
        start = time.perf_counter()
        try:
            found[outcome(data)] += 1
        except Exception as error:
            found[f"{type(error).__name__}: {error}"] += 1
            print(f"input {number}: {type(error).__name__}: {error}\n{data!r}", file=sys.stderr)
        slowest = max(slowest, time.perf_counter() - start)
    seconds = time.perf_counter() - begin
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    failures = inputs - found["read"] - found["refused"] + (slowest > 1.0) + (megabytes > MAX_MEGABYTES)
    print(f"{inputs} inputs in {seconds:.0f} s: {dict(found)}")
    print(f"slowest {slowest * 1000:.1f} ms, peak {megabytes:.0f} MB, {failures} failures")
    return failures


def _sample(chance: random.Random) -> Manifest:
    digest = sha256(chance.randbytes(8)).hexdigest()
    payload = {"variants": [_payload(chance) for _ in range(3)]}
    return Manifest(f"M.f-{digest}", digest, {"c": _payload(chance)}, payload, {digest: 3}, 1.0, {"torch": "2"})
