"""A file's text in pieces of whole lines: read, decompressed and cut, whatever the file is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import CorruptFileError
from penstock.jsonl import _sequential, _zstd
from penstock.jsonl._foreign import HEAD_BYTES, refuse_foreign, refuse_no_text
from penstock.jsonl._names import compression_of
from penstock.storage import HeldFile, LocalStore, MeteredFile, ReadAhead, read_blocks

if TYPE_CHECKING:
    from penstock.storage import Entry, OpenFile, Store


_LOCAL_BLOCK_BYTES = 256 << 10
_REMOTE_BLOCK_BYTES = 8 << 20
_AHEAD_BYTES = 16 << 20
BOM = b"\xef\xbb\xbf"


@dataclass(slots=True)
class TextPiece:
    """Some whole lines of a file."""

    path: str
    first_line: int
    """Number of the first line; lines count from 1, blank ones too."""
    text: bytes
    lines: int | None = None
    """How many lines there are, once known. A consumer that splits the text sets it, and saves a
    second search for newlines, a tenth of the cost of decoding."""


class TextFile(NamedTuple):
    """A file to read, with its entry in a listing."""

    store: Store
    name: str
    known: Entry | None = None


def read_pieces(
    sources: Sequence[TextFile], piece_bytes: int, on_read: Callable[[int], object] | None = None
) -> Iterator[TextPiece]:
    """Yield the text of files in pieces of about `piece_bytes`; a longer line stays in one.

    Where reading waits for a network or decompresses, it runs ahead in a thread of its own.
    `on_read` is called with the bytes of each read from storage.
    """
    pieces = chain.from_iterable(_pieces_of(source, piece_bytes, on_read) for source in sources)
    if all(isinstance(s.store, LocalStore) and compression_of(s.name) is None for s in sources):
        yield from pieces
        return
    with closing(ReadAhead(pieces, limit=_AHEAD_BYTES, weigh=_weight, name="read")) as ahead:
        yield from ahead


def and_failure(pieces: Iterator[TextPiece]) -> Iterator[TextPiece | Exception]:
    """Yield the pieces, and the error that ended them: it must not overtake those before it."""
    try:
        yield from pieces
    except Exception as failure:  # noqa: BLE001 (raised by the consumer, at its place)
        yield failure


def _weight(piece: TextPiece) -> int:
    return len(piece.text)


def _pieces_of(
    source: TextFile, piece_bytes: int, on_read: Callable[[int], object] | None
) -> Iterator[TextPiece]:
    local = isinstance(source.store, LocalStore)
    with closing(source.store.open(source.name, source.known)) as file:
        read = file if on_read is None else MeteredFile(file, on_read)
        blocks = decompressed(read, _LOCAL_BLOCK_BYTES if local else _REMOTE_BLOCK_BYTES)
        first_line = 1
        for text in whole_lines(blocks, piece_bytes):
            piece = TextPiece(file.path, first_line, text)
            yield piece
            first_line += text.count(b"\n") if piece.lines is None else piece.lines


def decompressed(
    file: OpenFile, block_bytes: int, on_frame: Callable[[int, int, int], object] | None = None
) -> Iterator[bytes]:
    """Yield a file's text, by what its name says of its compression.

    `on_frame` is called with offset and bytes of each zstd frame, and the bytes of its text.
    """
    compression = compression_of(file.path)
    if file.size <= block_bytes:
        file = HeldFile(file)  # One request, also for a file whose end is looked at first.
    blocks = read_blocks(file, block_bytes)
    if compression == "zstd":
        frames = _zstd.read_seek_table(file)
        if frames is not None and int(frames[:, 1].max(initial=0)) <= _zstd.LARGEST_WHOLE_FRAME:
            blocks = _zstd.decode_frames(file, frames, block_bytes, on_frame)
        else:
            blocks = _zstd.decode_stream(blocks, file.path, on_frame)
    elif compression is not None:
        blocks = _sequential.decode_stream(blocks, file.path, compression)
    return _checked(blocks if compression is None else _unpacked(blocks, file), file.path)


def _checked(blocks: Iterator[bytes], path: str) -> Iterator[bytes]:
    """Yield the same blocks; raise where the first does not begin as text does."""
    for first in blocks:
        refuse_no_text(path, first[:HEAD_BYTES])
        yield first
        yield from blocks


def _unpacked(blocks: Iterator[bytes], file: OpenFile) -> Iterator[bytes]:
    """Yield the same blocks; name a file of another kind that only its name calls compressed."""
    try:
        yield from blocks
    except CorruptFileError:
        refuse_foreign(file.path, file.read_at(0, min(HEAD_BYTES, file.size)))
        raise


def whole_lines(blocks: Iterable[bytes], piece_bytes: int) -> Iterator[bytes]:
    r"""Yield the same bytes cut after newlines, about `piece_bytes` each; drop a leading BOM.

    >>> list(whole_lines([b"a\nbb", b"b\nc"], 3))
    [b'a\n', b'bbb\n', b'c']
    """
    some: list[bytes] = []
    size = 0
    try:
        for lines in lines_of_blocks(_without_bom(blocks), piece_bytes):
            if some and size + len(lines) > piece_bytes:
                yield b"".join(some)
                some, size = [], 0
            some.append(lines)
            size += len(lines)
    except Exception:
        if some:  # What came before a failure is handed out before it.
            yield b"".join(some)
        raise
    if some:
        yield b"".join(some)


def lines_of_blocks(blocks: Iterable[bytes], most_bytes: int) -> Iterator[bytes]:
    """Yield the same bytes cut after newlines, none across blocks but lines that are."""
    unfinished: list[bytes] = []
    for block in blocks:
        start = 0
        while start < len(block):
            limit = start + most_bytes
            end = (block.rfind(b"\n", start, limit) + 1) or (block.find(b"\n", limit) + 1)
            if not end:
                break
            piece = block[start:end]
            if unfinished:
                piece = b"".join((*unfinished, piece))
                unfinished.clear()
            yield piece
            start = end
        if start < len(block):
            unfinished.append(block[start:])
    if unfinished:
        yield b"".join(unfinished)


def _without_bom(blocks: Iterable[bytes]) -> Iterator[bytes]:
    rest = iter(blocks)
    head = b""
    for block in rest:
        head += block
        if len(head) >= len(BOM):
            break
    yield head.removeprefix(BOM)
    yield from rest
