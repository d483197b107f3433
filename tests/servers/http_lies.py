"""A server whose answers are not what their headers and the request allow."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = 1_000_000
"""Bytes of every file, as the answers to a HEAD say."""
_GIGABYTES = 3 << 29
_BLOCK = b"x" * (256 << 10)
_SECONDS = 30
_RANGE = f"Content-Range: bytes 0-9/{SIZE}"
LIES = {
    "long-error": ("403 Forbidden", f"Content-Length: {_GIGABYTES}"),
    "endless-error": ("403 Forbidden", "Connection: close"),
    "chunked-error": ("404 Not Found", "Transfer-Encoding: chunked"),
    "endless-redirect": ("302 Found", "Location: /long-error"),
    "longer-range": ("206 Partial Content", f"{_RANGE}\r\nContent-Length: {_GIGABYTES}"),
    "endless-range": ("206 Partial Content", f"{_RANGE}\r\nConnection: close"),
    "chunked-range": ("206 Partial Content", f"{_RANGE}\r\nTransfer-Encoding: chunked"),
    "whole-file": ("200 OK", f"Content-Length: {_GIGABYTES}"),
    "other-range": ("206 Partial Content", f"Content-Range: bytes 5-9/{SIZE}"),
}
"""Statuses and headers by path; a body that does not end follows."""
DRIPS = ("dripping-head", "dripping-body", "dripping-error")
"""Answers that never end, a byte at a time."""


@dataclass
class LyingServer:
    """Where it is, and how many bytes of bodies it could send."""

    url: str = ""
    sent: dict[str, int] = field(default_factory=dict)


@contextmanager
def lying_server() -> Iterator[LyingServer]:
    """Run a server on a free port of this machine."""
    server, stop = LyingServer(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=_accept, args=(listener, server, stop))
        thread.start()
        try:
            yield server
        finally:
            stop.set()
            with suppress(OSError):
                socket.create_connection(listener.getsockname()).close()
            thread.join()


def _accept(listener: socket.socket, server: LyingServer, stop: threading.Event) -> None:
    threads = []
    while not stop.is_set():
        connection, _ = listener.accept()
        threads.append(threading.Thread(target=_serve, args=(connection, server, stop)))
        threads[-1].start()
    for thread in threads:
        thread.join()


def _serve(connection: socket.socket, server: LyingServer, stop: threading.Event) -> None:
    with connection, suppress(OSError):
        connection.settimeout(_SECONDS)
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            if not (byte := connection.recv(1)):
                return
            request += byte
        method, path = request.decode().split(" ")[:2]
        name = path.strip("/")
        if method == "HEAD":
            connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n".encode())
        elif name in DRIPS:
            _drip(connection, name, stop)
        elif name in LIES:
            status, headers = LIES[name]
            connection.sendall(f"HTTP/1.1 {status}\r\n{headers}\r\n\r\n".encode())
            block = b"%x\r\n%b\r\n" % (len(_BLOCK), _BLOCK) if "chunked" in headers else _BLOCK
            while not stop.is_set() and server.sent.get(name, 0) < _GIGABYTES:
                server.sent[name] = server.sent.get(name, 0) + connection.send(block)


def _drip(connection: socket.socket, name: str, stop: threading.Event) -> None:
    status = "403 Forbidden" if name == "dripping-error" else "206 Partial Content"
    connection.sendall(f"HTTP/1.1 {status}\r\n{_RANGE}\r\n".encode())
    if name != "dripping-head":
        connection.sendall(b"Content-Length: 10\r\n\r\n")
    while not stop.is_set():
        connection.sendall(b"x")
        time.sleep(0.2)
