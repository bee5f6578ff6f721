"""`dynamo_export` through the real torchair; the graph it hands over runs in the emulator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchair
from torch import Tensor, nn
from torchair._ge_concrete_graph.ge_ir_pb2 import ModelDef

from gearcache import dynamo_export, set_dim_gears
from gearcache.errors import CompileError, GearSpecError, NotExportable
from gearcache.exporting.torchair_export import UNCHECKED_SUFFIX
from gearcache.ge_cache.npu.options import config_leaves
from tests.npu.emulator import Program
from tests.npu.forked_ranks import run_ranks


class Linears(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.linear1(x) + self.linear2(y)


class Rolling(nn.Module):
    """Uses an operator that torchair does not convert."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.roll(x, 1, 0)


def run(folder: Path, name: str, *inputs: Tensor) -> list[Tensor]:
    return Program((folder / f"{name}{UNCHECKED_SUFFIX}").read_bytes()).run(inputs)


def test_an_exported_graph_computes_what_the_model_does(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, x, y = Linears(), torch.randn(2, 2), torch.randn(2, 2)
    config = torchair.CompilerConfig()
    with caplog.at_level("WARNING", "gearcache"):
        dynamo_export(x, y, model=model, export_path=tmp_path / "out", export_name="net", config=config)
    assert "no .air that ATC has accepted" in caplog.text
    found = {path.name for path in (tmp_path / "out").iterdir()}
    assert found == {"dynamo.pbtxt", "options.json", f"net{UNCHECKED_SUFFIX}"}
    with torch.no_grad():
        assert torch.allclose(run(tmp_path / "out", "net", x, y)[0], model(x, y), atol=1e-6)
    assert config_leaves(config) == config_leaves(torchair.CompilerConfig()), "the caller's config was changed"
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "something was left beside the export"


def test_weights_past_the_limit_become_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    utilities: Any = __import__("torchair._utils.export_utils", fromlist=["_"])
    counted = utilities._is_weight_externalized
    monkeypatch.setattr(utilities, "_is_weight_externalized", lambda *args: (True, counted(*args)[1]))
    model, x, y = Linears(), torch.randn(2, 2), torch.randn(2, 2)
    dynamo_export(x, y, model=model, export_path=tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"linear1_weight", "linear1_bias", "linear2_weight", "linear2_bias"} < names
    with torch.no_grad():
        assert torch.allclose(run(tmp_path / "out", "export", x, y)[0], model(x, y), atol=1e-6)


def test_an_export_takes_the_place_of_an_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the program of torchair's documents when it runs twice, with ATC between."""
    monkeypatch.chdir(tmp_path)
    first, second, x, y = Linears(), Linears(), torch.randn(2, 2), torch.randn(2, 2)
    dynamo_export(x, y, model=first, dynamic=False)
    files = {path.name for path in Path("export_file").iterdir()}
    Path("export_file/offline_module.om").write_text("made by ATC")
    with pytest.raises(FileExistsError, match=r"export_file` holds `dynamo\.pbtxt`; .*overwrite=True"):
        dynamo_export(x, y, model=second, dynamic=False)
    assert Path("export_file/offline_module.om").read_text() == "made by ATC"
    dynamo_export(x, y, model=second, dynamic=False, overwrite=True)
    with torch.no_grad():
        assert torch.allclose(run(tmp_path / "export_file", "export", x, y)[0], second(x, y), atol=1e-6)
    assert {path.name for path in Path("export_file").iterdir()} == files
    with pytest.raises(CompileError, match="roll"):
        dynamo_export(x, model=Rolling(), overwrite=True)
    assert {path.name for path in Path("export_file").iterdir()} == files, "a failed export touched the earlier one"
    assert [path.name for path in tmp_path.iterdir()] == ["export_file"]


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x


X = torch.randn(2, 2)


@pytest.mark.parametrize(
    ("model", "arguments", "options", "kind", "words"),
    [
        ("m", (X,), {}, TypeError, "model is a str; it must be a torch.nn.Module"),
        (Linears(), (X, X), {"export_name": "../evil"}, ValueError, r"export_name is '\.\./evil'; it must be the name"),
        (
            Branching(),
            (X,),
            {},
            NotExportable,
            r"`Branching\.forward` cannot be exported: the values of a tensor decide what it does",
        ),
    ],
)
def test_what_cannot_be_exported_is_named(
    model: Any, arguments: Any, options: Any, kind: type, words: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=words):
        dynamo_export(*arguments, model=model, export_path=tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_gears_links_and_other_modes_are_refused(tmp_path: Path) -> None:
    x = torch.randn(2, 2)
    set_dim_gears(x, {0: [2, 4]})
    with pytest.raises(GearSpecError, match="has gears"):
        dynamo_export(x, torch.randn(2, 2), model=Linears(), export_path=tmp_path / "out")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="symbolic link"):
        dynamo_export(torch.randn(2, 2), torch.randn(2, 2), model=Linears(), export_path=tmp_path / "link")
    config = torchair.CompilerConfig()
    config.mode = "reduce-overhead"
    with pytest.raises(ValueError, match="only 'max-autotune'"):
        dynamo_export(torch.randn(2, 2), torch.randn(2, 2), model=Linears(), export_path=tmp_path / "o", config=config)


def weights_of(folder: Path, rank: int) -> list[float]:
    """The weights in the exported graph of a rank: each is one number, four times."""
    model = ModelDef.FromString((folder / f"mp_rank{rank}{UNCHECKED_SUFFIX}").read_bytes())
    constants = [op.attr["value"].t.data for op in model.graph[0].op if op.type == "Const"]
    return sorted(round(float(np.frombuffer(data, np.float32)[0]), 3) for data in constants if len(data) == 16)


def test_two_ranks_export_into_one_folder_again_and_again(tmp_path: Path) -> None:
    folder = tmp_path / "ranks" / "mp"
    folder.parent.mkdir()
    expected = {f"mp_rank{rank}{UNCHECKED_SUFFIX}" for rank in range(2)}
    expected |= {f"rank_{rank}/{name}" for rank in range(2) for name in ("dynamo.pbtxt", "options.json")}
    expected |= {"model_relation_config.json", "numa_config.json"}
    for value in (2.25, 3.5):
        run_ranks("tests.npu.exporting", [[str(rank), str(folder), str(value)] for rank in range(2)], tmp_path)
        assert [weights_of(folder, rank) for rank in range(2)] == [[1.1, value]] * 2
        found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert found == expected
        assert [path.name for path in folder.parent.iterdir() if not path.name.startswith("meet-")] == ["mp"]
        assert "HcomAllReduce" in (folder / "rank_0/dynamo.pbtxt").read_text()
        relation = json.loads((folder / "model_relation_config.json").read_text())
        assert [row["submodel_name"] for row in relation["deploy_config"]] == ["mp_rank0.air", "mp_rank1.air"]
