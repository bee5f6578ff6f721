"""A running `serve.py`, from the view of its client and its operator: requests, health, deploys, and shutdown."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx


class Running:
    """Starts the server of a folder, with its own cache; `stop`, or the end of a `with`, ends it."""

    def __init__(self, folder: Path, cache: Path, *options: str) -> None:
        self.folder = folder
        self.lines: list[str] = []
        #: The number of requests that were sent again.
        self.retries = 0
        self._begin = time.perf_counter()
        command = [sys.executable, str(folder / "serve.py"), "--port", "0", "--admin-port", "0", *options]
        # The compilers' own caches are beside it, so that each start finds only what the previous start has left.
        environment = {
            **os.environ,
            "TORCHAIR_CACHE_HOME": str(cache),
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        }
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        address = self._wait(lambda: next((line for line in self.lines if "admin http" in line), None), 60)
        self.url, _, self.admin = address.removeprefix("serve: ").partition(", admin ")

    def __enter__(self) -> Running:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.stop()
        except RuntimeError:
            if kind is None:  # else another exception is already being raised
                raise

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())

    def _wait(self, ask: Any, seconds: float) -> Any:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end and self.process.poll() is None:
            with contextlib.suppress(httpx.TransportError):  # it is about to end
                if found := ask():
                    return found
            time.sleep(0.02)
        raise RuntimeError(f"not within {seconds} s, or the server has ended:\n" + "\n".join(self.lines))

    def age(self) -> float:
        """Return the seconds since the start of the server."""
        return time.perf_counter() - self._begin

    def health(self) -> tuple[int, dict[str, Any]]:
        """Return status and body of the readiness probe."""
        answer = httpx.get(f"{self.admin}/ready", timeout=30)
        return answer.status_code, answer.json()

    def wait_ready(self, seconds: float = 600) -> tuple[float, list[dict[str, Any]]]:
        """Wait for a green probe; returns the seconds since the start of the server, and the workers' reports."""
        self._wait(self._is_ready, seconds)
        return self.age(), self.health()[1]["workers"]

    def _is_ready(self) -> bool:
        status, body = self.health()
        for worker in body["workers"]:
            if worker["state"] not in ("cold", "ready"):
                raise RuntimeError(f"worker {worker['pid']}: {worker['state']}")
        return status == 200

    def embed(self, client: httpx.Client, texts: list[str]) -> dict[str, Any]:
        """Send a request; send it again if a stopping worker has closed the connection in the meantime."""
        try:
            answer = client.post(f"{self.url}/embed", json={"texts": texts}, timeout=600)
        except (httpx.RemoteProtocolError, httpx.ReadError):
            self.retries += 1
            answer = client.post(f"{self.url}/embed", json={"texts": texts}, timeout=600)
        answer.raise_for_status()
        return answer.json()

    def metrics(self) -> dict[str, float]:
        """Return the samples of a scrape, by name with labels."""
        lines = httpx.get(f"{self.admin}/metrics", timeout=30).text.splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}

    def deploy(self, *changes: tuple[str, str], seconds: float = 600) -> str:
        """Replace texts in `model.py`, signal the server, and wait: `done` or `failed`."""
        file = self.folder / "model.py"
        text = file.read_text()
        for old, new in changes:
            if text.count(old) != 1:
                raise ValueError(f"{file} has {text.count(old)} times: {old}")
            text = text.replace(old, new)
        written = file.with_suffix(".new")
        written.write_text(text)
        os.replace(written, file)
        before = self.health()[1]["deploys"]
        self.process.send_signal(signal.SIGHUP)

        def outcome() -> str | None:
            after = self.health()[1]["deploys"]
            return next((name for name in after if after[name] > before[name]), None)

        found: str = self._wait(outcome, seconds)
        return found

    def stop(self) -> float:
        """Stop as an operator does, and return the seconds that it took; `RuntimeError` unless it exits with 0."""
        begin = time.perf_counter()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        if code != 0:
            raise RuntimeError(f"the server has ended with {code}:\n" + "\n".join(self.lines))
        return time.perf_counter() - begin
