"""A proxy in front of an S3 server that loses answers.

It passes requests on and, as told, breaks single ones:

    after    the server did the work, and the client gets a 503 instead of its answer
    dropped  the server did the work, and the connection closes without an answer
    before   the server never hears of it, and the connection closes
"""

from __future__ import annotations

import http.client
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Literal

Fault = Literal["after", "dropped", "before"]


class FaultyProxy:
    """Where to connect, and the faults that the next PUTs will meet, first one first."""

    def __init__(self, endpoint: str, faults: deque[Fault]) -> None:
        self.endpoint = endpoint
        self.faults = faults


@contextmanager
def running_faulty_proxy(server_endpoint: str) -> Iterator[FaultyProxy]:
    faults: deque[Fault] = deque()
    upstream = server_endpoint.removeprefix("http://")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self) -> None:
            fault = faults.popleft() if self.command == "PUT" and faults else None
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if fault == "before":
                return self.hang_up()
            connection = http.client.HTTPConnection(upstream, timeout=30)
            # The signature covers the Host header: it is passed on as the client wrote it.
            connection.request(self.command, self.path, body=body, headers=dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if fault == "dropped":
                return self.hang_up()
            self.send_response(503 if fault == "after" else answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(name, value)
            length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(content))
            self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(content)
            return None

        do_GET = do_HEAD = do_PUT = do_DELETE = pass_on

        def hang_up(self) -> None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as proxy:
        proxy.daemon_threads = True
        thread = Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield FaultyProxy(f"http://127.0.0.1:{proxy.server_port}", faults)
        finally:
            proxy.shutdown()
            thread.join()
