"""Programs that no package index has: of the system, or as `scripts/servers.sh` unpacks them."""

from __future__ import annotations

import os
import shutil

from tests.support.source_tree import ROOT

SERVERS = ROOT / ".servers"


def find_program(*names: str, unpacked: str) -> str | None:
    """Return the path of a program: by its names on `PATH`, or by its place below `.servers`; None without one."""
    place = SERVERS / unpacked
    return next((found for name in names if (found := shutil.which(name))), str(place) if place.exists() else None)


def program_environment() -> dict[str, str]:
    """Return the environment for an unpacked program, which finds the libraries that came with it."""
    folders = [str(path) for path in (SERVERS / "usr" / "lib").glob("*-linux-gnu*") if path.is_dir()]
    folders += [f"{folder}/pulseaudio" for folder in folders]
    if usual := os.environ.get("LD_LIBRARY_PATH"):
        folders.append(usual)
    return {**os.environ, **({"LD_LIBRARY_PATH": os.pathsep.join(folders)} if folders else {})}
