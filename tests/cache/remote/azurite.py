"""Azure's blobs by their emulator Azurite, which is from npm, by `scripts/servers.sh`."""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from gearcache.cache.remote.engines.objects import ObjectRemote
from gearcache.cache.remote.engines.protocol import Remote
from tests.cache.remote.real_engines import free_port, wait_for
from tests.support.programs import find_program

#: The account of every emulator, as Microsoft's pages give it.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_VERSION = "2021-08-06"


def azurite_program() -> str | None:
    """Return the path of Azurite; None where there is none, or no node to run it."""
    return find_program("azurite-blob", unpacked="node_modules/.bin/azurite-blob") if shutil.which("node") else None


@contextmanager
def azure() -> Iterator[Remote]:
    """A container of Azurite."""
    program, port = azurite_program(), free_port()
    assert program is not None
    with tempfile.TemporaryDirectory() as path:
        command = [program, "--silent", "--blobHost", "127.0.0.1", "--blobPort", str(port)]
        command += ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
        process = subprocess.Popen(command, cwd=path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            endpoint = f"http://127.0.0.1:{port}/{_ACCOUNT}"
            options = {"account_name": _ACCOUNT, "account_key": _KEY, "endpoint": endpoint}
            remote = ObjectRemote("az://team/gears", options)
            wait_for(remote)
            _make_container(endpoint, "team")
            yield remote
        finally:
            process.kill()
            process.wait()


def _make_container(endpoint: str, name: str) -> None:
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
    signed = f"PUT{chr(10) * 12}x-ms-date:{now}\nx-ms-version:{_VERSION}\n"
    signed += f"/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
    digest = hmac.new(base64.b64decode(_KEY), signed.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": now,
        "x-ms-version": _VERSION,
        "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}",
        "Content-Length": "0",
    }
    request = urllib.request.Request(f"{endpoint}/{name}?restype=container", method="PUT", headers=headers)
    urllib.request.urlopen(request, timeout=10).close()
