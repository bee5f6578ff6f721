"""A headless Chromium, driven over the pipe that it offers (`--remote-debugging-pipe`): no package is needed for it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.programs import find_program, program_environment

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
_SECONDS = 60.0


def find_browser() -> str | None:
    """The program, or None on a host without one."""
    return find_program(*NAMES, unpacked="usr/lib/chromium/chromium-headless-shell")


class Page:
    """One page. `problems` are errors and warnings of the console, exceptions, and whatever was asked of a network."""

    def __init__(self, process: subprocess.Popen[bytes], write: int, read: int) -> None:
        self.problems: list[str] = []
        self._process, self._write, self._read = process, write, read
        self._number, self._rest = 0, b""
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            answer = self._receive(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)
        raise TimeoutError(f"the browser does not answer {method}")

    def open(self, path: Path) -> float:
        """Open a file and wait until all of it is there; returns the seconds that it took."""
        begin = time.perf_counter()
        uri = path.resolve().as_uri()
        self.send("Page.navigate", url=uri)
        while not self.run(f"document.URL === {json.dumps(uri)} && document.readyState === 'complete'"):
            assert time.perf_counter() - begin < _SECONDS, "the page was not loaded"
            time.sleep(0.02)
        return time.perf_counter() - begin

    def run(self, expression: str) -> Any:
        """Evaluate JavaScript and return its value; fails where it throws."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def look(self, *, width: int = 1100, height: int = 900) -> None:
        """Choose the size of the window."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press and release a key."""
        named = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **named)
        self.send("Input.dispatchKeyEvent", type="keyUp", **named)

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._read, 1 << 20) if ready else b""
            if not data:
                raise TimeoutError(f"the browser is silent; it has ended with {self._process.poll()}")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        name, told = event.get("method", ""), event.get("params", {})
        if name == "Runtime.exceptionThrown":
            self.problems.append(str(told["exceptionDetails"]))
        elif name == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.problems.append(str(told["args"]))
        elif name == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.problems.append(told["entry"]["text"])
        elif name == "Network.requestWillBeSent" and not told["request"]["url"].startswith(("file:", "about:")):
            self.problems.append(f"asks for {told['request']['url']}")


@contextmanager
def browser(program: str) -> Iterator[Page]:
    """A page of a browser of its own, which ends with the block."""
    to_browser, write = os.pipe()
    read, from_browser = os.pipe()
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        command += ["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"]
        command += [f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        # It reads from descriptor 3 and writes to 4; other shells than bash know descriptors of one digit only.
        shell = ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash", *command]
        process = subprocess.Popen(
            shell,
            pass_fds=(to_browser, from_browser),
            env=program_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            yield Page(process, write, read)
        finally:
            os.close(write)
            os.close(read)
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
