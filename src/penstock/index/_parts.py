"""Parts of files: the lines that begin in one, and units of work that go over some of them."""

from __future__ import annotations

import os
import shlex
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from penstock.errors import CorruptFileError
from penstock.index._blocks import ScannedFrames, opened, text_blocks
from penstock.index._line_pieces import LinePieces
from penstock.index._scan import LineScanner
from penstock.jsonl import compression_of
from penstock.storage import LocalStore
from penstock.work import PublishedUnit

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Generator, Iterable, Iterator

    from penstock.index._line_pieces import LinePiece, LongLine
    from penstock.index._listing import Found
    from penstock.index._scan import Scanner
    from penstock.storage import Draft, OpenFile

_LEAST = 4
"""Bytes of a part, so that a first line behind a byte order mark begins in the first part."""
_BLOCK_BYTES = 512 << 10
"""Text that is decoded together: more only costs memory, less costs more calls a field."""
_LENGTH_BYTES = 8

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FilePart:
    """A range of stored bytes of a file; the records that begin there belong to it."""

    found: Found
    start: int
    stop: int
    facts: dict[str, Any] | None = field(default=None, hash=False)
    """Of a file that grew: the facts of the bytes before."""

    @property
    def size(self) -> int:
        """Bytes."""
        return self.stop - self.start


class UnitData(NamedTuple, Generic[T]):
    """The result of a unit: an array of bytes, and the description behind it."""

    data: mmap.mmap | bytes
    size: int
    """Bytes of the array."""
    described: T


@dataclass(frozen=True)
class PartsUnit(PublishedUnit):
    """Parts that are read one after the other."""

    parts: tuple[FilePart, ...]

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.parts)

    def __str__(self) -> str:
        first = self.parts[0]
        if len(self.parts) > 1:
            return f"{len(self.parts):,} parts of files, first {first.found.path}"
        return f"bytes {first.start:,} to {first.stop:,} of {first.found.path}"

    def describe(self, draft: Draft, description: object) -> None:
        """Write the description behind the array, and its length at the end of the file."""
        text = msgspec.msgpack.encode(description)
        draft.write(text + len(text).to_bytes(_LENGTH_BYTES, "little"))

    def opened(self, type_: type[T]) -> UnitData[T]:
        """Return the result, or raise `CorruptFileError`."""
        try:
            data = self.result()
            end = len(data) - _LENGTH_BYTES
            start = end - int.from_bytes(data[end:], "little")
            with memoryview(data) as view, view[max(0, start) : max(0, end)] as text:
                return UnitData(data, start, msgspec.msgpack.decode(text, type=type_))
        except (OSError, ValueError, RecursionError) as why:
            raise self.damaged(why) from None

    def damaged(self, why: object) -> CorruptFileError:
        """Return the error for a result that cannot be used."""
        folder = shlex.quote(os.path.dirname(self.name))
        return CorruptFileError(
            f"{self.name} is damaged ({why}). Remove the folder that a killed builder left, and "
            f"build again: rm -r {folder}",
            path=self.name,
        )


class PartLines:
    """The lines that begin in a part, some whole ones at a time."""

    def __init__(
        self, pieces: LinePieces, blocks: Generator[bytes, None, None], frames: ScannedFrames
    ) -> None:
        self._pieces, self._blocks, self._frames = pieces, blocks, frames

    def __iter__(self) -> Iterator[LinePiece | LongLine]:
        return self._pieces.of(self._blocks)

    @property
    def newlines(self) -> int:
        """Newlines of the part, as far as it is read."""
        return self._pieces.newlines

    @property
    def frames(self) -> list[tuple[int, int, int, int]]:
        """The zstd frames, as far as they are read."""
        return [(begin, size, *text) for begin, size, *text in self._frames.rows.tolist()]


@contextmanager
def opened_lines(
    part: FilePart, advance: Callable[[int], object], longest: int | None = None
) -> Iterator[PartLines]:
    """Open the lines of a part; lines of more than `longest` bytes are not kept in memory."""
    frames = ScannedFrames()
    with opened(part.found) as file:
        start, is_begun, stop = part.start, True, float("inf")
        if _is_cut(part.found):
            is_begun = not start or file.read_at(start - 1, 1) == b"\n"
            stop = part.stop
            blocks = _local_blocks(file, part, advance)
        else:
            blocks = _of_size(text_blocks(file, start, advance, frames), _BLOCK_BYTES)
        pieces = LinePieces(start, stop, is_begun=is_begun, longest=longest)
        try:
            yield PartLines(pieces, blocks, frames)
        finally:
            blocks.close()  # No thread may read ahead in a closed file.


def _is_cut(found: Found) -> bool:
    """Whether lines can be found from the middle of a file on, cheaply."""
    is_plain = compression_of(found.entry.name) is None
    return is_plain and isinstance(found.store, LocalStore)


def _local_blocks(
    file: OpenFile, part: FilePart, advance: Callable[[int], object]
) -> Generator[bytes, None, None]:
    """Yield the blocks of a part, and those behind it, in which its last line ends."""
    for at in range(part.start, file.size, _BLOCK_BYTES):
        block = file.read_at(at, min(_BLOCK_BYTES, file.size - at))
        yield block
        advance(max(0, min(len(block), part.stop - at)))


def _of_size(blocks: Iterable[bytes], size: int) -> Generator[bytes, None, None]:
    """Yield the same bytes in blocks of about one size."""
    held: list[bytes] = []
    held_bytes = 0
    for block in blocks:
        held.append(block)
        held_bytes += len(block)
        if held_bytes >= size:
            whole = b"".join(held)
            for at in range(0, len(whole), 2 * size):
                yield whole[at : at + 2 * size]
            held, held_bytes = [], 0
    if held_bytes:
        yield b"".join(held)


def parts_of(
    found: Found, start: int, scanner: Scanner, unit_bytes: int, facts: dict[str, Any] | None
) -> list[FilePart]:
    """Return the parts in which a file is scanned, from a byte on."""
    size = found.entry.size
    if start >= size or not isinstance(scanner, LineScanner) or not _is_cut(found):
        return [FilePart(found, start, size, facts)]
    cuts = [*range(start, size, max(unit_bytes, _LEAST)), size]
    return [FilePart(found, *ends, facts) for ends in pairwise(cuts)]
