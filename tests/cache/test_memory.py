"""The store in memory obeys the laws of every store, and needs no disk."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from gearcache.cache.layout import Layout
from gearcache.cache.memory import MemoryStore
from tests.support.conformance import STORE_LAWS, StoreLaw


@pytest.mark.parametrize("law", STORE_LAWS, ids=lambda law: law.__name__)
def test_the_store_in_memory_obeys(law: StoreLaw, tmp_path: Path) -> None:
    root = tmp_path / "cache"
    law(MemoryStore(Layout(root), 0.05), tmp_path)
    assert not root.exists()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_objects_in_memory_are_loaded_and_cannot_be_changed(tmp_path: Path) -> None:
    store = MemoryStore(Layout(tmp_path / "cache"), 0.05)
    for number in (7, 8):
        (tmp_path / "answer.c").write_text(f"int answer(void) {{ return {number}; }}\n")
        target = tmp_path / "answer.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(target), str(tmp_path / "answer.c")], check=True)
        with store.blob_file(store.put_blob(target.read_bytes())) as name:
            assert ctypes.CDLL(name).answer() == number
            with pytest.raises(OSError, match="not permitted"):
                Path(name).write_bytes(b"other")
