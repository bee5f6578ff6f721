"""What is loaded is what was verified, whatever is put in its place meanwhile."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from gearcache.cache import blob_folder
from gearcache.cache.layout import Layout
from gearcache.cache.store import DiskStore
from gearcache.errors import CacheError

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
RIGHT, FOREIGN = 7, 666
#: The number of the compiled library, of which those of other numbers are copies.
WRITTEN = 0x11223344


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[int, bytes]:
    """Shared objects that answer with a number."""
    folder = tmp_path_factory.mktemp("libraries")
    (folder / "answer.c").write_text(f"int number = {WRITTEN}; int answer(void) {{ return number; }}\n")
    command = ["cc", "-shared", "-fPIC", "-o", str(folder / "answer.so"), str(folder / "answer.c")]
    subprocess.run(command, check=True)
    compiled, written = (folder / "answer.so").read_bytes(), struct.pack("=i", WRITTEN)
    assert compiled.count(written) == 1
    return {number: compiled.replace(written, struct.pack("=i", number)) for number in (RIGHT, FOREIGN)}


def answer(store: DiskStore, digest: str) -> int:
    with store.blob_file(digest) as name:
        return int(ctypes.CDLL(name).answer())


@needs_compiler
def test_two_objects_are_never_taken_for_one_and_one_is_loaded_once(
    tmp_path: Path, libraries: dict[int, bytes]
) -> None:
    store = DiskStore(Layout(tmp_path / "cache"))
    digests = {number: store.put_blob(data) for number, data in libraries.items()}
    for _ in range(3):
        assert {number: answer(store, digest) for number, digest in digests.items()} == {n: n for n in digests}
    with store.blob_file(digests[RIGHT]) as first, store.blob_file(digests[RIGHT]) as second:
        assert first != second
        assert ctypes.CDLL(first)._handle == ctypes.CDLL(second)._handle


@needs_compiler
@pytest.mark.parametrize("what", ["root", "file"])
@pytest.mark.parametrize("moment", ["checked folders", "opened", "verified"])
def test_what_is_exchanged_at_any_moment_is_not_loaded(
    tmp_path: Path, libraries: dict[int, bytes], monkeypatch: pytest.MonkeyPatch, what: str, moment: str
) -> None:
    layout = Layout(tmp_path / "cache")
    digest = DiskStore(layout).put_blob(libraries[RIGHT])
    path = layout.blob(digest)
    place = layout.root if what == "root" else path
    aside = tmp_path / "aside"
    shutil.copytree(place, aside) if place.is_dir() else shutil.copy(place, aside)
    (aside / path.relative_to(place) if place != path else aside).write_bytes(libraries[FOREIGN])

    names = {"checked folders": "open_trusted", "opened": "check_descriptor", "verified": "opened_name"}
    original = getattr(blob_folder, names[moment])

    def exchanging(*arguments: object) -> object:
        place.rename(tmp_path / "original")
        aside.rename(place)
        return original(*arguments)

    monkeypatch.setattr(blob_folder, names[moment], exchanging)
    if moment == "checked folders":  # what lies there by then is what is verified
        with pytest.raises(CacheError):
            answer(DiskStore(layout), digest)
    else:
        assert answer(DiskStore(layout), digest) == RIGHT
