"""nginx, as `scripts/servers.sh` unpacks it or the system has it."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gearcache.cache.remote.engines.protocol import Remote
from tests.cache.remote.real_engines import Site, free_port, wait_for
from tests.support.programs import find_program

#: Every file that it may write lies in its folder. Bodies are compressed for whoever takes that, as sites do.
_SETTINGS = """
daemon off; master_process off; error_log stderr; pid {path}/pid;
events {{}}
http {{
    access_log off; gzip on; gzip_min_length 1; gzip_types *; default_type application/octet-stream;
    client_body_temp_path {path}/a; proxy_temp_path {path}/b; fastcgi_temp_path {path}/c;
    uwsgi_temp_path {path}/d; scgi_temp_path {path}/e;
    server {{ listen 127.0.0.1:{port}; root {path}/site; location /moved/ {{ return 302 /v4/; }} }}
}}
"""


def nginx_program() -> str | None:
    """Return the path of nginx; None where there is none."""
    return find_program("nginx", unpacked="usr/sbin/nginx")


@contextmanager
def nginx() -> Iterator[Remote]:
    """A read-only web server that is not Python's."""
    program = nginx_program()
    assert program is not None
    with tempfile.TemporaryDirectory() as path:
        port = free_port()
        site = Path(path, "site")
        site.mkdir()
        # Its workers may have another user than root.
        Path(path).chmod(0o755)
        Path(path, "nginx.conf").write_text(_SETTINGS.format(path=path, port=port))
        process = subprocess.Popen([program, "-p", path, "-c", f"{path}/nginx.conf"], stderr=subprocess.DEVNULL)
        try:
            remote = Site(f"http://127.0.0.1:{port}/", str(site))
            wait_for(remote)
            yield remote
        finally:
            process.kill()
            process.wait()
