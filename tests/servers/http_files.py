"""Files behind a plain HTTP server, with the habits and faults that such servers have."""

from __future__ import annotations

import hashlib
import re
import socket
import struct
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


class Asked(NamedTuple):
    """A request that the server received."""

    method: str
    target: str
    """Path and query, as they came."""
    range: str | None


@dataclass
class HttpFiles:
    """Files by path, and how they are served."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    moved: dict[str, str] = field(default_factory=dict)
    """Paths that are answered with a redirect, and where to."""
    ignores_ranges: bool = False
    ignores_if_match: bool = False
    tag: str = '"{}"'
    """The form of an ETag; "" for none."""
    has_times: bool = True
    no_head: int = 0
    """The status of every answer to a HEAD; 0 for the right one."""
    hides_length: bool = False
    """Answers to a HEAD do not say how long the file is."""
    refusals: list[int] = field(default_factory=list)
    """The statuses of the next answers to a GET."""
    resets: int = 0
    """How many of the next bodies break off in the middle."""

    def put(self, url: str, content: bytes) -> str:
        """Serve bytes under a URL of this server, or under a path."""
        path = unquote(url.removeprefix(self.url))
        self.files[path], self.times[path] = content, time.time()
        return f"{self.url}{url.removeprefix(self.url)}"

    def count(self, method: str) -> int:
        return sum(one.method == method for one in self.asked)


@contextmanager
def http_files() -> Iterator[HttpFiles]:
    """Run a server on a free port of this machine."""
    served, connections = HttpFiles(), set[socket.socket]()

    class Handler(_Handler):
        files = served

        def setup(self) -> None:
            super().setup()
            connections.add(self.connection)

        def finish(self) -> None:
            connections.discard(self.connection)
            super().finish()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        served.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
            for connection in [*connections]:  # Clients keep them open for further requests.
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    files: HttpFiles
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (of the library)
        """Say nothing."""

    def setup(self) -> None:
        super().setup()
        self.files.connections += 1

    def do_HEAD(self) -> None:
        served = self.files
        self._note()
        if served.no_head:
            self._answer(served.no_head)
        else:
            self._give(with_body=False)

    def do_GET(self) -> None:
        self._note()
        if self.files.refusals:
            self._answer(self.files.refusals.pop(0))
        else:
            self._give(with_body=True)

    def _note(self) -> None:
        self.files.asked.append(Asked(self.command, self.path, self.headers["Range"]))

    def _give(self, *, with_body: bool) -> None:
        served, path = self.files, unquote(self.path.partition("?")[0])
        if path in served.moved:
            self._answer(302, {"Location": served.moved[path]})
            return
        content = served.files.get(path)
        if content is None:
            self._answer(404)
            return
        tag = served.tag.format(hashlib.sha256(content).hexdigest()[:16])
        wanted = self.headers["If-Match"]
        if wanted and not served.ignores_if_match and wanted != tag:
            self._answer(412)
            return
        headers = {"ETag": tag} if tag else {}
        if served.has_times:
            headers["Last-Modified"] = formatdate(served.times[path], usegmt=True)
        status, body = 200, content
        asked = _RANGE.fullmatch(self.headers["Range"] or "")
        if asked and not served.ignores_ranges:
            start, stop = int(asked[1]), min(int(asked[2]) + 1, len(content))
            status, body = 206, content[start:stop]
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
        self._answer(status, headers, body, with_body=with_body)

    def _answer(
        self,
        status: int,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        with_body: bool = True,
    ) -> None:
        self.send_response(status)
        if with_body or not self.files.hides_length:
            self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if not with_body or not body:
            return
        if self.files.resets:
            self.files.resets -= 1
            self.wfile.write(body[: len(body) // 2])
            # Closed so, the connection is reset.
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
            self.close_connection = True
            return
        self.wfile.write(body)
