"""Load the server with a real HTTP client, cold, restarted and under a deploy, beside eager and `torch.compile`.

    python examples/server/load.py                                   # all-MiniLM-L6-v2, about ten minutes on 2 cores
    python examples/server/load.py --model tiny --backend eager      # random weights, no compiler: about a minute

Starts `serve.py` from a copy in a temporary folder. Ends with an error unless each answer equals eager's for the
release that it names, and restarted workers traced nothing.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from running import Running

WORDS = ("the", "cat", "sits", "on", "a", "warm", "stone", "while", "rain", "falls", "over", "the", "old", "town")
#: Rows and words of requests: at gears of all-MiniLM-L6-v2, between them, and beyond the largest. A word is one of its
#: tokens, and two more surround a text.
TRAFFIC = {
    "sizes of gears": ((1, 14), (4, 14), (4, 62), (8, 14)),
    "odd sizes": ((1, 3), (2, 9), (3, 25), (5, 7), (6, 40), (7, 1)),
    "larger than all gears": ((1, 90), (12, 14)),
}
FIRST = (
    ("pooled = (states * weights).sum(1) / weights.sum(1).clamp(min=1)", "pooled = states[:, 0]"),
    ('RELEASE = "mean"', 'RELEASE = "first token"'),
)
KINDS = {"gears": "gearcache", "compile": "torch.compile", "eager": "eager"}


def texts_of(rows: int, words: int) -> list[str]:
    """Return texts with this many words, all different."""
    return [" ".join(WORDS[(row + number) % len(WORDS)] for number in range(words)) for row in range(rows)]


REQUESTS = {name: [texts_of(*size) for size in sizes] for name, sizes in TRAFFIC.items()}


@dataclass
class Traffic:
    """Clients in threads; each sends its next request when the previous one was answered."""

    server: Running
    requests: list[list[str]]
    clients: int
    latencies: list[float] = field(default_factory=list)
    answers: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(self.clients)]
        for thread in self._threads:
            thread.start()

    def _ask(self, number: int) -> None:
        with httpx.Client() as client:
            while not self._ends.is_set():
                number = (number + 1) % len(self.requests)
                begin = time.perf_counter()
                try:
                    answer = self.server.embed(client, self.requests[number])
                except (httpx.HTTPError, RuntimeError) as error:
                    self.faults.append(f"{type(error).__name__}: {error}")
                    return
                self.latencies.append(time.perf_counter() - begin)
                self.answers.append((number, answer))

    def stop(self) -> Traffic:
        """Wait for the last answers."""
        self._ends.set()
        for thread in self._threads:
            thread.join()
        return self

    def text(self, seconds: float) -> str:
        """Return the percentiles in ms, and requests per second."""
        cuts = statistics.quantiles(self.latencies, n=100)
        return f"{cuts[49] * 1e3:6.1f} {cuts[94] * 1e3:6.1f} {cuts[98] * 1e3:6.1f} {len(self.latencies) / seconds:6.0f}"


def starts(kind: str, seconds: float, workers: list[dict[str, Any]]) -> str:
    """Return a row of the table of starts: each part is that of the slowest worker."""
    parts = {name: max(worker["seconds"][name] for worker in workers) for name in workers[0]["seconds"]}
    listed = " ".join(f"{parts[name]:9.2f}" for name in ("import", "import transformers", "load the model"))
    compiled = sum(worker["traces"] for worker in workers), sum(worker["compiles"] for worker in workers)
    return f"{kind:28} {seconds:8.1f} {listed} {parts['warm']:9.3f}   {compiled[0]} / {compiled[1]}"


def difference(answer: dict[str, Any], right: dict[str, Any]) -> float:
    """Return the largest difference of two answers' embeddings."""
    pairs = zip(answer["embeddings"], right["embeddings"], strict=True)
    return max(abs(a - b) for one, other in pairs for a, b in zip(one, other, strict=True))


class Comparison:
    """Runs the servers one after the other, and records what is wrong."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.faults: list[str] = []
        #: Traffic -> eager's answer to each request: release "mean".
        self.right: dict[str, list[dict[str, Any]]] = {}

    def start(self, kind: str, *, cold: str = "wait") -> Running:
        """Start the server as one of `KINDS`, with the cache of this kind."""
        options = ["--with", kind, "--cold", cold, "--model", self.options.model, "--backend", self.options.backend]
        return Running(self.folder / "server", self.folder / kind, *options)

    def check(self, name: str, answers: list[tuple[int, dict[str, Any]]], right: list[dict[str, Any]]) -> None:
        """Record an answer that differs from eager's."""
        worst = max((difference(answer, right[number]) for number, answer in answers), default=0.0)
        if not worst < 1e-5:
            self.faults.append(f"{name}: an embedding differs from eager's by {worst:.1e}")

    def measure(self) -> None:
        """Print the tables: eager first, whose answers are the reference for the others."""
        rows: list[str] = []
        columns: dict[str, dict[str, str]] = {}
        heads = f"{'launch':>8} {'import':>9} {'transf.':>9} {'load':>9} {'warm':>9}   traces / compiles"
        print(f"{'seconds until ready':28} {heads}", flush=True)
        for kind in ("eager", "compile", "gears"):
            with self.start(kind) as server:
                print(starts(f"{KINDS[kind]}, cold", *server.wait_ready()), flush=True)
            with self.start(kind) as server:
                seconds, workers = server.wait_ready()
                print(starts(f"{KINDS[kind]}, restarted", seconds, workers), flush=True)
                if kind == "gears" and any(worker["traces"] for worker in workers):
                    self.faults.append("a restarted worker has traced")
                columns[kind] = {name: self.load(kind, name, server) for name in TRAFFIC}
        for name in TRAFFIC:
            rows.append(f"\n{name:28}    p50    p95    p99  req/s")
            rows += [f"  {KINDS[kind]:26} {columns[kind][name]}" for kind in columns]
        print(f"\n{self.options.clients} clients, latencies in ms" + "\n".join(rows), flush=True)

    def load(self, kind: str, name: str, server: Running) -> str:
        """Send one kind of traffic, and return its row."""
        requests = REQUESTS[name]
        with httpx.Client() as client:
            answers = [server.embed(client, texts) for texts in requests]
        self.right.setdefault(name, answers)  # eager's answers, as eager is first
        Traffic(server, requests, self.options.clients).stop()
        traffic = Traffic(server, requests, self.options.clients)
        time.sleep(self.options.seconds)
        traffic.stop()
        self.faults += traffic.faults
        self.check(f"{KINDS[kind]}, {name}", traffic.answers, self.right[name])
        return traffic.text(self.options.seconds)

    def operate(self) -> None:
        """Start on an empty cache under traffic, deploy other code and roll back, and print the results."""
        shutil.rmtree(self.folder / "gears")
        requests = REQUESTS["odd sizes"]
        with self.start("gears", cold="eager") as server:
            with httpx.Client() as client:
                server.embed(client, requests[0])
                print(f"\ncold, --cold eager: first answer after {server.age():.1f} s, ", end="")
                print(f"ready after {server.wait_ready()[0]:.1f} s", flush=True)
                right = {"mean": [server.embed(client, texts) for texts in requests]}
            self.deploy(server, "new code", FIRST, right)
            self.deploy(server, "back", tuple((new, old) for old, new in FIRST), right)
            metrics = server.metrics()
            for text in ("gear_calls", "padded_calls", "refused_calls", "compile_seconds_count"):
                found = sum(value for name, value in metrics.items() if name.startswith(f"gearcache_{text}"))
                print(f"  gearcache_{text}, all workers: {found:.0f}")
            print(f"stopped in {server.stop():.1f} s")

    def deploy(self, server: Running, name: str, changes: Any, right: dict[str, list[dict[str, Any]]]) -> None:
        """Exchange the code under traffic; every answer has to be correct for the release that it names."""
        requests = REQUESTS["odd sizes"]
        begin = time.perf_counter()
        traffic = Traffic(server, requests, self.options.clients)
        outcome = server.deploy(*changes)
        seconds = time.perf_counter() - begin
        traffic.stop()
        with httpx.Client() as client:
            last = [server.embed(client, texts) for texts in requests]
        right.setdefault(last[0]["release"], last)
        self.faults += traffic.faults
        for release, expected in right.items():
            found = [(number, answer) for number, answer in traffic.answers if answer["release"] == release]
            self.check(f"deploy, {name}, release `{release}`", found, expected)
        counted = Counter(answer["release"] for _, answer in traffic.answers)
        traces = sum(worker["traces"] for worker in server.health()[1]["workers"])
        listed = ", ".join(f"{calls} of `{release}`" for release, calls in counted.items())
        print(f"deploy, {name}: {outcome} in {seconds:.1f} s, {traces} traces; answers: {listed}")
        print(
            f"  p50, p95, p99 in ms, req/s: {traffic.text(seconds)}; {server.retries} requests sent twice", flush=True
        )
        if outcome != "done":
            self.faults.append(f"deploy, {name}: {outcome}")
        if name == "back" and traces:
            self.faults.append("a deploy of code that was served before has traced")


def main() -> None:
    """Measure, and end with an error if an answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("minilm", "tiny"), default="minilm", help="tiny: random weights")
    parser.add_argument("--backend", choices=("inductor", "eager"), default="inductor", help="of gearcache")
    parser.add_argument("--clients", type=int, default=4, help="that ask at once (default: 4)")
    parser.add_argument("--seconds", type=float, default=10, help="of each kind of traffic (default: 10)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="server-load-") as made:
        folder = Path(made)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(__file__).parent, folder / "server", ignore=ignored)
        comparison = Comparison(options, folder)
        try:
            comparison.measure()
            comparison.operate()
        except RuntimeError as error:
            sys.exit(f"load: {error}")
    for fault in comparison.faults:
        print(f"WRONG: {fault}", file=sys.stderr)
    if comparison.faults:
        sys.exit(1)
    print("\nEach answer was eager's for the release that it named, within 1e-5; restarted workers traced nothing.")


if __name__ == "__main__":
    main()
