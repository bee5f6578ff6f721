"""Fresh interpreters that have imported torch and nothing of ours: forks of one that waits for orders.

A start of Python with torch takes more than a second of a processor, and with its compilers several; the tests start
hundreds. A fork runs its code as the main program. What an interpreter reads before its first line (`PYTHONHASHSEED`,
`OMP_…`) is that of the server, so who sets that starts a process of their own. `THOROUGH=1` lets all do so.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
#: Variables that are read before a fork can set them.
_READ_EARLY = ("PYTHON", "OMP_", "MKL_", "KMP_", "GOMP_", "LD_", "TORCH_")
#: Of these, what a fork does itself when it begins.
_SET_LATE = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONWARNINGS")
#: What a server imports: what every process has, or what one that compiles has too.
TORCH = ("torch",)
COMPILERS = ("torch", "torch._dynamo", "torch._inductor.compile_fx")


class ForkServer:
    """The server of this process."""

    def __init__(self, environ: Mapping[str, str], imports: tuple[str, ...]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="forks-")
        self._address = str(Path(self._folder.name, "orders"))
        program = f"from {__name__} import main; main({self._address!r}, {os.getpid()}, {imports})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], env=environ, cwd=_ROOT, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        atexit.register(self.close)

    def run(
        self,
        code: str,
        arguments: tuple[str, ...],
        *,
        cwd: Path,
        environ: Mapping[str, str],
        timeout: float,
        ends: bool,
    ) -> subprocess.CompletedProcess[str]:
        """Run code to its end; as `subprocess.run` with texts, `TimeoutExpired` included.

        Unless it `ends` as every interpreter does, it leaves what was imported as it is, which takes most of the time.
        """
        with (
            tempfile.NamedTemporaryFile(dir=self._folder.name) as out,
            tempfile.NamedTemporaryFile(dir=self._folder.name) as errors,
            socket.socket(socket.AF_UNIX) as orders,
        ):
            order = {"code": code, "argv": ["-c", *arguments], "cwd": str(cwd), "environ": dict(environ), "ends": ends}
            orders.settimeout(timeout)
            orders.connect(self._address)
            orders.sendall(json.dumps(order | {"out": out.name, "errors": errors.name}).encode() + b"\n")
            answers = orders.makefile()
            pid = int(answers.readline())
            try:
                status = int(answers.readline())
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(code, timeout) from None
            texts = [Path(file.name).read_text(errors="replace") for file in (out, errors)]
        return subprocess.CompletedProcess([code, *arguments], os.waitstatus_to_exitcode(status), *texts)

    def close(self) -> None:
        """End the server; forks that run go on."""
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


def run_code(
    code: str,
    *arguments: str,
    environ: Mapping[str, str],
    cwd: Path,
    compiles: bool = False,
    ends: bool = False,
    timeout: float = 240.0,
) -> subprocess.CompletedProcess[str]:
    """Run code as a program with these variables, in a process that has imported nothing of ours, and maybe torch.

    `compiles`: it may have imported the compilers too. `ends`: it takes down all that it has loaded.
    """
    if may_fork(environ):
        server = _server(_read_early(os.environ), os.getpid(), COMPILERS if compiles else TORCH)
        return server.run(code, arguments, cwd=cwd, environ=environ, timeout=timeout, ends=ends)
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, cwd=cwd, env=dict(environ), capture_output=True, text=True, timeout=timeout, check=False
    )


def may_fork(environ: Mapping[str, str]) -> bool:
    """Whether a fork can stand for a process with these variables."""
    early = {name: value for name, value in environ.items() if name.startswith(_READ_EARLY) and name not in _SET_LATE}
    return not os.environ.get("THOROUGH") and early.items() <= os.environ.items()


def _read_early(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(item for item in environ.items() if item[0].startswith((*_READ_EARLY, "HOME", "PATH"))))


@functools.cache
def _server(environ: tuple[tuple[str, str], ...], pid: int, imports: tuple[str, ...]) -> ForkServer:
    """Return the server of a process, started with these variables."""
    del pid  # a fork of this process starts its own
    return ForkServer(dict(environ), imports)


def main(address: str, parent: int, imports: tuple[str, ...]) -> None:
    """Be the server: a fork of it leaves this function, and so runs its order with nothing of it on the stack."""
    for name in imports:
        importlib.import_module(name)
    # The garbage collector of a fork, at its end too, would touch all that was imported, and so copy it.
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    listener.settimeout(5.0)
    print("ready", flush=True)
    while True:
        with contextlib.suppress(ChildProcessError):  # not ignored: so their processor time counts as the server's
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            if os.getppid() != parent:
                os._exit(0)
            continue
        connection.setblocking(True)
        if os.fork() == 0:
            break
        connection.close()
    listener.close()
    order: dict[str, Any] = json.loads(connection.makefile().readline())
    if (child := os.fork()) != 0:  # waits for it, and tells how it ended
        connection.sendall(f"{child}\n".encode())
        connection.sendall(f"{os.waitpid(child, 0)[1]}\n".encode())
        os._exit(0)
    connection.close()
    _become(order)


def _become(order: dict[str, Any]) -> None:
    os.chdir(order["cwd"])
    _set_late(dict(os.environ), order["environ"])
    os.environ.clear()
    os.environ.update(order["environ"])
    for descriptor, name in ((1, order["out"]), (2, order["errors"])):
        file = os.open(name, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, descriptor)
        os.close(file)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    sys.argv[:] = order["argv"]
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    tempfile.tempdir = None
    program = types.ModuleType("__main__")
    sys.modules["__main__"] = program
    code = compile(order["code"], "<string>", "exec", dont_inherit=True)  # as without this file's `__future__`
    if order["ends"]:
        exec(code, vars(program))  # noqa: S102 - the code of a test
        return
    status = 0
    try:
        exec(code, vars(program))  # noqa: S102
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        status = end.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status & 0xFF)


def _set_late(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Do what an interpreter does at its start with those variables that differ."""
    paths, own = ([path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path] for env in (before, after))
    if paths != own:
        sys.path[1 : 1 + len(paths)] = own  # behind the folder of the program
    sys.dont_write_bytecode = bool(after.get("PYTHONDONTWRITEBYTECODE"))
    for action in filter(None, after.get("PYTHONWARNINGS", "").split(",")):
        warnings.simplefilter(action)  # type: ignore[arg-type]
