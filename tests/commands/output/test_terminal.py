"""Terminals: their widths, plain ones, and names that are too long for them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gearcache.cache.admin.tally import count_misses
from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout
from tests.support.commands import listed, run, store

LONG = "ANameThatSomebodyReallyGaveToAClassOfEncodersForRetrievalAugmentedGenerationInProduction"
KEYS = [CacheKey(f"{LONG}.{name}", (("name", name),)) for name in ("encode", "decode")]
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(*arguments: str, columns: int = 80, **environ: str) -> str:
    """What a command prints on a terminal of that width, escapes included."""
    command = f"stty cols {columns}; {sys.executable} -m gearcache {' '.join(arguments)}"
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"],
        env={**os.environ, "TERM": "xterm", "NO_COLOR": "", "COLUMNS": "", "LINES": "", **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout.replace("\r", "")


@pytest.fixture
def long_names(cache_dir: Path) -> Path:
    """Two entries of a class whose name is longer than the name of a folder, one of them damaged."""
    for key in KEYS:
        store(cache_dir, key, key.digest.encode(), payload={"method": key.label, "parts": [], "variants": []})
        count_misses(Layout(cache_dir), key.safe_label, ["absent"])
    return cache_dir


def test_a_plain_terminal_gets_no_escapes(long_names: Path) -> None:
    assert "\x1b" not in on_terminal("list", TERM="dumb")
    assert "\x1b" not in on_terminal("list", NO_COLOR="1")


@pytest.mark.parametrize("name, columns", [("list", 40), ("stats", 60)])
def test_no_line_of_a_table_is_longer_than_the_terminal(long_names: Path, name: str, columns: int) -> None:
    output = on_terminal(name, "-q", columns=columns)
    assert "\x1b[1m" in output
    output = ESCAPE.sub("", output)
    lines = [line for line in output.splitlines() if not line.startswith("Cache ")]  # a path is never cut
    assert max(map(len, lines)) <= columns
    for method in ("encode", "decode"):
        assert re.search(rf"ANam\w*…?\w*\.{method}\b", output)
    if name == "list":
        assert all(key.digest[:12] in output for key in KEYS)
        assert "Method" not in output.splitlines()[0].split(), "a narrow terminal gets paragraphs"


def test_a_pipe_and_json_have_whole_names_and_all_columns(long_names: Path) -> None:
    text = run("list").stdout
    assert text.splitlines()[0].split()[-2:] == ["Made", "Torch"]
    assert all(key.label in text for key in KEYS)
    assert {entry["method"] for entry in listed()} == {key.label for key in KEYS}
    assert {entry["torch"] for entry in listed()} == {"2.13.0"}
    assert len(listed(f"{LONG}.*")) == 2
    assert f"Key       {KEYS[0].digest}" in run("show", KEYS[0].label).stdout
