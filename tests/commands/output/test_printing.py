"""What lies on disk, and what a bundle names, is printed as text: no escape reaches a terminal, no line is made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gearcache.cache.layout import Layout
from gearcache.cli import main
from gearcache.commands.output.document import print_json
from gearcache.commands.output.printing import echo, printable
from tests.support.commands import DECODE, store

HOSTILE = [
    "\x1b]0;title\x07\x1b[2J",
    "a\nimported 3 entries",
    "a\rb",
    "\x9b2J",
    "\u202egnp",
    "\u2028",
    "\x7f",
    "\udc80",
    "\t",
]


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_nothing_that_steers_a_terminal_is_printed(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    echo(f"<{text}>", "second")
    assert capsys.readouterr().out.replace("\n", "|").isprintable()
    assert printable(printable(text)) == printable(text)
    for value in ({text: [text]}, [{"name": text}] * 200):
        print_json("list", {"entries": value})
        document = capsys.readouterr().out
        assert json.loads(document)["entries"] == value
        assert document.replace("\n", "").isprintable()


def test_names_on_disk_are_escaped(cache_dir: Path) -> None:
    store(cache_dir, DECODE, b"d")
    layout = Layout(cache_dir)
    (layout.bucket / "misses" / "Model.decode").mkdir(parents=True, exist_ok=True)
    (layout.blobs_folder / "00").mkdir(exist_ok=True)
    for number, text in enumerate(text for text in HOSTILE if text != "\udc80"):
        layout.quarantine(text).write_bytes(b"bad")
        layout.quarantine(f"{number}.reason").write_text(f"`{text}` is corrupt")
        (layout.bucket / "misses" / "Model.decode" / text).write_bytes(b"-")
        (layout.blobs_folder / "00" / f".writing-{text}").write_bytes(b"half")
    for arguments in (
        ("stats",),
        ("stats", "--json"),
        ("verify",),
        ("verify", "--json"),
        ("list",),
        ("prune", "--older-than", "1w"),
    ):
        output = CliRunner().invoke(main, arguments).output
        assert output.replace("\n", "").isprintable(), arguments
        assert not any(line.startswith("imported") for line in output.splitlines())
