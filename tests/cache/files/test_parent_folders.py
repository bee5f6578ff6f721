"""Folders above a cache: those in which others could exchange it are refused, with the path and the way out."""

from __future__ import annotations

import grp
import os
import pwd
import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from gearcache.cache.files import parent_folders as parents
from gearcache.cache.files.parent_folders import TRUSTED_VARIABLE
from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.store import DiskStore, Hit, prepare_folder
from gearcache.errors import UnsafePath

KEY = CacheKey("Model.decode", (("a", 1),))
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture(autouse=True)
def no_memory_of_groups() -> Iterator[None]:
    parents._is_own_group.cache_clear()
    yield
    parents._is_own_group.cache_clear()


@pytest.fixture
def above(tmp_path: Path) -> Path:
    """A folder above a cache that has an entry; something lies in between."""
    folder = tmp_path / "above"
    publish(Layout(folder / "between" / "cache"))
    return folder


def publish(layout: Layout) -> None:
    store = DiskStore(layout)
    store.publish(KEY, {}, {store.put_blob(b"code"): 4}, {})


def layout_below(above: Path) -> Layout:
    return Layout(above / "between" / "cache")


def refused(layout: Layout) -> UnsafePath:
    """Fail unless reading and writing are refused alike; return why."""
    with pytest.raises(UnsafePath) as reading:
        DiskStore(layout).lookup(KEY)
    with pytest.raises(UnsafePath) as writing:
        prepare_folder(layout, layout.locks_folder)
    assert str(reading.value) == str(writing.value)
    return reading.value


def accepted(layout: Layout) -> None:
    assert isinstance(DiskStore(layout).lookup(KEY), Hit)
    prepare_folder(layout, layout.locks_folder)


@pytest.mark.parametrize(
    ("mode", "owner", "told"),
    [
        pytest.param(0o757, None, "chmod o-w {}", id="everybody can write"),
        pytest.param(0o1777, None, "", id="sticky"),
        pytest.param(0o755, (54321, 54321), "belongs to user 54321", id="of another user", marks=needs_root),
        pytest.param(0o1777, (54321, 54321), "belongs to user 54321", id="sticky of another user", marks=needs_root),
        pytest.param(0o2775, (0, 54321), "chmod g-w {}", id="a group of others can write", marks=needs_root),
        pytest.param(0o775, (0, 0), "", id="the group of root, as in images for any user", marks=needs_root),
    ],
)
def test_a_folder_in_which_others_can_write_is_refused(
    above: Path, mode: int, owner: tuple[int, int] | None, told: str
) -> None:
    if owner is not None:
        os.chown(above, *owner)
    above.chmod(mode)
    if not told:
        accepted(layout_below(above))
        return
    error = refused(layout_below(above))
    assert error.path == above
    assert told.format(above) in str(error)
    assert TRUSTED_VARIABLE in str(error)


#: Name and members of the group, further users with their first group, whether nobody else can write.
GROUPS: dict[str, tuple[tuple[str, list[str]] | None, list[tuple[str, int, int]], bool]] = {
    "named as the user": (("me", []), [], True),
    "with the user and root as members": (("me", ["me", "root"]), [], True),
    "with another member, who may be gone": (("me", ["other"]), [], False),
    "another's first group": (("me", []), [("other", 1001, 77)], False),
    "the user's first group, another name": (("staff", []), [], False),
    "without a name, as in a container": (None, [], True),
    "without a name, another's first group": (None, [("other", 1001, 77)], False),
}


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_that_nobody_else_is_in_does_no_harm(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As where umask 002 goes with a group for each user, and with `docker run --user 1000:1000`."""
    group, others, expected = GROUPS[name]
    users = [("root", 0, 0), ("me", 1000, 77), *others]

    def find(_: int) -> SimpleNamespace:
        if group is None:
            raise KeyError("no such group")
        return SimpleNamespace(gr_name=group[0], gr_mem=group[1])

    entries = [SimpleNamespace(pw_name=user, pw_uid=uid, pw_gid=gid) for user, uid, gid in users]
    monkeypatch.setattr(pwd, "getpwall", lambda: entries)
    monkeypatch.setattr(grp, "getgrgid", find)
    monkeypatch.setattr(os, "getgroups", lambda: [77])
    monkeypatch.setattr(parents, "_knows_all_users", lambda: False)
    assert parents._is_own_group(77, 1000) is expected


def test_an_access_list_may_let_others_write_through_an_own_group(above: Path) -> None:
    entries = [(1, 7, 0xFFFFFFFF), (2, 7, 54321), (4, 5, 0xFFFFFFFF), (16, 7, 0xFFFFFFFF), (32, 5, 0xFFFFFFFF)]
    data = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(above, "system.posix_acl_access", data)
    except OSError as error:
        pytest.skip(f"no access lists here: {error}")
    assert above.stat().st_mode & 0o020
    assert refused(layout_below(above)).path == above


def test_who_trusts_the_writers_of_a_folder_names_it(above: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = layout_below(above)
    above.chmod(0o777)
    monkeypatch.setenv(TRUSTED_VARIABLE, f"/elsewhere{os.pathsep}{above}/")
    accepted(layout)
    above.joinpath("between").chmod(0o777)
    assert refused(layout).path == above / "between"
    layout.root.chmod(0o777)
    monkeypatch.setenv(TRUSTED_VARIABLE, os.pathsep.join(map(str, (above, above / "between"))))
    assert refused(layout).path == layout.root
    monkeypatch.setenv(TRUSTED_VARIABLE, os.pathsep.join(map(str, (above, above / "between", layout.root))))
    accepted(layout)
    layout.bucket.chmod(0o777)
    assert refused(layout).path == layout.bucket


def test_the_way_through_links_is_looked_at(above: Path, tmp_path: Path) -> None:
    safe = tmp_path / "safe"
    safe.mkdir()
    (safe / "link").symlink_to("../above/between")
    layout = Layout(safe / "link" / "cache")
    accepted(layout)
    above.chmod(0o777)
    assert refused(layout).path == above
    above.chmod(0o755)
    safe.chmod(0o777)
    assert refused(layout).path == safe
    safe.chmod(0o755)
    (safe / "whole").symlink_to(above / "between" / "cache")
    accepted(Layout(safe / "whole"))
    (above / "between").chmod(0o777)
    assert refused(Layout(safe / "whole")).path == above / "between"


@needs_root
def test_a_link_of_another_user_is_refused(above: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "link").symlink_to(above / "between" / "cache")
    accepted(Layout(shared / "link"))
    os.chown(shared / "link", 54321, 54321, follow_symlinks=False)
    assert "link of user 54321" in str(refused(Layout(shared / "link")))
