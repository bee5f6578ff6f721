"""One worker process of `serve.py`: uvicorn on a given socket, and a channel to its parent.

    python worker.py LISTENING_FD CHANNEL_FD

Writes a line of JSON to the channel when it is ready or has failed, and stops when the other end is closed, so no
worker outlives the parent.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from typing import Any


def leave(signum: int, frame: Any) -> None:
    """End the process immediately: a thread that still compiles would find an interpreter in shutdown."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main() -> None:
    """Import the application, and serve it until SIGTERM. Then current requests are answered, for 20 s at most."""
    begin = time.perf_counter()
    # Before uvicorn has its own handler there is nothing to finish; when it has finished, it raises the signal again.
    signal.signal(signal.SIGTERM, leave)
    listening = socket.socket(fileno=int(sys.argv[1]))
    channel = socket.socket(fileno=int(sys.argv[2]))
    import uvicorn
    from app import app, service

    service.seconds = {"import": time.perf_counter() - begin - sum(service.seconds.values()), **service.seconds}

    def tell(report: dict[str, Any]) -> None:
        channel.sendall(json.dumps(report).encode() + b"\n")

    def follow_parent() -> None:
        channel.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)

    service.listen(tell)
    threading.Thread(target=follow_parent, name="parent", daemon=True).start()
    config = uvicorn.Config(app, lifespan="on", log_level="warning", timeout_graceful_shutdown=20)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
