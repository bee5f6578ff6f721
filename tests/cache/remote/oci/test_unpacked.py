"""Layers that are damaged or hostile: refused whole, with the reason, and bounded in space whatever they claim."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tempfile
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from gearcache.cache.remote.oci.documents import LAYER_TYPE, Descriptor, ImageError, describe, digest_of
from gearcache.cache.remote.oci.layer import ROOT
from gearcache.cache.remote.oci.unpacked import UnpackedLayer, unpack_layer
from tests.cache.remote.images import packed, special, tar_of

NAME = "v4/blobs/ab/name"


def unpack(layer: bytes, *, diff_id: str = "", most: int = 1 << 30, piece: int = 1 << 20) -> UnpackedLayer:
    pieces = [layer[at : at + piece] for at in range(0, len(layer), piece)]
    diff_id = diff_id or digest_of(gzip.decompress(layer))
    return unpack_layer(pieces, describe(LAYER_TYPE, layer), diff_id, most=most)


@pytest.mark.parametrize("piece", [1, 7, 100_000])
def test_what_is_packed_is_unpacked(piece: int) -> None:
    objects = {"v4/a": b"", "v4/b/c": os.urandom(5000), f"v4/{'long/' * 40}x": b"deep"}
    layer, diff_id = packed(objects)
    unpacked = unpack(layer, diff_id=diff_id, piece=piece)
    assert {name: unpacked.read(name) for name in unpacked.names("")} == objects
    assert unpacked.names("v4/b/") == ["v4/b/c"]
    assert (unpacked.size("v4/b/c"), unpacked.size("v4/b")) == (5000, None)


def test_layers_of_other_tools_are_read() -> None:
    folders = [special(tarfile.DIRTYPE, name) for name in ("", "v4", "v4/")][:2]
    plain = tar_of(*folders, (NAME, b"data"), ("!./etc/other", b"not ours"), ("!./" + f"{ROOT}/v4/dotted", b"dotted"))
    unpacked = unpack(plain)
    assert {name: unpacked.read(name) for name in unpacked.names("")} == {NAME: b"data", "v4/dotted": b"dotted"}
    data = gzip.decompress(plain)
    in_streams = gzip.compress(data[:700]) + gzip.compress(data[700:]) + gzip.compress(b"")
    assert unpack(in_streams).read(NAME) == b"data"


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: tar_of(("!../outside", b"x")), "`../outside`, which leads elsewhere"),
        (lambda: tar_of((f"!{ROOT}/../x", b"x")), "leads elsewhere"),
        (lambda: tar_of((f"!/{ROOT}/v4/x", b"x")), "leads elsewhere"),
        (lambda: tar_of((f"!{ROOT}//v4/x", b"x")), "leads elsewhere"),
        (lambda: tar_of((f"!{ROOT}/./v4/x", b"x")), "leads elsewhere"),
        (lambda: tar_of(special(tarfile.DIRTYPE, "../../x")), "leads elsewhere"),
        (lambda: tar_of(special(tarfile.SYMTYPE, target="/etc/passwd")), "no regular file"),
        (lambda: tar_of((NAME, b"x"), special(tarfile.LNKTYPE, target=f"{ROOT}/{NAME}")), "no regular file"),
        (lambda: tar_of(special(tarfile.CHRTYPE)), "no regular file"),
        (lambda: tar_of(special(tarfile.BLKTYPE)), "no regular file"),
        (lambda: tar_of(special(tarfile.FIFOTYPE)), "no regular file"),
        (lambda: tar_of((NAME, b"one"), (NAME, b"two")), "twice"),
        (lambda: tar_of((NAME, b"one"), (f"!./{ROOT}/{NAME}", b"two")), "twice"),
        (lambda: tar_of(("../../../../tmp/x", b"x")), "leads elsewhere"),
        (lambda: gzip.compress(b"no tar at all" * 100), "no tar"),
        (lambda: gzip.compress(b"\xff" * 512), "no tar"),
    ],
)
def test_a_layer_that_holds_something_else_is_refused(made: Callable[[], bytes], told: str) -> None:
    with pytest.raises(ImageError, match=told):
        unpack(made())


def huge_member(size: int) -> bytes:
    info = tarfile.TarInfo(f"{ROOT}/{NAME}")
    info.size = size
    return gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(10240))


@pytest.mark.parametrize("size", [10_000_000, 1 << 50])
def test_a_file_larger_than_its_layer_is_refused(size: int) -> None:
    with pytest.raises(ImageError):
        unpack(huge_member(size))


def test_a_huge_header_is_not_read() -> None:
    info = tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, (1 << 33) - 1
    with pytest.raises(ImageError, match="a header of 8589934592 bytes"):
        unpack(gzip.compress(info.tobuf() + bytes(1 << 16)))


def sparse(pax: bool) -> bytes:
    info = tarfile.TarInfo(f"{ROOT}/{NAME}")
    if pax:
        info.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": "1000000"}
        return gzip.compress(info.tobuf(tarfile.PAX_FORMAT) + bytes(1024))
    info.type = tarfile.GNUTYPE_SPARSE
    return gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024))


@pytest.mark.parametrize("pax", [True, False])
def test_a_sparse_file_is_refused(pax: bool) -> None:
    with pytest.raises(ImageError, match=r"no regular file|damaged"):
        unpack(sparse(pax))


def test_a_bomb_is_refused_after_what_is_allowed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(compressor.compress(bytes(1 << 20)) for _ in range(200)) + compressor.flush()
    assert len(bomb) < 1 << 20
    files: list[int] = []
    whole = tempfile.TemporaryFile

    def watched(**options: object) -> io.BufferedRandom:
        file = whole(dir=tmp_path, prefix="bomb")
        write = file.write

        class Watched:
            def __enter__(self) -> Watched:
                return self

            def __exit__(self, *_: object) -> None:
                file.close()

            def write(self, data: bytes) -> int:
                files.append(len(data))
                return write(data)

        return Watched()  # type: ignore[return-value]

    monkeypatch.setattr(tempfile, "TemporaryFile", watched)
    with pytest.raises(ImageError, match="more than 5000000 bytes when it is unpacked"):
        unpack_layer([bomb], describe(LAYER_TYPE, bomb), "sha256:" + "0" * 64, most=5_000_000)
    assert sum(files) <= 5_000_000
    assert max(files) <= 1 << 20


def test_no_more_than_half_of_the_space_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, diff_id = packed({NAME: os.urandom(100_000)})
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=150_000))
    with pytest.raises(ImageError, match="more than 75000 bytes"):
        unpack_layer([layer], describe(LAYER_TYPE, layer), diff_id)


@pytest.mark.parametrize("damage", ["cut", "longer", "flipped", "time", "within", "other content", "not compressed"])
def test_a_damaged_layer_is_refused(damage: str) -> None:
    layer, diff_id = packed({NAME: os.urandom(5000)})
    found = describe(LAYER_TYPE, layer)
    data = {
        "cut": layer[:-10],
        "longer": layer + b"x",
        "flipped": layer[:2000] + bytes([layer[2000] ^ 1]) + layer[2001:],
        "time": layer[:4] + b"\1" + layer[5:],
    }.get(damage, layer)
    if damage == "other content":
        diff_id = digest_of(b"other")
    elif damage in ("within", "not compressed"):
        data = layer[:-10] if damage == "within" else gzip.decompress(layer)
        found = describe(LAYER_TYPE, data)
    told = {
        "cut": "cut off after",
        "longer": "more than the",
        "flipped": "other bytes|damaged",
        "time": "other bytes",
        "within": "ends within",
        "other content": "does not hold what its config says",
        "not compressed": "not compressed by gzip",
    }
    with pytest.raises(ImageError, match=told[damage]):
        unpack_layer([data], found, diff_id)


def test_bytes_behind_the_compression_are_no_layer() -> None:
    layer, diff_id = packed({NAME: b"data"})
    with pytest.raises(ImageError, match="not compressed by gzip"):
        unpack(layer + b"trailing", diff_id=diff_id)


def test_what_checks_the_time_ends_it() -> None:
    layer, diff_id = packed({NAME: bytes(5 << 20)})
    calls: list[int] = []

    def check() -> None:
        calls.append(1)
        if len(calls) > 2:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        unpack_layer([layer], describe(LAYER_TYPE, layer), diff_id, check=check)
    assert len(calls) == 3


def test_too_many_members_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gearcache.cache.remote.oci.unpacked.MAX_MEMBERS", 10)
    with pytest.raises(ImageError, match="more than 10 files and folders"):
        unpack(tar_of(*((f"v4/{number}", b"") for number in range(11))))
    with pytest.raises(ImageError, match="more than 10 files and folders"):
        unpack(tar_of(*(special(tarfile.DIRTYPE, f"v4/{number}") for number in range(11))))


def test_its_file_has_no_name_and_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    layer, diff_id = packed({NAME: os.urandom(5000)})
    before = descriptors()
    unpacked = unpack(layer, diff_id=diff_id)
    assert list(tmp_path.iterdir()) == []
    assert descriptors() == before + 1
    del unpacked
    assert descriptors() == before


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_threads_and_forked_children_read_at_once() -> None:
    objects = {f"v4/{number}": os.urandom(50_000) for number in range(8)}
    layer, diff_id = packed(objects)
    unpacked = unpack(layer, diff_id=diff_id)
    wrong: list[str] = []

    def read(name: str) -> None:
        wrong.extend(name for _ in range(50) if unpacked.read(name) != objects[name])

    child = os.fork()
    if not child:
        os._exit(0 if all(unpacked.read(name) == data for name, data in objects.items()) else 1)
    threads = [threading.Thread(target=read, args=(name,)) for name in objects]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert os.waitpid(child, 0)[1] == 0


def test_a_descriptor_of_nothing_fits_nothing() -> None:
    with pytest.raises(ImageError, match="cut off after 0 of 5 bytes"):
        unpack_layer([], Descriptor(LAYER_TYPE, digest_of(b""), 5), digest_of(b""))
