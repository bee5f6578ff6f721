"""Start another Python as a child, and exchange messages with it over its standard input and output.

It has this one's import path: the same flags except `-P`, the same `sys.path`. Messages are length-prefixed msgpack of
plain data.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import IO, Any

from msgspec import msgpack

_LENGTH = 8

#: Python 3.10 has no `-P`: `-c` puts the working folder first, and the program removes it before anything is imported.
_SAME_PATH = "import sys; sys.path[:] = sys.argv[1:]; del sys.argv[1:]\n"


def python_command(program: str) -> list[str]:
    """Return the command that runs a program text under the flags and the `sys.path` of this process."""
    paths = [path for path in sys.path if isinstance(path, str) and "\0" not in path]
    return [sys.executable, *_flags(), "-c", _SAME_PATH + program, *paths]


def python_environment() -> dict[str, str]:
    """Return this environment without variables that make an interpreter import or run code at its start.

    A relative `PYTHONPATH` could name another folder than when this process was started.
    """
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONINSPECT")}


def send(stream: IO[bytes], message: Any) -> None:
    """Write one message."""
    data = msgpack.encode(message)
    stream.write(len(data).to_bytes(_LENGTH, "little") + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message; `EOFError` at the end of the stream."""
    return msgpack.decode(_exactly(stream, int.from_bytes(_exactly(stream, _LENGTH), "little")))


def messages_as_output() -> IO[bytes]:
    """Return the standard output for messages; what libraries print goes to the standard error from now on."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return output


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError("it closed the connection")
    return data


def _flags() -> list[str]:
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    # Without it Python 3.13 imports `linecache`, maybe one in the working folder, before our first line.
    if sys.version_info >= (3, 11) and not sys.flags.safe_path:
        flags.append("-P")
    for name, value in sys._xoptions.items():
        option = name if value is True else f"{name}={value}"
        if option not in flags:
            flags += ["-X", option]
    return flags
