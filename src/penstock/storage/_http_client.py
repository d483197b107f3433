"""Requests to HTTP servers, no body of which is read beyond what was asked for.

The client of object stores reads the body of an error to its end, and one may have no end.
"""

from __future__ import annotations

import atexit
import base64
import io
import os
import ssl
import string
import time
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, InvalidURL
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

from obstore.exceptions import GenericError, NotSupportedError

from penstock.errors import OptionError
from penstock.storage._environment import proxy_of

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping

    from _typeshed import WriteableBuffer

    from penstock.storage._options import StorageOptions

_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 10
_MOST_OF_ERRORS = 64 << 10
"""Bytes that are read of a body that nobody asked for, so that its connection can be kept."""
_CHUNK_BYTES = 256 << 10
_MOST_SERVERS, _MOST_CONNECTIONS = 64, 16
"""With connections that wait for the next request, and of one server."""

_kept: dict[object, list[HTTPConnection]] = {}


class HttpError(GenericError):
    """A failed request, in the words of the client of object stores."""


class Answer:
    """The head of an answer, and a body of which nothing was read yet."""

    def __init__(self, url: str, key: object, connection: HTTPConnection) -> None:
        self.url = url
        """Where it comes from: after a redirect, not where it was asked for."""
        self._key, self._connection = key, connection
        with _translated():
            self._response = connection.getresponse()
        self.status, self.headers = self._response.status, self._response.headers

    def read(self, length: int) -> Iterator[bytes]:
        """Yield so many bytes; raise where the body has fewer, or more."""
        try:
            is_longer = (self._response.length or 0) > length
            while length and not is_longer:
                with _translated():
                    data = self._response.read(min(length, _CHUNK_BYTES))
                if not data:
                    raise HttpError("kind: Interrupted")
                length -= len(data)
                yield data
            with _translated():
                if is_longer or self._response.read(1):
                    raise NotSupportedError("the server sends more than was asked for")
        finally:
            self._let_go()

    def drop(self) -> None:
        """Read as much of the body as an error may have, and forget it."""
        with suppress(OSError, HTTPException):
            self._response.read(_MOST_OF_ERRORS)
        self._let_go()

    def _let_go(self) -> None:
        """Keep the connection if the body came to its end."""
        if len(_kept) > _MOST_SERVERS:
            _close_kept()
        kept = _kept.setdefault(self._key, [])
        is_whole = self._response.isclosed() and self._connection.sock is not None
        if is_whole and len(kept) < _MOST_CONNECTIONS:
            kept.append(self._connection)
        else:
            self._close()

    def _close(self) -> None:
        self._response.close()
        self._connection.close()

    def __del__(self) -> None:
        # Of an answer that nobody reads.
        if hasattr(self, "_response") and not self._response.isclosed():
            self._close()


def ask(method: str, url: str, headers: Mapping[str, str], options: StorageOptions) -> Answer:
    """Return a good answer, after redirects, within the time that one request has."""
    deadline = time.monotonic() + options.timeout
    for _ in range(_MOST_REDIRECTS):
        answer = _ask(method, url, headers, options, deadline)
        place = answer.headers["Location"]
        if answer.status not in _REDIRECTS or not place:
            break
        answer.drop()
        # Spaces and other letters, which a header brings as they are.
        url = urljoin(url, quote(place.encode("latin-1"), safe=string.punctuation))
        if urlsplit(url).scheme not in ("https", urlsplit(answer.url).scheme):
            raise NotSupportedError("the server redirects to a place that is not read from there")
    else:
        raise NotSupportedError(f"the server redirects more than {_MOST_REDIRECTS} times")
    if answer.status not in (200, 206):
        answer.drop()
        raise HttpError(f"status code: {answer.status}")
    return answer


def _ask(
    method: str, url: str, headers: Mapping[str, str], options: StorageOptions, deadline: float
) -> Answer:
    parts = urlsplit(url)
    host, target = parts.netloc.rpartition("@")[2], parts.path or "/"
    target += f"?{parts.query}" if parts.query else ""
    headers = {"User-Agent": options.get("user_agent", "penstock"), **headers}
    proxy = _proxy_for(parts.scheme, host, options)
    if proxy is not None and parts.scheme == "http":
        target, headers = f"http://{host}{target}", {**headers, **proxy.headers}
    key = (parts.scheme, host, options)
    try:
        connection, is_kept = _kept[key].pop(), True
    except LookupError:
        connection, is_kept = _new_connection(parts.scheme, host, proxy, options), False
    connection.response_class = partial(_Response, deadline=deadline)  # type: ignore[assignment]
    try:
        if connection.sock is None:
            with _translated("Connect"):
                connection.connect()
        with _translated():
            connection.request(method, target, headers=headers)
        return Answer(url, key, connection)
    except HttpError as why:
        connection.close()
        # A server closes connections that wait for long.
        if not is_kept or "Interrupted" not in str(why):
            raise
    except BaseException:
        connection.close()
        raise
    return _ask(method, url, headers, options, deadline)


class _Proxy(NamedTuple):
    host: str
    port: int
    headers: dict[str, str]


def _proxy_for(scheme: str, host: str, options: StorageOptions) -> _Proxy | None:
    url = options.get("proxy_url") or proxy_of(scheme, host)
    if not url:
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise OptionError(
            f"{scheme}:// is read through proxies of the form http://HOST:PORT alone."
        )
    user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()
    headers = {"Proxy-Authorization": f"Basic {base64.b64encode(user).decode()}"}
    return _Proxy(parts.hostname, parts.port or 80, headers if parts.username else {})


def _new_connection(
    scheme: str, host: str, proxy: _Proxy | None, options: StorageOptions
) -> HTTPConnection:
    make: Any = partial(HTTPConnection, timeout=options.connect_timeout)
    if scheme == "https":
        is_unchecked = options.get("allow_invalid_certificates") == "true"
        make = partial(HTTPSConnection, timeout=options.connect_timeout, context=_tls(is_unchecked))
    try:
        connection: HTTPConnection = make(*(proxy[:2] if proxy else (host,)))
    except InvalidURL as why:
        raise OptionError(f"{scheme}://{host} is no address of a server: {why}.") from None
    if proxy is not None and scheme == "https":
        connection.set_tunnel(host, headers=proxy.headers)
    return connection


@lru_cache
def _tls(is_unchecked: bool) -> ssl.SSLContext:  # noqa: FBT001 (a key)
    context = ssl.create_default_context()
    if is_unchecked:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@contextmanager
def _translated(kind: str = "Interrupted") -> Iterator[None]:
    try:
        yield
    except ssl.SSLCertVerificationError as why:
        raise HttpError(f"its certificate is refused: {why.verify_message}") from None
    except TimeoutError:
        raise HttpError(f"kind: {kind if kind == 'Connect' else 'Timeout'}") from None
    except (OSError, HTTPException):
        raise HttpError(f"kind: {kind}") from None


class _Response(HTTPResponse):
    """An answer that comes until a deadline, however slowly it drips."""

    def __init__(self, sock: socket.socket, *, deadline: float, **how: Any) -> None:  # noqa: ANN401 (of the library)
        super().__init__(sock, **how)
        self.fp.close()
        self.fp = io.BufferedReader(_TimedSocket(sock, deadline))


class _TimedSocket(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._socket, self._deadline = sock, deadline
        self._data = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        self._socket.settimeout(seconds)
        return self._data.readinto(buffer)

    def close(self) -> None:
        self._data.close()
        super().close()


def _close_kept() -> None:
    with suppress(KeyError):  # It is empty.
        while True:
            _, connections = _kept.popitem()
            for connection in connections:
                connection.close()


os.register_at_fork(after_in_child=_close_kept)
atexit.register(_close_kept)
