"""A proxy in front of an S3 endpoint that counts requests and breaks those it is told to break.

Requests go on as they came, the Host header included, since SigV4 signs it. Each gets a connection
of its own to the server, so that no request depends on the one before; towards the client
connections stay open, because S3 clients pool them.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from tests.servers.faults import Action, CloseConnectionError, ResetConnectionError
from tests.servers.http_framing import Incoming
from tests.servers.passage import Passage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.servers.faults import Fault
    from tests.servers.http_framing import Head

SERVER_TIMEOUT = 60.0
CLOSE_TIMEOUT = 10.0


@dataclass(slots=True)
class Request:
    """One request that reached the proxy."""

    method: str
    path: str
    """The path and the query as sent."""
    range: str | None
    headers: dict[str, str] = field(repr=False)
    """By lower-case name."""
    received: int = 0
    """Bytes of its body, chunk framing included."""
    status: int | None = None
    """What the client was answered; None while, or when, it is not."""
    sent: int = 0
    """Bytes of the answer's body that were passed on."""
    fault: Action | None = None
    """What struck it."""


class FaultProxy:
    """Listens on a loopback port, in threads of this process, until the `with` block ends."""

    def __init__(self, upstream: str, storage_options: Mapping[str, str] | None = None) -> None:
        """Stand in front of `upstream`, whose storage options are those given."""
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._address: tuple[str, int] = self._listener.getsockname()
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._open: dict[threading.Thread, list[socket.socket]] = {}
        self.closing = threading.Event()
        self.requests: list[Request] = []
        """All requests in the order of their arrival."""
        self.connections = 0
        """How many connections clients opened."""
        self.url = f"http://127.0.0.1:{self._address[1]}"
        self.storage_options = {**(storage_options or {}), "endpoint": self.url}
        self._acceptor = threading.Thread(target=self._accept, name="fault-proxy", daemon=True)
        self._acceptor.start()

    def add(self, fault: Fault) -> Fault:
        """Arm a fault; of several that match a request, the one added first strikes."""
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Disarm all faults and forget the requests and connections seen so far."""
        with self._lock:
            self._faults.clear()
            self.requests.clear()
            self.connections = 0

    def count(self, method: str | None = None, path: str = "") -> int:
        """Return how many requests had this method and this text in their path."""
        with self._lock:
            return sum(r.method == (method or r.method) and path in r.path for r in self.requests)

    def close(self) -> None:
        """End every connection and thread."""
        self.closing.set()
        # A thread that waits in accept() notices a connection, but not that its socket was closed.
        with contextlib.suppress(OSError), socket.create_connection(self._address, CLOSE_TIMEOUT):
            pass
        deadline = time.monotonic() + CLOSE_TIMEOUT
        self._acceptor.join(CLOSE_TIMEOUT)
        self._listener.close()
        with self._lock:
            still_open = dict(self._open)
        for connection in itertools.chain.from_iterable(still_open.values()):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in still_open:
            thread.join(max(0.0, deadline - time.monotonic()))
        alive = [thread.name for thread in (self._acceptor, *still_open) if thread.is_alive()]
        if alive:
            raise TimeoutError(f"threads of the proxy still run after {CLOSE_TIMEOUT} s: {alive}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def register(self, head: Head) -> Request:
        """Note a request and the fault that strikes it."""
        method, path, _ = head.first_line.split(" ", 2)
        headers = {name.lower(): value for name, value in head.fields}
        request = Request(method, path, head.get("range"), headers)
        with self._lock:
            self.requests.append(request)
            fault = next((f for f in self._faults if f.strikes(method, path)), None)
            request.fault = fault.action if fault else None
        return request

    def connect_upstream(self) -> socket.socket:
        """Open a fresh connection to the server."""
        connection = socket.create_connection(self._upstream, SERVER_TIMEOUT)
        with self._lock:
            self._open[threading.current_thread()][1:] = [connection]
        return connection

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if self.closing.is_set():
                connection.close()
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread = threading.Thread(
                target=self._serve, args=(connection,), name="fault-proxy-connection", daemon=True
            )
            with self._lock:
                self.connections += 1
                self._open[thread] = [connection]
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        incoming = Incoming(connection)
        try:
            # OSError: the client left, or the server did, and neither is the proxy's business.
            with (
                contextlib.closing(connection),
                contextlib.suppress(OSError, CloseConnectionError, ResetConnectionError),
            ):
                while not self.closing.is_set() and (head := incoming.head()) is not None:
                    with Passage(self, connection, incoming, head) as passage:
                        passage.run()
        finally:
            with self._lock:
                del self._open[threading.current_thread()]
