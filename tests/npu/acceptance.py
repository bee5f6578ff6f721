"""The steps of `scripts/npu_acceptance.sh`, on a real NPU or (`--emulated`) on the emulated one."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path

MODULE = "tests.npu.served"
#: A real device rounds otherwise than torch's eager kernels on it do.
TOLERANCE = 2e-3


def main() -> int:
    step, root = sys.argv[1], Path(sys.argv[2])
    is_emulated = "--emulated" in sys.argv
    if is_emulated:
        from tests.npu.device import install

        install()
    else:
        import torch_npu
        import torchair  # noqa: F401

        print(f"torch_npu {torch_npu.__version__}, {torch_npu.npu.get_device_name()}")
    return {"cold": serve, "relaunched": relaunched, "files": files, "export": export}[step](root, is_emulated)


def serve(root: Path, is_emulated: bool, *, again: bool = False) -> int:
    """Run every scenario and print whether it equals eager, and how long it took."""
    from tests.support.scenarios import run_scenario, scenario_names

    failed = 0
    chosen = [text for text in sys.argv[3:] if not text.startswith("--")]
    for name in chosen or scenario_names(MODULE):
        start = time.perf_counter()
        tolerance = 2e-6 if is_emulated else TOLERANCE
        report = run_scenario(MODULE, name, root, relaunched=again, backend="auto", tolerance=tolerance)
        seconds = time.perf_counter() - start
        wrong = [label for label, check in report["checks"].items() if not check["equal"]]
        traced = sum(stats["traces"] + stats["misses"] for stats in report["stats"]) if again else 0
        reason = report["error"] or (f"differs: {wrong[0]}" if wrong else "traced again" if traced else "")
        failed += bool(reason)
        print(f"{'FAILED' if reason else 'ok':<7} {seconds:7.2f} s  {name}  {reason.strip()[-800:]}")
    return int(bool(failed))


def relaunched(root: Path, is_emulated: bool) -> int:
    """The same without a trace; GE's files must stay as the first process left them."""
    (root / "files.json").write_text(json.dumps(digests(root)))
    return serve(root, is_emulated, again=True)


def digests(root: Path) -> dict[str, str]:
    """Every file that GE wrote below a cache, with its sha256."""
    found = (path for path in sorted(root.rglob("ge/gearcache-*/*")) if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def files(root: Path, is_emulated: bool) -> int:
    """GE wrote files only where `ge_cache=True`, and a relaunch changed none."""
    before, after = json.loads((root / "files.json").read_text()), digests(root)
    for path in after:
        print(path.removeprefix(f"{root}/"))
    if not after or before != after:
        print("FAILED  GE's files are missing, or a relaunch changed them")
        return 1
    return 0


def export(root: Path, is_emulated: bool) -> int:
    """Export a small model."""
    import torch

    import gearcache

    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to("npu")
    gearcache.dynamo_export(torch.randn(2, 4).to("npu"), model=model, export_path=root / "export", export_name="net")
    names = sorted(path.name for path in (root / "export").iterdir())
    print(", ".join(names))
    return int("net.air" not in names and not is_emulated)


if __name__ == "__main__":
    sys.exit(main())
