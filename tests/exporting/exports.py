"""Exports without a graph: files of one content, put in place as `dynamo_export` does."""

from __future__ import annotations

from pathlib import Path

from gearcache.exporting.export_folder import NEW, publish, work_folder


def export(target: Path, content: str, *names: str, overwrite: bool = False) -> None:
    """Export files of one content."""
    with work_folder(target) as work:
        for name in names or ("dynamo.pbtxt", "net.air"):
            path = work / NEW / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
        publish(work, target, overwrite=overwrite)


def contents(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}
