"""What an agreement of the ranks of a job costs, beside a barrier of gloo in the same run.

`python -m benchmarks.ranks`: a vote is one round over the store: all ranks vote, the first decides, and all read the
decision. `agree` of a warm job has two votes, and before them the ranks arrive. The first `agree` also opens
connections. Times are of the slowest rank, on one host.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__, "torch", "gearcache.ranks.agree", "gearcache.serving.miss.unserved"])
#: Seconds that a vote of 8 ranks may take once connections exist.
LIMIT = 0.005


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table, and return 1 if a vote of 8 ranks takes too long."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranks", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args(arguments)
    failed = False
    print(f"{'ranks':>5} {'barrier':>10} {'vote':>10} {'coming':>10} {'agree, warm':>12} {'first agree':>12}")
    for world in options.ranks:
        found = measure(world, options.rounds)
        cells = [f"{1000 * found[name]:>8.2f} ms" for name in ("barrier", "vote", "open", "agree", "first")]
        print(f"{world:>5} " + " ".join(cells[:3]) + " ".join(f"{cell:>13}" for cell in cells[3:]))
        failed |= world <= 8 and found["vote"] > LIMIT
    return int(failed)


def measure(world: int, rounds: int) -> dict[str, float]:
    """Return the median seconds of the slowest rank, by the measured operation."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        reports = FORKS.SimpleQueue()
        ranks = [
            FORKS.Process(target=_rank, args=(rank, world, port, rounds, folder, reports)) for rank in range(world)
        ]
        for process in ranks:
            process.start()
        found = [reports.get() for _ in ranks]
        for process in ranks:
            process.join()
    return {name: max(report[name] for report in found) for name in found[0]}


def _rank(rank: int, world: int, port: int, rounds: int, folder: str, reports: Any) -> None:
    import torch
    import torch.distributed as dist

    import gearcache
    from gearcache.ranks.job import present_job
    from gearcache.ranks.meeting import Meeting

    os.environ["TORCHAIR_CACHE_HOME"] = folder
    os.environ["GEARCACHE_PROGRESS"] = "0"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    model = torch.nn.Linear(4, 4)
    config = gearcache.CompilerConfig(backend="eager", strict=True)
    specs = (gearcache.TensorSpec((2, 4), torch.float32),)

    def agree() -> None:
        method = gearcache.cache_compile(model.forward, config=config, input_signature=specs)
        gearcache.agree(method, 120)

    agree()  # compiles
    report = {"first": 0.0, "agree": _median(agree, 10, dist.barrier)}
    job = present_job()
    assert job is not None

    def come() -> None:
        meeting = Meeting(job.next_meeting(), rank, world, 60.0)
        meeting.open()
        meeting.close()

    report["open"] = _median(come, 20, dist.barrier)
    meeting = Meeting(job.next_meeting(), rank, world, 60.0)
    meeting.open()
    report["vote"] = _mean(lambda: meeting.decide({"pieces": ["x" * 100] * 4}, lambda votes: {"do": "load"}), rounds)
    report["barrier"] = _mean(dist.barrier, rounds)
    meeting.close()
    # A job without connections opens them again.
    from gearcache.ranks import job as jobs

    jobs._present.clear()
    report["first"] = _median(agree, 1, dist.barrier)
    dist.barrier()
    reports.put(report)
    dist.barrier()
    dist.destroy_process_group()


def _median(work: Callable[[], object], times: int, before: Callable[[], object]) -> float:
    found = []
    for _ in range(times):
        before()
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def _mean(work: Callable[[], object], times: int) -> float:
    """Return the time of one of many calls in a row, which wait for each other anyway: the median of ten parts."""
    parts = []
    for _ in range(10):
        begin = time.perf_counter()
        for _ in range(max(1, times // 10)):
            work()
        parts.append((time.perf_counter() - begin) / max(1, times // 10))
    return statistics.median(parts)


if __name__ == "__main__":
    sys.exit(main())
