"""Where an HTTP/1.1 message begins and ends on a socket, and nothing else about it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

BLOCK = 64 << 10
LONGEST_HEAD = 256 << 10
BODILESS = frozenset({204, 304})


class PeerGoneError(ConnectionError):
    """The other side closed the connection in the middle of a message."""


@dataclass(frozen=True, slots=True)
class Head:
    """The first line and the header fields of a request or a response, as received."""

    first_line: str
    fields: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str | None:
        """Return the value of a header field, whatever the case of its name, or None."""
        for field, value in self.fields:
            if field.lower() == name:
                return value
        return None

    def without(self, *names: str) -> Head:
        """Return the same head without these fields."""
        return Head(
            self.first_line, tuple(pair for pair in self.fields if pair[0].lower() not in names)
        )

    def having(self, name: str, value: str) -> Head:
        """Return the same head with one more field."""
        return Head(self.first_line, (*self.fields, (name, value)))

    @property
    def status(self) -> int:
        """The status code; only a response has one."""
        return int(self.first_line.split(" ", 2)[1])

    @property
    def is_chunked(self) -> bool:
        """Whether the body comes in chunks that say their own length."""
        return "chunked" in (self.get("transfer-encoding") or "").lower()

    @property
    def length(self) -> int | None:
        """The declared length of the body in bytes."""
        text = self.get("content-length")
        return None if text is None else int(text)

    def encode(self) -> bytes:
        """Return the bytes that go over the wire, the blank line included."""
        lines = [self.first_line, *(f"{name}: {value}" for name, value in self.fields)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class Incoming:
    """Reads messages off one socket; bytes read ahead are kept for the next message."""

    def __init__(self, connection: socket.socket) -> None:
        """Read from ``connection``, which the caller closes."""
        self._connection = connection
        self._ahead = b""

    def head(self) -> Head | None:
        """Return the next head, or None when the peer closed between two messages."""
        while (end := self._ahead.find(b"\r\n\r\n")) < 0:
            if len(self._ahead) > LONGEST_HEAD:
                raise PeerGoneError(f"no end of the header within {LONGEST_HEAD:,} bytes")
            block = self._connection.recv(BLOCK)
            if not block and not self._ahead.strip():
                return None
            if not block:
                raise PeerGoneError("closed inside a header")
            self._ahead += block
        text, self._ahead = self._ahead[:end].decode("latin-1"), self._ahead[end + 4 :]
        first_line, *lines = text.lstrip("\r\n").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return Head(first_line, tuple((name.strip(), value.strip()) for name, _, value in pairs))

    def body(self, head: Head, *, until_close: bool = False) -> Iterator[bytes]:
        """Yield the body in pieces exactly as sent: chunk sizes are part of a chunked body."""
        if head.is_chunked:
            yield from self._chunks()
        elif head.length is not None:
            yield from self._exactly(head.length)
        elif until_close:
            yield from self._rest()

    def wait_for_close(self) -> None:
        """Return when the peer has closed its side, whatever it sends until then."""
        with contextlib.suppress(OSError):
            for _ in self._rest():
                pass

    def _take(self, most: int) -> bytes:
        if self._ahead:
            block, self._ahead = self._ahead[:most], self._ahead[most:]
            return block
        return self._connection.recv(min(most, BLOCK))

    def _exactly(self, length: int) -> Iterator[bytes]:
        while length:
            block = self._take(length)
            if not block:
                raise PeerGoneError(f"closed {length:,} bytes before the end of a body")
            length -= len(block)
            yield block

    def _line(self) -> bytes:
        while (end := self._ahead.find(b"\n")) < 0:
            block = self._connection.recv(BLOCK)
            if not block:
                raise PeerGoneError("closed inside a chunk header")
            self._ahead += block
        line, self._ahead = self._ahead[: end + 1], self._ahead[end + 1 :]
        return line

    def _chunks(self) -> Iterator[bytes]:
        size = -1
        while size:
            line = self._line()
            size = int(line.split(b";")[0], 16)
            yield line
            if size:
                yield from self._exactly(size + len(b"\r\n"))
        while (trailer := self._line()).strip():
            yield trailer
        yield trailer

    def _rest(self) -> Iterator[bytes]:
        while block := self._take(BLOCK):
            yield block


def response_has_body(method: str, head: Head) -> bool:
    """Return whether bytes follow this response head; after HEAD none do, whatever it declares."""
    return method != "HEAD" and head.status not in BODILESS
