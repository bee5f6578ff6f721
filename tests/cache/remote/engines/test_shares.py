"""A shared folder that lies: right bytes, none, or an error, never others; and nothing that was stored is lost."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gearcache.cache.remote.engines import folder as folder_engine
from gearcache.cache.remote.engines.folder import FolderRemote
from gearcache.cache.remote.engines.probe import honours_create
from gearcache.cache.remote.engines.protocol import Denied, RemoteError
from tests.cache.remote.real_engines import soon
from tests.cache.remote.share import Host, two_hosts
from tests.support.at_once import at_once

MOST = 1 << 24
DATA = bytes(range(256)) * 2000


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host]]:
    with two_hosts(tmp_path_factory.mktemp("share")) as hosts:
        yield hosts


@pytest.fixture
def hosts(mounted: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch) -> tuple[Host, Host]:
    monkeypatch.setattr(folder_engine, "_PAUSES", (0.01, 0.04))
    for host in mounted:
        host.lie()
    return mounted


@pytest.fixture
def top(request: pytest.FixtureRequest) -> str:
    return f"v7/{request.node.name.replace('[', '-').replace(']', '')}/"


@pytest.mark.parametrize(
    "faults",
    [
        {"errors": {"open": ["ESTALE", 2]}},
        {"errors": {"open": ["EBUSY", 1], "read": ["EAGAIN", 1]}},
        {"short": 4096, "errors": {"read": ["ESTALE", 1]}},
    ],
    ids=str,
)
def test_a_fault_that_passes_is_not_noticed_by_a_reader(hosts: tuple[Host, Host], faults: dict[str, Any]) -> None:
    hosts[0].remote.put("v7/read", DATA, soon())
    hosts[1].lie(**faults)
    assert hosts[1].remote.get("v7/read", MOST, soon()) == DATA
    hosts[1].lie(errors={"open": ["ESTALE", 1]})
    assert hosts[1].remote.size("v7/read", soon()) == len(DATA)


@pytest.mark.parametrize(
    "errors",
    [
        {"create": ["ESTALE", 2], "write": ["ESTALE", 1]},
        {"fsync": ["EBUSY", 1], "rename": ["EBUSY", 1]},
        {"after:rename": ["ESTALE", 1]},
    ],
    ids=str,
)
@pytest.mark.parametrize("way", ["replaced", "linked"])
def test_a_fault_that_passes_loses_nothing_of_a_writer(
    hosts: tuple[Host, Host], top: str, errors: dict[str, Any], way: str
) -> None:
    name = f"{top}x/y"
    hosts[0].lie(errors=errors)
    assert hosts[0].remote.put(name, DATA, soon(), create=way != "replaced")
    assert hosts[1].remote.get(name, MOST, soon()) == DATA
    assert hosts[1].remote.names(name.rpartition("/")[0] + "/", 100, soon()).count(name) == 1


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ({"write": ["ENOSPC", -1]}, "No space left on device"),
        ({"fsync": ["EIO", -1]}, "Input/output error"),
        ({"create": ["EROFS", -1], "mkdir": ["EROFS", -1]}, "Read-only file system"),
        ({"rename": ["EBUSY", -1], "link": ["EBUSY", -1]}, "busy"),
    ],
    ids=str,
)
@pytest.mark.parametrize("create", [False, True])
def test_a_fault_that_stays_is_an_error_and_leaves_nothing(
    hosts: tuple[Host, Host], top: str, errors: dict[str, Any], told: str, create: bool
) -> None:
    hosts[1].remote.put("v7/full/before", b"", soon())
    hosts[0].lie(errors=errors)
    with pytest.raises(RemoteError, match=told) as caught:
        hosts[0].remote.put("v7/full/a", DATA, soon(), create=create)
    assert str(caught.value).startswith(f"tier {hosts[0].remote.label}: ")
    assert hosts[1].remote.get("v7/full/a", MOST, soon()) is None
    assert hosts[1].remote.names("v7/full/", 10, soon()) == ["v7/full/before"]
    folder = Path(hosts[1].remote.label.removeprefix("folder:"), "v7/full")
    assert [path.name for path in folder.iterdir()] == ["before"]


@pytest.mark.parametrize("faults", [{"end": 1000}, {"size": 5}, {"size": -5}], ids=str)
def test_a_file_that_seems_to_end_elsewhere_is_an_error(hosts: tuple[Host, Host], faults: dict[str, Any]) -> None:
    hosts[0].remote.put("v7/cut", DATA, soon())
    hosts[1].lie(**faults)
    with pytest.raises(RemoteError, match="is cut off after"):
        hosts[1].remote.get("v7/cut", MOST, soon())
    hosts[1].lie()
    assert hosts[1].remote.get("v7/cut", MOST, soon()) == DATA


@pytest.mark.parametrize("loses_answers", [False, True])
def test_of_two_hosts_that_create_an_object_one_does(hosts: tuple[Host, Host], top: str, loses_answers: bool) -> None:
    for count in range(3):
        for host in hosts:
            host.lie(errors={"after:link": ["EIO", 1]} if loses_answers else {})
        name = f"{top}{count}"

        def create(number: int, name: str = name) -> tuple[bool, bytes | None]:
            remote = hosts[number % 2].remote
            won = remote.put(name, bytes([number]) * 100_000, soon(), create=True)
            return won, remote.get(name, MOST, soon())

        found = at_once(*(partial(create, number) for number in range(6)))
        (winner,) = (number for number, (won, _) in enumerate(found) if won)
        right, seen = bytes([winner]) * 100_000, [data for _, data in found]
        assert hosts[1].remote.get(name, MOST, soon()) == right
        assert set(seen) == {right}
        hosts[0].remote.delete(name, soon())
        assert hosts[1].remote.put(name, b"next", soon(), create=True)


def test_a_file_system_without_hard_links_has_no_leases(hosts: tuple[Host, Host], top: str, tmp_path: Path) -> None:
    remote = hosts[0].remote
    assert honours_create(remote, soon(), tmp_path / "nowhere")  # so that the answer is not remembered
    hosts[0].lie(errors={"link": ["EPERM", -1]})
    assert not honours_create(remote, soon(), tmp_path / "nowhere")
    with pytest.raises(Denied, match="makes no hard links"):
        remote.put(f"{top}a", DATA, soon(), create=True)
    assert remote.get(f"{top}a", MOST, soon()) is None
    assert remote.put(f"{top}a", DATA, soon())


def test_a_file_system_that_hangs_costs_the_deadline_and_holds_up_nobody_else(hosts: tuple[Host, Host]) -> None:
    hosts[0].remote.put("v7/hang", DATA, soon())
    hosts[1].lie(errors={"read": ["HANG", 1]})
    begin = time.monotonic()
    with pytest.raises(RemoteError, match=r"did not answer within 0\.3 s"):
        hosts[1].remote.get("v7/hang", MOST, soon(0.3))
    assert time.monotonic() - begin < 1.3
    assert hosts[1].remote.get("v7/hang", MOST, soon()) == DATA
    assert hosts[0].remote.get("v7/hang", MOST, soon()) == DATA


def test_a_file_system_that_hangs_for_good_does_not_take_all_threads(tmp_path: Path) -> None:
    wait = threading.Event()
    remote = FolderRemote(tmp_path)
    remote._read = lambda *_: wait.wait()  # type: ignore[method-assign,assignment,return-value]
    before = threading.active_count()
    problems = []
    for _ in range(20):
        with pytest.raises(RemoteError) as caught:
            remote.get("a", 1, soon(0.01))
        problems.append(caught.value.problem)
    assert threading.active_count() - before <= 16
    assert problems[-1] == "16 earlier requests still hang"
    wait.set()
    end = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() == before
    assert FolderRemote(tmp_path).get("a", 1, soon()) is None


def test_what_is_no_file_is_no_object(tmp_path: Path) -> None:
    remote = FolderRemote(tmp_path)
    assert remote.put("x/a", b"data", soon())
    folder = tmp_path / "x"
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "link").symlink_to("/etc/passwd")
    (folder / ".nfs0001").write_bytes(b"data")
    assert remote.names("x/", 10, soon()) == ["x/a"]
    for name in ("pipe", "folder"):
        assert remote.get(f"x/{name}", MOST, soon()) is None
        assert remote.size(f"x/{name}", soon()) is None
    for ask in (lambda: remote.get("x/link", MOST, soon()), lambda: remote.size("x/link", soon())):
        with pytest.raises(RemoteError, match=f"`{folder}/link` is a symbolic link"):
            ask()
    assert remote.get("x/a/b", MOST, soon()) is None
    remote.delete("x/a/b", soon())


OPERATIONS: dict[str, Callable[[FolderRemote, str], Any]] = {
    "get": lambda remote, top: remote.get(f"{top}a", MOST, soon()),
    "size": lambda remote, top: remote.size(f"{top}a", soon()),
    "names": lambda remote, top: remote.names(top, 10, soon()),
    "put": lambda remote, top: remote.put(f"{top}b", b"data", soon()),
    "create": lambda remote, top: remote.put(f"{top}b", b"data", soon(), create=True),
    "delete": lambda remote, top: remote.delete(f"{top}a", soon()),
}


@pytest.mark.parametrize("root", ["mount/gears", "gears", "file", "file/gears"])
def test_a_share_that_is_not_mounted_is_told_and_nothing_is_made(tmp_path: Path, root: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    told = f"there is no folder `{tmp_path / root}`: make it, or mount the share"
    for operation in OPERATIONS.values():
        with pytest.raises(RemoteError) as caught:
            operation(FolderRemote(tmp_path / root), "v7/")
        assert caught.value.problem == told
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("link", ["v7", "v7/entries", "v7/entries/label"])
def test_a_link_below_the_root_leads_nowhere(tmp_path: Path, link: str) -> None:
    """As where somebody let the share show a local cache, which is not to be emptied."""
    share, local = tmp_path / "share", tmp_path / "local"
    top = "v7/entries/label/"
    local.mkdir()
    FolderRemote(local).put(f"{top}a", b"data", soon())
    (share / link).parent.mkdir(parents=True)
    (share / link).symlink_to(local / link)
    for operation in OPERATIONS.values():
        with pytest.raises(RemoteError) as caught:
            operation(FolderRemote(share), top)
        assert caught.value.problem.startswith(f"`{share / link}` is a symbolic link")
    assert [path.name for path in (local / top).iterdir()] == ["a"]
