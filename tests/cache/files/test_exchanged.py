"""What is loaded is what was verified, whatever is put in its place meanwhile."""

from __future__ import annotations

import _ctypes
import ctypes
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from gearcache.cache import blob_folder
from gearcache.cache.files import trust
from gearcache.cache.layout import Layout
from gearcache.cache.store import DiskStore
from gearcache.errors import CacheError

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
RIGHT, FOREIGN = 7, 666


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[int, bytes]:
    """Shared objects that answer with a number."""
    folder = tmp_path_factory.mktemp("libraries")
    made = {}
    for number in (RIGHT, FOREIGN, 8):
        (folder / "answer.c").write_text(f"int answer(void) {{ return {number}; }}\n")
        command = ["cc", "-shared", "-fPIC", "-o", str(folder / "answer.so"), str(folder / "answer.c")]
        subprocess.run(command, check=True)
        made[number] = (folder / "answer.so").read_bytes()
    return made


def answer(store: DiskStore, digest: str, *, keep: bool = True) -> int:
    with store.blob_file(digest) as name:
        library = ctypes.CDLL(name)
    found: int = library.answer()
    if not keep:  # the loader forgets its name
        _ctypes.dlclose(library._handle)  # type: ignore[attr-defined]
    return found


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
@pytest.mark.parametrize("what", ["root", "shard", "file"])
@pytest.mark.parametrize("moment", ["checked folders", "opened", "verified"])
def test_what_is_exchanged_at_any_moment_is_not_loaded(
    tmp_path: Path, libraries: dict[int, bytes], monkeypatch: pytest.MonkeyPatch, what: str, moment: str
) -> None:
    layout = Layout(tmp_path / "cache")
    digest = DiskStore(layout).put_blob(libraries[RIGHT])
    path = layout.blob(digest)
    place = {"root": layout.root, "shard": path.parent, "file": path}[what]
    aside = tmp_path / "aside"
    shutil.copytree(place, aside) if place.is_dir() else shutil.copy(place, aside)
    (aside / path.relative_to(place) if place != path else aside).write_bytes(libraries[FOREIGN])

    def exchange() -> None:
        place.rename(tmp_path / "original")
        aside.rename(place)

    names = {"checked folders": "open_trusted", "opened": "check_descriptor", "verified": "opened_name"}
    original = getattr(blob_folder, names[moment])

    def exchanging(*arguments: object) -> object:
        exchange()
        return original(*arguments)

    monkeypatch.setattr(blob_folder, names[moment], exchanging)
    if moment == "checked folders":  # what lies there by then is what is verified
        with pytest.raises(CacheError):
            answer(DiskStore(layout), digest)
    else:
        assert answer(DiskStore(layout), digest) == RIGHT


ATTACKER = """
import os, sys
blob, right, foreign = sys.argv[1:]
print(flush=True)
while True:
    for source in (foreign, right):
        os.link(source, f"{source}.link")
        os.replace(f"{source}.link", blob)
"""


@needs_compiler
def test_a_process_that_exchanges_files_all_the_time_gets_nothing_loaded(
    tmp_path: Path, libraries: dict[int, bytes]
) -> None:
    layout = Layout(tmp_path / "cache")
    digest = DiskStore(layout).put_blob(libraries[RIGHT])
    for name, number in (("right", RIGHT), ("foreign", FOREIGN)):
        (tmp_path / name).write_bytes(libraries[number])
        (tmp_path / name).chmod(0o600)
    command = [
        sys.executable,
        "-c",
        ATTACKER,
        *map(str, (layout.blob(digest), tmp_path / "right", tmp_path / "foreign")),
    ]
    found: dict[int | str, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE) as attacker:
        assert attacker.stdout is not None
        attacker.stdout.readline()
        try:
            while found.get(RIGHT, 0) < 200 and attacker.poll() is None:
                try:
                    outcome: int | str = answer(DiskStore(layout), digest, keep=False)
                except CacheError as error:
                    outcome = type(error).__name__
                found[outcome] = found.get(outcome, 0) + 1
        finally:
            attacker.kill()
    assert found[RIGHT] >= 200, found
    assert FOREIGN not in found, found


def test_where_the_kernel_names_no_descriptors_the_path_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DiskStore(Layout(tmp_path / "cache"))
    digest = store.put_blob(b"code")
    monkeypatch.setattr(trust.os, "access", lambda *_: False)
    with store.blob_file(digest) as name:
        assert name == str(store.layout.blob(sha256(b"code").hexdigest()))
