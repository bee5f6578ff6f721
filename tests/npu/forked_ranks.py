"""Ranks of a job on the emulated device: forks of one process that has imported torchair and Dynamo."""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.npu.rank_server"])


def run_ranks(
    module: str, ranks: Sequence[Sequence[str]], folder: Path, *, exit_code: int = 0, **environ: str
) -> list[dict[str, Any]]:
    """Run `python -m MODULE ARGUMENTS` for the arguments of each rank; return what each prints last, as JSON.

    All end with `exit_code`; other than with 0, they report nothing. Their output is in files of `folder`.
    """
    variables = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **environ}
    outputs = [folder / f"output-{rank}" for rank in range(len(ranks))]
    processes = [
        _FORKS.Process(target=_rank, args=(module, list(arguments), variables, output), daemon=True)
        for arguments, output in zip(ranks, outputs, strict=True)
    ]
    for process in processes:
        process.start()
    for process, output in zip(processes, outputs, strict=True):
        process.join(500)
        assert process.exitcode == exit_code, output.read_text()[-3000:]
    return [{} if exit_code else json.loads(output.read_text().splitlines()[-1]) for output in outputs]


def _rank(module: str, arguments: list[str], variables: dict[str, str], output: Path) -> None:
    os.environ.clear()
    os.environ.update(variables)
    sys.argv[1:] = arguments
    with output.open("w") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        try:
            importlib.import_module(module).main()
        except BaseException:
            traceback.print_exc()
            raise
