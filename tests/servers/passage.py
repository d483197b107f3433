"""One request on its way through the fault proxy, and the answer on its way back."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import termios
import time
from typing import TYPE_CHECKING, Protocol, Self

from tests.servers.faults import Action, CloseConnectionError, ResetConnectionError
from tests.servers.http_framing import Head, Incoming, response_has_body

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from tests.servers.fault_proxy import Request

HOP_BY_HOP = ("connection", "keep-alive", "proxy-connection")
FIRST_FINAL_STATUS = 200
LAST_BYTES_TIMEOUT = 1.0


class Proxy(Protocol):
    """What a passage needs of the proxy."""

    closing: threading.Event

    def register(self, head: Head) -> Request:
        """Note a request and the fault that strikes it."""

    def connect_upstream(self) -> socket.socket:
        """Open a fresh connection to the server."""


class Passage:
    """Carries one request there and the answer back, with the fault at its moment.

    It is the `Exchange` that actions work on.
    """

    def __init__(self, proxy: Proxy, client: socket.socket, incoming: Incoming, head: Head) -> None:
        self._proxy = proxy
        self._client = client
        self._incoming = incoming
        self._head = head
        self._request = proxy.register(head)
        self._action = self._request.fault or Action()
        self._body: list[bytes] = []
        self._receiving = self._receive()
        self._server: socket.socket | None = None
        self._pieces: Iterator[bytes] = iter(())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        if kind is ResetConnectionError:
            _reset(self._client)

    def run(self) -> None:
        """Do it all; an exception ends the client's connection."""
        if self._action.on_request_head(self):
            return
        for _ in self.receive_body():
            pass
        head = self._ask_server()
        if self._action.on_response_head(self):
            return
        self._request.status = head.status
        self._client.sendall(head.encode())
        self._action.on_response_body(self)
        if head.length is None and not head.is_chunked and self._has_body(head):
            raise CloseConnectionError

    def receive_body(self) -> Iterator[bytes]:
        return self._receiving

    def answer(self, head: Head, body: bytes) -> None:
        self._request.status = head.status
        self._request.sent = len(body) if self._has_body(head) else 0
        complete = head.having("Content-Length", str(len(body))).encode()
        self._client.sendall(complete + body[: self._request.sent])

    def send_body(self) -> None:
        for piece in self._pieces:
            self._send(piece)

    def send_some_body(self, most: int) -> None:
        start = b""
        while len(start) <= most and (piece := next(self._pieces, b"")):
            start += piece
        # A body that is shorter than asked for would otherwise arrive whole: no fault at all.
        self._send(start[: min(most, max(0, len(start) - 1))])

    def drain_response(self) -> None:
        for _ in self._pieces:
            pass

    def pause(self, seconds: float) -> None:
        if self._proxy.closing.wait(seconds):
            raise CloseConnectionError

    def wait_until_client_leaves(self) -> None:
        self._incoming.wait_for_close()

    def _has_body(self, head: Head) -> bool:
        return response_has_body(self._request.method, head)

    def _send(self, piece: bytes) -> None:
        # Counted first: the client may look at the count as soon as it has the bytes.
        self._request.sent += len(piece)
        self._client.sendall(piece)

    def _receive(self) -> Iterator[bytes]:
        if (self._head.get("expect") or "").lower() == "100-continue":
            self._client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        for piece in self._incoming.body(self._head):
            self._body.append(piece)
            self._request.received += len(piece)
            yield piece

    def _ask_server(self) -> Head:
        # Expect was answered here. No S3 client signs it, nor the fields for one hop only.
        head = self._head.without(*HOP_BY_HOP, "expect").having("Connection", "close")
        self._server = self._proxy.connect_upstream()
        with contextlib.suppress(ConnectionError):  # it may refuse early, and has answered then
            self._server.sendall(head.encode() + b"".join(self._body))
        incoming = Incoming(self._server)
        answer = incoming.head()
        while answer is not None and answer.status < FIRST_FINAL_STATUS:
            answer = incoming.head()
        if answer is None:
            raise CloseConnectionError
        if self._has_body(answer):
            self._pieces = incoming.body(answer, until_close=True)
        # An HTTP/1.0 server says in its first line that the connection ends; this one does not.
        _, rest = answer.first_line.split(" ", 1)
        return Head(f"HTTP/1.1 {rest}", answer.without(*HOP_BY_HOP).fields)


def _reset(connection: socket.socket) -> None:
    """Close with a TCP reset, which throws away what the peer's machine has not taken yet."""
    deadline = time.monotonic() + LAST_BYTES_TIMEOUT
    with contextlib.suppress(OSError):
        while _not_taken(connection) and time.monotonic() < deadline:
            time.sleep(0.001)
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _not_taken(connection: socket.socket) -> int:
    answer = fcntl.ioctl(connection, termios.TIOCOUTQ, struct.pack("i", 0))
    return int(struct.unpack("i", answer)[0])
