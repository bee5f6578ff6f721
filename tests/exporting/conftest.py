"""Systems on which an export is put in place differently."""

from __future__ import annotations

import pytest

from gearcache.exporting import exchange


@pytest.fixture(params=["exchange", "renames"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With `renameat2`, and on a system without it."""
    if request.param == "renames":
        monkeypatch.setattr(exchange, "exchange", lambda first, second: False)
    return str(request.param)
