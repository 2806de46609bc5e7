"""A real S3 server on loopback: versitygw, over a folder.

It is built once with Go into `.tools/bin`, as `make setup-test` does. It honours conditional puts, which is
what our commits rest on and what a mock would only repeat back to us.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]
BINARY = PROJECT / ".tools" / "bin" / "versitygw"
MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
GO_IS_MISSING = (
    "S3 suite left out: Go is not installed, and the S3 server is built with it (it needs Go 1.25 or newer)"
)

_ACCESS_KEY = "test"
_SECRET_KEY = "testsecret"
_START_SECONDS_MAX = 30


@dataclass(frozen=True, slots=True)
class S3Server:
    endpoint: str
    bucket: str
    options: Mapping[str, str]
    """What `open_store` wants to know."""


def build_s3_server() -> bool:
    """Build the server unless it is there; return False when Go is missing."""
    if BINARY.exists():
        return True
    go = shutil.which("go")
    if go is None:
        return False
    environment = {**os.environ, "GOBIN": str(BINARY.parent)}
    subprocess.run([go, "install", MODULE], env=environment, check=True, timeout=1200)
    return True


@contextmanager
def running_s3_server(folder: Path) -> Iterator[S3Server]:
    """Run the server on a free port of this machine, its files below `folder`, with one empty bucket."""
    bucket = "lake"
    data = folder / "data"
    (data / bucket).mkdir(parents=True)
    # Etags are kept as extended attributes of the files. The server's other way, `--sidecar`, keeps them in
    # files of their own, which change at another moment than the data: four processes that count by
    # `replace_if` then lose updates.
    address = f"127.0.0.1:{free_port()}"
    command = [str(BINARY), "--port", address, "--quiet", "posix", str(data)]
    environment = {**os.environ, "ROOT_ACCESS_KEY": _ACCESS_KEY, "ROOT_SECRET_KEY": _SECRET_KEY}
    log = folder / "server.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT) as server,
    ):
        try:
            _wait_until_it_answers(server, address, log)
            options = {
                "aws_endpoint": f"http://{address}",
                "aws_access_key_id": _ACCESS_KEY,
                "aws_secret_access_key": _SECRET_KEY,
                "aws_region": "us-east-1",
                "allow_http": "true",
            }
            yield S3Server(f"http://{address}", bucket, options)
        finally:
            server.kill()  # its files are thrown away; there is nothing to finish


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _wait_until_it_answers(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    host, _, port = address.partition(":")
    deadline = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < deadline and server.poll() is None:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"the S3 server did not start on {address}; it said: {log.read_text()[-2000:]}")
