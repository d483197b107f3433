from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers.http_framing import Head, Incoming, PeerGoneError

if TYPE_CHECKING:
    import socket


class Arriving:
    """Stands for a socket on which bytes arrive in the pieces that the network made of them."""

    def __init__(self, content: bytes, cuts: list[int]) -> None:
        borders = sorted({0, len(content), *(cut % (len(content) + 1) for cut in cuts)})
        self._pieces = [content[a:b] for a, b in itertools.pairwise(borders)]

    def recv(self, most: int) -> bytes:
        if not self._pieces:
            return b""
        piece = self._pieces[0][:most]
        self._pieces[0] = self._pieces[0][most:]
        if not self._pieces[0]:
            del self._pieces[0]
        return piece


def incoming(content: bytes, cuts: list[int]) -> Incoming:
    return Incoming(cast("socket.socket", Arriving(content, cuts)))


def message(body: bytes, chunk_sizes: list[int] | None) -> bytes:
    if chunk_sizes is None:
        return Head("PUT /k HTTP/1.1", (("Content-Length", str(len(body))),)).encode() + body
    chunks = b""
    for size in [*chunk_sizes, len(body) or 1]:
        chunk, body = body[:size], body[size:]
        chunks += b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunk else b""
    head = Head("PUT /k HTTP/1.1", (("Transfer-Encoding", "chunked"),))
    return head.encode() + chunks + b"0\r\nx-trailer: 1\r\n\r\n"


def read_message(reader: Incoming) -> bytes:
    head = reader.head()
    assert head is not None
    return head.encode() + b"".join(reader.body(head))


bodies = st.tuples(st.binary(max_size=200), st.none() | st.lists(st.integers(1, 50), max_size=8))


@given(st.lists(bodies, max_size=4), st.lists(st.integers(min_value=0), max_size=20))
def test_messages_end_where_they_end_however_their_bytes_arrive(
    contents: list[tuple[bytes, list[int] | None]], cuts: list[int]
) -> None:
    messages = [message(body, sizes) for body, sizes in contents]
    reader = incoming(b"".join(messages), cuts)
    for expected in messages:
        assert read_message(reader) == expected
    assert reader.head() is None


@given(bodies, st.data())
def test_a_message_that_breaks_off_is_not_taken_for_a_whole_one(
    content: tuple[bytes, list[int] | None], data: st.DataObject
) -> None:
    whole = message(*content)
    reader = incoming(whole[: data.draw(st.integers(1, len(whole) - 1))], [])
    with pytest.raises(PeerGoneError):
        read_message(reader)


def test_names_of_fields_have_no_case() -> None:
    head = Head("HTTP/1.1 206 Partial Content", (("CONTENT-length", "12"), ("ETag", '"a"')))
    assert (head.length, head.get("etag"), head.status, head.is_chunked) == (12, '"a"', 206, False)
