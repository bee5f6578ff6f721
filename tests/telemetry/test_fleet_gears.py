"""Gears for a fleet: what `.stats.to_dict()` of processes says of shapes, its sums, and the gears that are proposed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.telemetry.fleet_gears import propose, summed
from gearcache.telemetry.method_shapes import MethodShapes, read_shapes
from tests.support.commands import run, run_json
from tests.support.scenarios import strict_config

DIMS = (("x", 0),)


class Net(nn.Module):
    def double(self, x: Tensor) -> Tensor:
        return x * 2


def written(path: Path, *met: MethodShapes) -> str:
    """A file as a process writes it that says what it has met."""
    path.write_text(json.dumps([each.to_plain() for each in met]))
    return str(path)


def test_statistics_say_what_was_met_of_which_method(cache_dir: Path) -> None:
    net = Net()
    cached = gearcache.cache_compile(net.double, config=strict_config(on_miss="eager"), gears={"x": {0: [2, 4]}})
    for size in (2, 2, 4, 3):
        cached(torch.ones(size))
    (met,) = read_shapes(json.loads(json.dumps({"models": [cached.stats.to_dict()]})))
    assert (met.method, met.full_name) == ("Net.double", f"{Net.__module__}.Net.double")
    assert (met.dims, met.gears) == (DIMS, ((2,), (4,)))
    assert met.shapes == cached.stats.shapes == {(2,): 2, (4,): 1, (3,): 1}


def test_files_of_processes_are_summed_and_gears_proposed(cache_dir: Path, tmp_path: Path) -> None:
    first = written(tmp_path / "1.json", method({(3,): 2}, gears=((8,),)))
    lines = [json.dumps({"stats": method({(5,): 1}, gears=((8,),)).to_plain()}) for _ in range(2)]
    (tmp_path / "2.jsonl").write_text("\n".join(lines) + "\n")
    files = (first, str(tmp_path / "2.jsonl"))
    (row,) = run_json("suggest-gears", *files)["methods"]
    assert (row["method"], row["calls"], row["processes"]) == ("Net.double", 4, 3)
    assert row["proposed"]["sizes"] == [{"dim": "x.size(0)", "sizes": [5]}]
    assert row["proposed"]["saved"] == round(1 - 5 / 8, 4)
    text = run("suggest-gears", *files, "--method", "Net.*", "--gears", "2").stdout
    assert "Net.double: 4 calls of 2 shapes in 3 processes\n" in text
    assert "  gears={'x': {0: [3, 5]}}\n" in text
    assert "now: 1 gear, 50.0% is padding; the proposed ones compute 50.0% less" in text
    assert "no calls of `Other.*`" in run("suggest-gears", *files, "--method", "Other.*", code=1).stderr
    assert "200 is not in the range 1<=x<=100" in run("suggest-gears", first, "--gears", "200", code=2).output


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[", "holds no statistics"),
        ('{"dims": ["x.size(0)"], "shapes": [{"shape": [1, 2], "calls": 1}]}', "missing required field"),
        (
            '{"method": "a", "full_name": "a", "dims": ["x.size(0)"], "declared": [[1, 2]], "shapes": []}',
            "not 1 sizes",
        ),
    ],
)
def test_a_file_that_holds_something_else_is_told_and_the_others_count(
    cache_dir: Path, tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "wrong.json").write_text(text)
    right = written(tmp_path / "right.json", method({(3,): 2}))
    found = run_json("suggest-gears", right, str(tmp_path / "wrong.json"), str(tmp_path / "absent"), code=1)
    assert len(found["methods"]) == 1
    assert told in found["problems"][0]
    assert "cannot be read" in found["problems"][1]


def method(
    shapes: dict[tuple[int, ...], int], gears: Any = ((4,), (8,)), dims: Any = DIMS, full_name: str = "a.Net.double"
) -> MethodShapes:
    return MethodShapes("Net.double", full_name, dims, gears, shapes)


def test_processes_are_summed_by_class_and_gears() -> None:
    found = summed(
        [
            method({(3,): 1, (5,): 2}),
            method({(3,): 4}, gears=((8,), (4,))),
            method({(90,): 6}, gears=((64,), (128,))),
            method({(90,): 5}, full_name="b.Net.double"),
            method({(3, 1): 1}, gears=(), dims=(("x", 0), ("x", 1))),
        ]
    )
    assert [(row.calls, row.processes, row.gears) for row in found] == [
        (7, 2, ((4,), (8,))),
        (6, 1, ((64,), (128,))),
        (5, 1, ((4,), (8,))),
        (1, 1, ()),
    ]
    assert found[0].shapes == {(3,): 5, (5,): 2}


def test_a_proposal_says_what_it_saves() -> None:
    (row,) = summed([method({(3,): 10, (6,): 5, (20,): 2})])
    proposal = propose(row)
    assert proposal.suggestion.sizes == {"x.size(0)": [6, 20]}
    assert proposal.unserved == 2, "size 20 fits into no gear of today"
    assert (proposal.work_now, proposal.work_then) == (10 * 4 + 5 * 8, 10 * 6 + 5 * 6)
    assert proposal.padded_now == 1 - (10 * 3 + 5 * 6) / 80
    assert proposal.saved == 1 - 90 / 80
    three = propose(row, 3)
    assert three.suggestion.sizes == {"x.size(0)": [3, 6, 20]}
    assert three.saved == 1 - 60 / 80
