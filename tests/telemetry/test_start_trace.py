"""`GEARCACHE_TRACE`: what a process writes down of its start and of its calls, and what it never does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gearcache.telemetry import start_trace
from tests.support.commands import run_json
from tests.support.fork_server import run_code

PROGRAM = """
import sys, gearcache, torch
class Net(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        config = gearcache.CompilerConfig(backend="eager", **options)
        self.cached = gearcache.cache_compile(self.decode, gears={"x": {0: [1, 2, 4]}}, config=config)
    def decode(self, x):
        return self.linear(x).relu()
def main():
    net = Net(on_miss="pad", pad_values={"x": 0.0})
    WARM
    net.cached(torch.zeros(1, 8))
    for size in (2, 2, 3, 4, 4, 4):
        net.cached(torch.zeros(size, 8))
    for _ in range(2):
        try:
            net.cached(torch.zeros(9, 8))
        except gearcache.InputError:
            continue
        raise AssertionError("no gear takes 9")
main()
"""


def start(folder: Path, trace: str, warm: str = "") -> dict[str, Any]:
    """Run the program with a trace, and return that."""
    program = PROGRAM.replace("WARM", warm)
    values = {"TORCHAIR_CACHE_HOME": str(folder / "cache"), "GEARCACHE_TRACE": str(folder / trace)}
    found = run_code(program, environ={**os.environ, **values}, cwd=folder)
    assert found.returncode == 0, found.stderr
    (path,) = folder.glob(trace.replace("%p", "*"))
    return dict(json.loads(path.read_text()))


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """A cold start, and a relaunch that warms first."""
    folder = tmp_path_factory.mktemp("starts")
    return folder, start(folder, "cold.json"), start(folder, "again-%p.json", "net.cached.warm(torch.zeros(1, 8))")


def spans(trace: dict[str, Any], category: str) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event.get("cat") == category]


def test_a_cold_start_has_trace_and_compiles_and_a_relaunch_has_none(
    traces: tuple[Path, dict[str, Any], dict[str, Any]],
) -> None:
    _, cold, again = traces
    gears = [f"x.size(0)={size}" for size in (1, 2, 4)]
    compiles = spans(cold, "compile")
    # Asynchronous: they may overlap in the thread that waits for them.
    assert sorted(event["name"] for event in compiles if event["ph"] == "b") == gears
    assert [event["id"] for event in compiles if event["ph"] == "b"] == [
        event["id"] for event in compiles if event["ph"] == "e"
    ]
    assert spans(cold, "trace")
    assert spans(cold, "publish")
    for category in ("trace", "compile", "publish"):
        assert spans(again, category) == []
    for trace in (cold, again):
        assert trace["displayTimeUnit"] == "ms"
        for event in trace["traceEvents"]:  # as Perfetto reads them
            assert (event["ph"] in "MXbe", event["ts"] >= 0) == (True, True)
            assert (type(event["pid"]), type(event["tid"])) == (int, int)
            assert event["ph"] != "X" or event["dur"] >= 0
        assert sorted(event["name"] for event in spans(trace, "gear")) == gears
        for category in ("key", "manifest", "evidence", "answer", "prepare"):
            assert spans(trace, category), category
        assert {event["cat"] for event in trace["traceEvents"] if event["ph"] == "X"}.isdisjoint({"import", "before"})


def test_the_calls_of_each_gear_and_the_shapes_outside_are_there_although_the_model_is_gone(
    traces: tuple[Path, dict[str, Any], dict[str, Any]],
) -> None:
    for trace in traces[1:]:
        (method,) = trace["gearcache"]["methods"]
        assert method["method"] == "Net.decode"
        assert method["gears"] == {"x.size(0)=1": 1, "x.size(0)=2": 2, "x.size(0)=4": 3}
        assert method["padded"] == {"x.size(0)=3": 1}
        assert method["shapes"] == [{"shape": [9], "calls": 2}]
        assert method["refused_errors"] == {"UnknownGear": 2}
    assert [row["kind"] for row in traces[1]["gearcache"]["methods"][0]["reasons"]] == ["absent"]
    assert traces[2]["gearcache"]["methods"][0]["hits"] == 1


def test_a_report_takes_both(traces: tuple[Path, dict[str, Any], dict[str, Any]]) -> None:
    folder = traces[0]
    files = [part for path in sorted(folder.glob("*.json")) for part in ("--trace", str(path))]
    report = run_json("report", "--cache-dir", str(folder / "cache"), *files)
    assert (len(report["starts"]), report["faults"]) == (2, [])
    traffic = report["methods"][0]["traffic"]
    assert {row["gear"]: row["calls"] for row in traffic["gears"]} == {
        "x.size(0)=1": 2,
        "x.size(0)=2": 4,
        "x.size(0)=4": 6,
    }
    assert traffic["outside"] == [
        {"text": "x.size(0)=3", "calls": 2, "padded": 2},
        {"text": "x.size(0)=9", "calls": 4, "padded": 0},
    ]
    assert traffic["refused_calls"] == 4


def test_a_process_without_cached_methods_and_a_forked_child_write_nothing(tmp_path: Path) -> None:
    environ = {**os.environ, "GEARCACHE_TRACE": str(tmp_path / "start.json")}
    program = (
        "import os, sys\n"
        "finders = list(sys.meta_path)\n"
        "import gearcache\n"
        "from gearcache.telemetry import start_trace\n"
        "assert sys.meta_path == finders\n"
        "class One:\n"
        "    def to_record(self): return {'method': 'a'}\n"
        "FOLLOW\n"
        "if os.fork() == 0:\n"
        "    assert start_trace.recorder() is None\n"
        "    sys.exit()\n"
        "assert os.wait()[1] == 0\n"
        "assert not os.path.exists(os.environ['GEARCACHE_TRACE'])\n"
    )
    for followed, is_written in (("", False), ("start_trace.recorder().follow(One())", True)):
        program_now = program.replace("FOLLOW", followed)
        subprocess.run([sys.executable, "-c", program_now], env=environ, timeout=60, check=True)
        assert (tmp_path / "start.json").exists() is is_written


class Followed:
    """A method that has answered nothing."""

    def to_record(self) -> dict[str, Any]:
        return {"method": "M.f"}


def test_the_file_that_a_link_leads_to_is_written_and_what_is_no_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    Path("link.json").symlink_to("elsewhere/start.json")
    recorder = start_trace.Recorder("link.json")
    recorder.follow(Followed())
    monkeypatch.chdir("elsewhere")  # a name without a folder is that of the start
    recorder.write()
    recorder.write()
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "elsewhere" / "start.json").is_file()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("fifo", "loop", "elsewhere", "no/start.json"):
        caplog.clear()
        recorder = start_trace.Recorder(str(tmp_path / name))
        recorder.follow(Followed())
        recorder.write()
        recorder.write()
        assert [record.levelname for record in caplog.records] == ["WARNING"], name
    assert (tmp_path / "fifo").is_fifo()
    assert (tmp_path / "loop").is_symlink()
