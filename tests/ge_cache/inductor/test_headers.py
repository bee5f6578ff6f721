"""Precompiled headers are built once for all compile workers; none of them meets half of one."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gearcache.ge_cache.inductor.headers import SharedHeaders, shared_folder
from tests.support.at_once import at_once


class Worker:
    """A worker's own folder, and how often it has built a header."""

    def __init__(self, root: Path, name: str) -> None:
        self.own = root / name
        self.headers = SharedHeaders(root / "shared", self.own)
        self.builds = 0

    def build(self, are_complete: Callable[[], None] | None) -> str:
        """Make an object, as `SharedHeaders.build` wants it, with a header if there is none."""
        if are_complete is not None:
            self.builds += 1
            (self.own / "core.h.gch").write_text("whole")
            are_complete()
        return (self.own / "core.h.gch").read_text()


def test_workers_that_start_together_build_once_and_wait_for_the_headers_alone(tmp_path: Path) -> None:
    workers = [Worker(tmp_path, f"worker{number}") for number in range(4)]
    others_are_done = threading.Event()
    results: list[str] = []

    def run(worker: Worker) -> None:
        def build(are_complete: Callable[[], None] | None) -> str:
            if are_complete is None:
                return worker.build(None)
            time.sleep(0.2)  # the others come meanwhile
            result = worker.build(are_complete)
            assert others_are_done.wait(20), "a worker waits for the object of the one that has made the headers"
            return result

        results.append(worker.headers.build(build))
        if len(results) == len(workers) - 1:
            others_are_done.set()

    at_once(*(functools.partial(run, worker) for worker in workers))
    assert sum(worker.builds for worker in workers) == 1
    assert results == ["whole"] * 4


def test_what_a_build_that_failed_has_left_is_not_shared(tmp_path: Path) -> None:
    first, second = Worker(tmp_path, "first"), Worker(tmp_path, "second")

    def fail(are_complete: Callable[[], None] | None) -> str:
        (first.own / "core.h.gch").write_text("who")
        raise RuntimeError("the compiler was killed")

    with pytest.raises(RuntimeError):
        first.headers.build(fail)
    second.headers.build(second.build)
    assert second.builds == 1
    assert (second.own / "core.h.gch").read_text() == "whole"


def test_another_torch_compiler_or_target_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, compiler = tmp_path / "root", tmp_path / "c++"
    compiler.write_text("#!/bin/sh")
    compiler.chmod(0o755)
    folders = [shared_folder(root, "native"), shared_folder(root, "x86-64-v3")]
    monkeypatch.setenv("CXX", str(compiler))
    folders.append(shared_folder(root, "native"))
    compiler.write_text("#!/bin/bash")
    folders.append(shared_folder(root, "native"))
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    folders.append(shared_folder(root, "native"))
    assert len(set(folders)) == 5
    assert shared_folder(root, "native") == folders[-1]


def test_links_are_not_taken(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "strange").write_text("strange")
    (tmp_path / "shared" / "core.h.gch").symlink_to(tmp_path / "strange")
    worker = Worker(tmp_path, "worker")
    worker.headers.build(worker.build)
    assert (worker.own / "core.h.gch").read_text() == "whole"
