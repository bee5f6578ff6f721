"""Paths of the cache, also of what it counts, and the folders that are made for them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.folder_marks import other_formats
from gearcache.cache.admin.tally import count_misses
from gearcache.cache.keys.key import FORMAT_VERSION, CacheKey
from gearcache.cache.layout import Layout, resolve_root
from gearcache.cache.store import DiskStore, Hit
from gearcache.errors import UnsafePath
from tests.support.source_tree import ROOT

KEY = CacheKey("Model.decode", (("a", 1),))


def test_prepare_makes_a_private_tree_that_git_and_backups_skip(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    layout = Layout(tmp_path / "some" / "where")
    layout.prepare()
    layout.prepare()
    Layout(tmp_path).prepare()
    assert tmp_path.stat().st_mode & 0o777 == 0o755, "what exists stays as it is"
    folders = [layout.root, *(path for path in layout.root.rglob("*") if path.is_dir())]
    assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}
    tag = (layout.root / "CACHEDIR.TAG").read_bytes()
    assert tag.startswith(b"Signature: 8a477f597d28d172789f06886806bc55")
    assert (layout.root / ".gitignore").read_text() == "*\n"
    assert {path.name for path in layout.bucket.iterdir()} == {"entries", "blobs", "locks", "quarantine"}


@pytest.mark.parametrize("content", ["README.md", "CACHEDIR.TAG", "v9/x"])
def test_a_root_that_holds_other_things_is_used_and_not_marked(tmp_path: Path, content: str) -> None:
    """As with `cache_dir="."` in a project, or a home."""
    (tmp_path / content).parent.mkdir(exist_ok=True)
    (tmp_path / content).write_text("mine\n")
    store = DiskStore(Layout(tmp_path))
    store.publish(KEY, {}, {store.put_blob(b"code"): 4}, {})
    assert isinstance(DiskStore(Layout(tmp_path)).lookup(KEY), Hit)
    bucket = store.layout.bucket
    assert {path.name for path in tmp_path.iterdir()} == {Path(content).parts[0], bucket.name}
    assert (tmp_path / content).read_text() == "mine\n"
    assert {path.name for path in bucket.iterdir()} >= {"CACHEDIR.TAG", ".gitignore"}
    catalog = Catalog(store.layout)
    assert other_formats(store.layout.root) == []
    del store
    (tmp_path / ".writing-notes").write_text("mine")
    os.utime(tmp_path / ".writing-notes", (1, 1))
    assert catalog.remove(catalog.entries()).faults == []
    assert catalog.collect().leftovers == []
    assert (tmp_path / content).exists()
    assert (tmp_path / ".writing-notes").exists()


def test_a_folder_of_somebody_else_in_the_place_of_the_bucket_is_refused(tmp_path: Path) -> None:
    mine = tmp_path / f"v{FORMAT_VERSION}" / "main.py"
    mine.parent.mkdir()
    mine.write_text("mine")
    layout = Layout(tmp_path)
    store = DiskStore(layout)
    for work in (lambda: store.put_blob(b"code"), lambda: store.publish(KEY, {}, {}, {})):
        with pytest.raises(UnsafePath, match=r"holds `main.py`, which is of no cache; set `cache_dir`"):
            work()
    catalog = Catalog(layout)
    assert catalog.collect().fault is not None
    assert (catalog.entries(), catalog.faults) == ([], [])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]


@pytest.mark.parametrize(
    "cache_dir, environ, expected",
    [
        pytest.param("/given", {"TORCHAIR_CACHE_HOME": "/home"}, "/given", id="argument first"),
        pytest.param(None, {"TORCHAIR_CACHE_HOME": "/home"}, "/home", id="then the variable"),
        pytest.param(None, {}, "{cwd}/.torchair_cache", id="then the working folder"),
        pytest.param("relative", {}, "{cwd}/relative", id="relative"),
        pytest.param("~/x", {}, "{home}/x", id="home"),
    ],
)
def test_the_root_is_resolved_in_order(cache_dir: str | Path | None, environ: dict[str, str], expected: str) -> None:
    # A user's `~` is theirs to use in a path; expanding it is the one use of HOME.
    home = os.path.expanduser("~")
    assert resolve_root(cache_dir, environ) == Path(expected.format(cwd=Path.cwd(), home=home))


def test_a_reason_is_never_a_path(cache_dir: Path) -> None:
    layout = Layout(cache_dir)
    layout.prepare()
    count_misses(layout, "Model.decode", ["../../escape", ""])
    count_misses(layout, "../..", ["absent"])
    folder = layout.bucket / "misses"
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert names == ["Model.decode/_", "Model.decode/______escape", "_/absent"]
    assert not (cache_dir.parent / "escape").exists()


def test_pages_name_the_folder_of_this_format() -> None:
    for name in ("on-disk.md", "oci.md"):
        page = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert set(re.findall(r"(?<![-:\w])v[0-9]+(?=/| )", page)) == {f"v{FORMAT_VERSION}"}, name
