"""Entries as text: what is in it, and that damaged or foreign ones are told and run nothing."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest
import torch

import gearcache
from gearcache.readable.frame import readable_frame
from gearcache.readable.graph import PACKED_GRAPH, pack_graph, unpack_graph
from tests.scenarios.prewarmed import Decoder


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHAIR_CACHE_HOME", str(tmp_path_factory.mktemp("readable") / "cache"))
        model = Decoder()
        model.cached_decode(torch.zeros(2, 3, dtype=torch.long), scaled=True)
        return Path(str(model.cached_decode.entry_path))


def test_the_text_tells_key_inputs_evidence_gears_frame_and_graph(
    entry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = gearcache.readable_cache(entry)
    assert capsys.readouterr().out == text
    for part in (
        "entry    Decoder.decode-",
        "method.name = 'tests.scenarios.prewarmed:Decoder.decode'",
        "module.parameters = ['torch.float32 cpu [32, 8] [8, 1] requires_grad: embed.weight', 'same as 0: ",
        "    ids: int64 on cpu",
        "    self.embed.weight: bound when it is loaded",
        "    scaled: constant ['bool', True]",
        "    self.keys: length 2",
        "    type(self.head).forward: function ",
        "    class 'torch.nn.modules.linear:Linear' defines ['forward: function']",
        "    ids.size(0)=4: ",
        "LOAD_FAST                1 (ids)",
        "  Graph of ids.size(0)=2, ids.size(0)=4",
        "aten::embedding.default(",
    ):
        assert part in text, part


def test_a_folder_will_do_and_nothing_need_be_printed_but_into_a_file_for_its_owner(
    entry: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = gearcache.readable_cache(entry.parent, print_output=False, file=tmp_path / "entry.txt")
    assert text == gearcache.readable_cache(str(entry), False)
    assert capsys.readouterr().out == ""
    assert (tmp_path / "entry.txt").read_text() == text
    assert stat.S_IMODE((tmp_path / "entry.txt").stat().st_mode) == 0o600


def test_what_is_no_entry_is_refused(entry: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(entry)
    for path, message in (
        (tmp_path / "link", "symbolic link"),
        (tmp_path, "no entry at"),
        (tmp_path / "x", "no entry"),
    ):
        with pytest.raises(ValueError, match=message):
            gearcache.readable_cache(path, False)


def test_a_damaged_entry_is_told(entry: Path, tmp_path: Path) -> None:
    broken = tmp_path / "manifest.msgpack"
    broken.write_bytes(entry.read_bytes()[:-1])
    broken.chmod(0o600)
    with pytest.raises(gearcache.CacheError, match="is corrupt"):
        gearcache.readable_cache(broken, False)


def test_a_damaged_graph_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHAIR_CACHE_HOME", str(tmp_path))
    model = Decoder()
    model.cached_decode(torch.zeros(2, 3, dtype=torch.long))
    for blob in tmp_path.glob("v*/blobs/*/*"):
        blob.write_bytes(b"x" + blob.read_bytes()[1:])
    text = gearcache.readable_cache(str(model.cached_decode.entry_path), False)
    assert "cannot be read: " in text
    assert "is corrupt" in text


def test_a_frame_that_cannot_be_disassembled_is_a_sentence() -> None:
    text = readable_frame({"co_qualname": "Net.decode", "co_filename": "net.py"}, "2.7.18")
    assert "bytecode of Python 2.7.18" in text
    assert "Net.decode (net.py)" in text
    python = ".".join(map(str, sys.version_info[:3]))
    assert "cannot be disassembled" in readable_frame({"co_name": "decode", "consts": [{"odd": 1, "two": 2}]}, python)


@pytest.mark.parametrize("data", [b"", b"no graph", pack_graph({"nodes": [], "outputs": [], "constants": {}})[:-4]])
def test_bytes_that_are_no_graph_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="graph"):
        unpack_graph(PACKED_GRAPH, data)
