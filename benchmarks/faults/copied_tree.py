"""A copy of the repository in a temporary folder, into which faults are put one after the other."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.fault import Fault

ROOT = Path(__file__).resolve().parents[2]
#: The most seconds of a run of some tests, and of the whole suite; a fault that blocks them counts as caught.
_SECONDS, _SUITE_SECONDS = 900.0, 3 * 3600.0
_ENDLESS = "the tests did not end"
#: Exit codes of pytest: wrong usage, and no test.
_NOTHING_RUN = (4, 5)
#: As in the Makefile: nothing is downloaded, no device backend is imported, and threads do not spin.
_VARIABLES = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    "HF_HUB_OFFLINE": "1",
    "OMP_WAIT_POLICY": "passive",
    "GEARCACHE_JOBS": "1",
}
_NAMES = (
    "import gearcache, gearcache.cache.store, benchmarks; print(gearcache.__file__, gearcache.cache.store.__file__)"
)


class UnusableCopy(RuntimeError):
    """Tests of the copy would not test the copy."""


@dataclass(frozen=True)
class Run:
    """One run of pytest: the first test that failed, or "" where all have passed."""

    failed: str
    seconds: float
    output: str


class CopiedTree:
    """The tracked files of the repository, as they are now, with the compiled extension of the installed package."""

    def __init__(self, folder: Path) -> None:
        self.root = root = folder / "tree"
        #: In the usual place, each run would remove what earlier runs of others have left, which may take minutes.
        self._base = folder / "t"
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            if os.path.lexists(ROOT / name):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name, follow_symlinks=False)
        extension = importlib.util.find_spec("gearcache.guards.watch._watched")
        if extension is not None and extension.origin is not None:
            shutil.copy2(extension.origin, root / "guards" / "watch")
        if (ROOT / ".servers").exists():
            (root / ".servers").symlink_to((ROOT / ".servers").resolve())
        # Hundreds of processes import it, and write no bytecode.
        subprocess.run([sys.executable, "-m", "compileall", "-q", "src", "benchmarks"], cwd=root, check=False)
        self._check_imports()

    def _check_imports(self) -> None:
        """Make sure that the copy is imported: an editable install leads to the repository."""
        command = [sys.executable, "-c", _NAMES]
        done = subprocess.run(command, cwd=self.root, env=self._environ, capture_output=True, text=True, check=False)
        places = done.stdout.split()
        if done.returncode or not all(Path(place).is_relative_to(self.root) for place in places):
            raise UnusableCopy(f"`{self.root}` is not what is imported: {done.stdout}{done.stderr[-2000:]}")

    @property
    def _environ(self) -> dict[str, str]:
        paths = os.pathsep.join([str(self.root / "src"), str(self.root)])
        return {**os.environ, **_VARIABLES, "PYTHONPATH": paths}

    @contextlib.contextmanager
    def with_fault(self, fault: Fault) -> Iterator[None]:
        """Have a fault in the copy inside the `with`."""
        path = self.root / fault.file
        original = path.read_bytes()
        fault.put_into(self.root)
        self._forget_bytecode(path)
        try:
            yield
        finally:
            path.write_bytes(original)
            self._forget_bytecode(path)

    def _forget_bytecode(self, path: Path) -> None:
        # Python tells two versions of a file apart by size and second only.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def run(self, tests: Sequence[str], *, is_first_enough: bool = True) -> Run:
        """Run some tests, or all without any, until the first one fails."""
        # In the order of the files, so that the same test is the first one each time.
        options = ["-q", *(["-x"] if is_first_enough else []), "-p", "no:cacheprovider", "-p", "no:randomly"]
        begin = time.monotonic()
        with tempfile.TemporaryFile(
            "w+", errors="replace"
        ) as file:  # a pipe would wait for what the tests leave behind
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options, "--basetemp", str(self._base), *tests],
                cwd=self.root,
                env=self._environ,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(timeout=_SECONDS if tests else _SUITE_SECONDS)
            except subprocess.TimeoutExpired:
                return Run(_ENDLESS, time.monotonic() - begin, "")
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            file.seek(0)
            output = file.read()
        return Run(_first_failed(output, code), time.monotonic() - begin, output)


def _first_failed(output: str, code: int) -> str:
    if code == 0:
        return ""
    for line in output.splitlines():
        outcome, _, rest = line.partition(" ")
        if outcome in ("FAILED", "ERROR") and rest.startswith("tests/"):
            return rest.partition(" - ")[0]
    if code in _NOTHING_RUN:
        raise UnusableCopy(f"pytest ended with {code}:\n{output[-3000:]}")
    return f"pytest ended with {code}"  # as where a fault ends the process
