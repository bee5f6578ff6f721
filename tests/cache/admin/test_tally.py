"""Misses by reason, counted over processes."""

from __future__ import annotations

from pathlib import Path

from gearcache.cache.admin.tally import count_misses
from gearcache.cache.layout import Layout


def test_a_reason_is_never_a_path(cache_dir: Path) -> None:
    layout = Layout(cache_dir)
    layout.prepare()
    count_misses(layout, "Model.decode", ["../../escape", ""])
    count_misses(layout, "../..", ["absent"])
    folder = layout.bucket / "misses"
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert names == ["Model.decode/_", "Model.decode/______escape", "_/absent"]
    assert not (cache_dir.parent / "escape").exists()
