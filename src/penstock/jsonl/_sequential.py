"""Text as it is, and as gzip or bz2, which are read from their beginning."""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from penstock._words import counted
from penstock.errors import CorruptFileError, TruncatedFileError

_GZIP_WINDOW = 31
_TEXT_BYTES = 1 << 20


class PlainEncoder:
    """Text in, the bytes of a file out: here the text itself."""

    def add(self, text: bytes | bytearray) -> Iterator[bytes | bytearray]:
        """Take whole lines; yield the bytes that are ready."""
        yield text

    def flush(self) -> Iterator[bytes]:
        """Yield the bytes of everything taken so far."""
        yield from ()

    def finish(self) -> Iterator[bytes]:
        """Yield what is left, and the end of the file."""
        yield from ()

    def close(self) -> None:
        """Let go of threads."""


class GzipEncoder(PlainEncoder):
    """Text as one gzip member."""

    def __init__(self, level: int) -> None:
        self._member = zlib.compressobj(level, wbits=_GZIP_WINDOW)

    def add(self, text: bytes | bytearray) -> Iterator[bytes]:
        yield self._member.compress(text)

    def flush(self) -> Iterator[bytes]:
        yield self._member.flush(zlib.Z_SYNC_FLUSH)

    def finish(self) -> Iterator[bytes]:
        yield self._member.flush()


class Bz2Encoder(PlainEncoder):
    """Text as bz2 streams; a flush ends one."""

    def __init__(self, level: int) -> None:
        self._level = level
        self._stream: bz2.BZ2Compressor | None = None
        self._is_empty = True

    def add(self, text: bytes | bytearray) -> Iterator[bytes]:
        if self._stream is None:
            self._stream = bz2.BZ2Compressor(self._level)
        self._is_empty = False
        yield self._stream.compress(text)

    def flush(self) -> Iterator[bytes]:
        if self._stream is not None:
            yield self._stream.flush()
            self._stream = None

    def finish(self) -> Iterator[bytes]:
        yield from self.flush()
        if self._is_empty:
            yield bz2.compress(b"", self._level)


def _gzip_texts(member: Any, data: bytes) -> Iterator[bytes]:  # noqa: ANN401 (zlib hides its class)
    while data and not member.eof:
        yield member.decompress(data, _TEXT_BYTES)
        data = member.unconsumed_tail


def _bz2_texts(member: bz2.BZ2Decompressor, data: bytes) -> Iterator[bytes]:
    yield member.decompress(data, _TEXT_BYTES)
    while not (member.eof or member.needs_input):
        yield member.decompress(b"", _TEXT_BYTES)


_FIRST_BYTES = {"gzip": b"\x1f\x8b", "bz2": b"BZh", "zstd": b"\x28\xb5\x2f\xfd"}
_SHOWN = 12
_MEMBERS: dict[str, tuple[Callable[[], Any], Callable[[Any, bytes], Iterator[bytes]]]] = {
    "gzip": (partial(zlib.decompressobj, wbits=_GZIP_WINDOW), _gzip_texts),
    "bz2": (bz2.BZ2Decompressor, _bz2_texts),
}
"""What decompresses one of the streams that a file may hold one after the other, and how: its text
comes in parts of a bounded size."""


def decode_stream(blocks: Iterable[bytes], path: str, kind: str = "gzip") -> Iterator[bytes]:
    """Yield the text of all gzip members or bz2 streams."""
    begin, texts = _MEMBERS[kind]
    member = None
    members = at = 0
    for block in blocks:
        rest = block
        while rest:
            if member is None:
                rest = rest.lstrip(b"\0")  # Padding between members, as tape tools leave it.
                if not rest:
                    break
                member = begin()
                members += 1
            try:
                yield from filter(None, texts(member, rest))
            except (zlib.error, OSError) as failure:
                begins = rest if members == 1 and not at else None
                raise damaged_data(path, kind, at, failure, begins) from None
            if not member.eof:
                break
            rest, member = member.unused_data, None
        at += len(block)
    if member is not None or not members:
        what = f"its {kind} data ends early, after {counted(at, 'byte')}"
        if not members:
            held = counted(at, "byte")
            what = f"no {kind} data is in its {held}, and {kind} writes some even for no text"
        raise TruncatedFileError(f"{path} is cut off: {what}. Get it again.", path=path)


def damaged_data(
    path: str, kind: str, at: int, why: object, begins: bytes | None = None
) -> CorruptFileError:
    """Return the error about compressed data; `begins` where the fault is at its beginning."""
    if begins is not None and not begins.startswith(_FIRST_BYTES[kind]):
        fact = f"{path} holds no {kind} data: it begins with {begins[:_SHOWN]!r}."
        remedy = "Give the file the name of what it holds, or get it again."
    else:
        fact = f"{path} is damaged: the {kind} data near byte {at:,} cannot be read ({why})."
        remedy = "Get the file again, or write it anew from its source."
    return CorruptFileError(fact, remedy=remedy, path=path, offset=at)
