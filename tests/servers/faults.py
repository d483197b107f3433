"""The ways in which an S3 server, or the network before it, can fail.

A fault is an action and the requests that it strikes:

    proxy.add(Fault(reset_in_body(1000), method="GET", path="part-00001", times=2, after=1))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol
from urllib.parse import unquote

from tests.servers.http_framing import Head

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class ResetConnectionError(Exception):
    """Raised by an action: end the connection with a TCP reset."""


class CloseConnectionError(Exception):
    """Raised by an action: end the connection in the orderly way."""


class Exchange(Protocol):
    """One request and its answer while they pass the proxy: what an action may do to them."""

    def receive_body(self) -> Iterator[bytes]:
        """Yield the pieces of the request's body that were not received before."""

    def answer(self, head: Head, body: bytes) -> None:
        """Answer the client without asking the server."""

    def send_body(self) -> None:
        """Pass the server's whole body on to the client."""

    def send_some_body(self, most: int) -> None:
        """Pass on so many bytes of the server's body, but never all of it."""

    def drain_response(self) -> None:
        """Read the server's whole answer and drop it."""

    def pause(self, seconds: float) -> None:
        """Wait so long; the request ends here if the proxy closes meanwhile."""

    def wait_until_client_leaves(self) -> None:
        """Wait until the client gives up, or the proxy closes."""


class Action:
    """Does no harm at any of three moments; each fault is a subclass that acts at one of them."""

    def on_request_head(self, exchange: Exchange) -> bool:
        """Act once the request's head is here; True when the request is answered already."""
        del exchange
        return False

    def on_response_head(self, exchange: Exchange) -> bool:
        """Act once the server has done its work; True when the request is answered already."""
        del exchange
        return False

    def on_response_body(self, exchange: Exchange) -> None:
        """Act when the client has the response's head."""
        exchange.send_body()


@dataclass(frozen=True, slots=True)
class _ResetBeforeRequest(Action):
    def on_request_head(self, exchange: Exchange) -> bool:
        del exchange
        raise ResetConnectionError


@dataclass(frozen=True, slots=True)
class _ResetDuringUpload(Action):
    after_bytes: int

    def on_request_head(self, exchange: Exchange) -> bool:
        received = 0
        for piece in exchange.receive_body():
            received += len(piece)
            if received >= self.after_bytes:
                break
        raise ResetConnectionError


@dataclass(frozen=True, slots=True)
class _Status(Action):
    code: int
    body: bytes
    headers: Mapping[str, str]
    after_success: bool

    def on_request_head(self, exchange: Exchange) -> bool:
        if not self.after_success:
            for _ in exchange.receive_body():
                pass
            self._answer(exchange)
        return not self.after_success

    def on_response_head(self, exchange: Exchange) -> bool:
        exchange.drain_response()
        self._answer(exchange)
        return True

    def _answer(self, exchange: Exchange) -> None:
        exchange.answer(Head(f"HTTP/1.1 {self.code} Fault", tuple(self.headers.items())), self.body)


@dataclass(frozen=True, slots=True)
class _LoseResponse(Action):
    def on_response_head(self, exchange: Exchange) -> bool:
        exchange.drain_response()
        raise ResetConnectionError


@dataclass(frozen=True, slots=True)
class _CutBody(Action):
    after_bytes: int
    end: type[Exception]

    def on_response_body(self, exchange: Exchange) -> None:
        exchange.send_some_body(self.after_bytes)
        raise self.end


@dataclass(frozen=True, slots=True)
class _Delay(Action):
    seconds: float
    before: Literal["request", "body"]

    def on_request_head(self, exchange: Exchange) -> bool:
        if self.before == "request":
            exchange.pause(self.seconds)
        return False

    def on_response_body(self, exchange: Exchange) -> None:
        if self.before == "body":
            exchange.pause(self.seconds)
        exchange.send_body()


@dataclass(frozen=True, slots=True)
class _Stall(Action):
    def on_request_head(self, exchange: Exchange) -> bool:
        exchange.wait_until_client_leaves()
        raise CloseConnectionError


def reset_before_request() -> Action:
    """Reset the connection as soon as the request's head is known; the server never sees it."""
    return _ResetBeforeRequest()


def reset_during_upload(after_bytes: int) -> Action:
    """Reset once about so much of the request's body has come; the server never sees it."""
    return _ResetDuringUpload(after_bytes)


def reset_in_body(after_bytes: int) -> Action:
    """Pass on the answer's head and so many bytes of its body, never all of it, then reset."""
    return _CutBody(after_bytes, ResetConnectionError)


def truncate_body(after_bytes: int) -> Action:
    """Do as `reset_in_body`, but close in the orderly way."""
    return _CutBody(after_bytes, CloseConnectionError)


def lose_response() -> Action:
    """Let the server do the whole request, then reset instead of answering."""
    return _LoseResponse()


def status(
    code: int,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    *,
    after_success: bool = False,
) -> Action:
    """Answer with this status; the server never sees the request, or does it first."""
    return _Status(code, body, headers or {}, after_success)


def s3_error(code: int, name: str, *, after_success: bool = False) -> Action:
    """Answer with a status and the XML of S3, as in ``s3_error(503, "SlowDown")``."""
    text = f"<Error><Code>{name}</Code><Message>injected</Message><RequestId>0</RequestId></Error>"
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()
    return status(code, body, {"Content-Type": "application/xml"}, after_success=after_success)


def delay(seconds: float, before: Literal["request", "body"] = "request") -> Action:
    """Wait before the request goes on to the server, or between the answer's head and its body."""
    return _Delay(seconds, before)


def stall() -> Action:
    """Never answer; the server never sees the request."""
    return _Stall()


@dataclass(slots=True)
class Fault:
    """An action, the requests it strikes, and how often it did.

    It matches requests of this `method` (None: any) whose path with the query, as sent or
    percent-decoded, contains `path`. The first `after` of them pass unharmed, the next `times`
    are struck (None: all).
    """

    action: Action
    method: str | None = None
    path: str = ""
    times: int | None = 1
    after: int = 0
    applied: int = field(default=0, init=False)
    _passed: int = field(default=0, init=False, repr=False)

    def strikes(self, method: str, path: str) -> bool:
        """Count a request, under the proxy's lock; return whether this fault strikes it."""
        if self.method not in (None, method):
            return False
        if self.path not in path and self.path not in unquote(path):
            return False
        if self._passed < self.after:
            self._passed += 1
            return False
        if self.times is not None and self.applied >= self.times:
            return False
        self.applied += 1
        return True
