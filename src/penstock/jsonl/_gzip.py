"""Text as it is, and as gzip, members concatenated or not."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from penstock.errors import CorruptFileError, TruncatedFileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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


def decode_stream(blocks: Iterable[bytes], path: str) -> Iterator[bytes]:
    """Yield the text of all gzip members."""
    member = None
    members = at = 0
    for block in blocks:
        rest = block
        while rest:
            if member is None:
                rest = rest.lstrip(b"\0")  # Padding between members, as tape tools leave it.
                if not rest:
                    break
                member = zlib.decompressobj(wbits=_GZIP_WINDOW)
                members += 1
            try:
                text = member.decompress(rest, _TEXT_BYTES)
            except zlib.error as failure:
                message = (
                    f"{path} is damaged: the gzip data near byte {at:,} cannot be read "
                    f"({failure}). Get the file again, or write it anew from its source."
                )
                raise CorruptFileError(message, path=path) from None
            if text:
                yield text
            rest = member.unused_data if member.eof else member.unconsumed_tail
            if member.eof:
                member = None
        at += len(block)
    if member is not None or not members:
        what = f"its gzip data ends early, after {at:,} bytes"
        if not members:
            what = f"no gzip data is in its {at:,} bytes, and gzip writes some even for no text"
        raise TruncatedFileError(f"{path} is cut off: {what}. Get it again.", path=path)
