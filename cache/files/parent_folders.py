"""Check the folders above a cache: a user who may write there could replace the cache."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from gearcache.errors import UnsafePath

TRUSTED_VARIABLE = "GEARCACHE_TRUSTED_FOLDERS"
_MAX_LINKS = 40
_ACCESS_LIST = "system.posix_acl_access"


def check_parents(root: Path) -> None:
    """Refuse a root that other users could replace, as ssh does with its keys: `UnsafePath` names the unsafe folder
    above it.

    Unsafe is a folder of another user, or one that others may write without a sticky bit, among all from `/` down,
    through links. A group without other members is harmless. Raises `OSError` where the path cannot be examined.
    """
    trusted = trusted_folders(os.environ)
    pending = list(reversed(os.path.abspath(root).split("/")[1:]))
    path, folder_state, links = "/", os.lstat("/"), 0
    owners = {0, os.geteuid(), folder_state.st_uid}  # in a user name space root may have another number
    while pending and stat.S_ISDIR(folder_state.st_mode):
        if path not in trusted:
            _check_folder(path, folder_state, owners)
        part = pending.pop()
        inner = f"{path.rstrip('/')}/{part}" if part != ".." else path.rpartition("/")[0] or "/"
        try:
            inner_state = os.lstat(inner)
        except (FileNotFoundError, NotADirectoryError):
            return
        if stat.S_ISLNK(inner_state.st_mode):
            links += 1
            if links > _MAX_LINKS:
                return  # nothing can be opened there either
            if inner_state.st_uid not in owners and folder_state.st_mode & stat.S_ISVTX and path not in trusted:
                raise _unsafe(inner, f"it is a link of user {inner_state.st_uid}, who may lead it elsewhere", "")
            target = str(Path(inner).readlink())
            pending.extend(part for part in reversed(target.split("/")) if part not in ("", "."))
            if target.startswith("/"):
                path, folder_state = "/", os.lstat("/")
        else:
            path, folder_state = inner, inner_state


def trusted_folders(environ: Mapping[str, str]) -> set[str]:
    """Return the folders whose writers the user trusts, by `$GEARCACHE_TRUSTED_FOLDERS`, a list like `PATH`."""
    texts = filter(None, environ.get(TRUSTED_VARIABLE, "").split(os.pathsep))
    return {name for text in texts for name in (os.path.abspath(text), os.path.realpath(text))}


def is_trusted_by_name(folder: Path) -> bool:
    """Whether `$GEARCACHE_TRUSTED_FOLDERS` names a folder."""
    trusted = trusted_folders(os.environ)
    return bool(trusted) and not trusted.isdisjoint((os.path.abspath(folder), os.path.realpath(folder)))


def _check_folder(path: str, state: os.stat_result, owners: set[int]) -> None:
    if state.st_uid not in owners:
        raise _unsafe(path, f"it belongs to user {state.st_uid}, who may exchange what lies in it", "")
    if state.st_mode & stat.S_ISVTX:
        return
    others = state.st_mode & stat.S_IWOTH
    if others or (state.st_mode & stat.S_IWGRP and not is_private(path, state.st_gid)):
        mode = stat.S_IMODE(state.st_mode)
        reason = f"its mode {mode:04o} lets others write there, and so exchange the cache below it"
        raise _unsafe(path, reason, f"run `chmod {'o-w' if others else 'g-w'} {shlex.quote(path)}`, ")


def _unsafe(path: str, reason: str, remedy: str) -> UnsafePath:
    remedy += "set `cache_dir` to a folder below one of your own, or name it in "
    return UnsafePath(path, reason, f"{remedy}`{TRUSTED_VARIABLE}` if all who can write there may run code as you")


def is_private(path: str, group: int) -> bool:
    """Return whether only this user and root may write through the group of a folder."""
    try:
        os.getxattr(path, _ACCESS_LIST)
    except (OSError, AttributeError):
        return _is_own_group(group, os.geteuid())
    return False  # the mode shows the most that its access list allows to anybody


@lru_cache
def _is_own_group(group: int, user: int) -> bool:
    """Return whether a group's only known members are this user and root: many systems give each user their own."""
    import grp
    import pwd

    users = pwd.getpwall()
    names = {entry.pw_name for entry in users if entry.pw_uid in (0, user)}
    others = {entry.pw_name for entry in users if entry.pw_gid == group} - names
    try:
        group_entry = grp.getgrgid(group)
    except KeyError:
        # In a container, users and groups may have no names: this group must be ours.
        return not others and group in {os.getegid(), *os.getgroups()}
    others |= set(group_entry.gr_mem) - names
    return not others and (group == 0 or group_entry.gr_name in names or _knows_all_users())


def _knows_all_users() -> bool:
    """Return whether only local files define users; a directory service may have users that it does not list."""
    try:
        lines = Path("/etc/nsswitch.conf").read_text(errors="replace").splitlines()
    except OSError:
        return True
    services = next((line.partition(":")[2].split() for line in lines if line.startswith("passwd:")), [])
    return set(services) <= {"files", "compat", "systemd"}
