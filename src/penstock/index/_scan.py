"""Scanners, which find records in a stream of bytes, and the blocks of a file that they scan."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from penstock._cpus import usable_cpus
from penstock.decode import blank_lines, decode_as_json
from penstock.errors import StaleIndexError
from penstock.jsonl import BOM, HEAD_BYTES, compression_of, decompressed, refuse_no_text
from penstock.storage import MeteredFile, OpenFile, ReadAhead, is_remote, read_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.index._listing import Found

_NEWLINE = 10
_DENSE = 8
"""If one in so many runs of eight bytes holds a newline, searching each byte is quicker."""
_BLOCK_BYTES = 1 << 20
_REMOTE_BLOCK_BYTES = 8 << 20
_CUT_BYTES = 64 << 10
_MOST_THREADS = 4
_AHEAD_BYTES = 32 << 20
TEXT_BYTES = 512 << 10
"""Text that is decoded together: more only costs memory, less costs more calls a field."""
LARGEST_FRAME = 16 << 20
"""Bytes of text; in a larger frame a record from the middle is slow to read."""


class FileScan(Protocol):
    """Finds the records of one file, block by block."""

    def add(self, block: bytes | memoryview) -> NDArray[np.int64]:
        """Return offset and bytes (k × 2) of each record that this block finished.

        The first block has at least three bytes, if the file has, so that a mark is seen. A view is
        valid until the next call.
        """

    def finish(self) -> NDArray[np.int64]:
        """Return the records that the end of the file finishes."""

    def facts(self) -> dict[str, object]:
        """Return facts of the file as plain JSON, for `meta.json`."""
        return {}


class Scanner(ABC):
    """Defines what a record is; small, immutable, picklable. A format's scanner inherits this.

    A format whose records are lines inherits `LineScanner`, with its own `kind` and `decode`.
    """

    kind: str
    """The name of the row in `_formats.py`, kept in `meta.json`."""
    decode: Callable[[bytes], object] | None = None
    """Returns the value of a record, or raises `ValueError`, for `--validate` and `--profile`; None
    where the row's `scan` reads records, or nothing does."""
    is_quick: bool = False
    """Whether threads find the records of plain local files as fast as memory is read."""
    is_typed: bool = True
    """Whether values have types; those of texts are guesses."""

    def options(self) -> dict[str, object]:
        """Return the options that change an index, as plain JSON."""
        return {}

    @abstractmethod
    def begin(self, path: str, facts: Mapping[str, Any] | None = None, start: int = 0) -> FileScan:
        """Begin a file.

        A file that grew continues at byte `start` with its former facts, as a part of a file does;
        offsets count from there.
        """

    def known_bytes(self, last: bytes, following: bytes) -> int | None:
        """Return how much of the last record of a file that grew need not be scanned again.

        `last` is its text, to the former end of the file, and `following` the next byte. All of it
        if the record was over, 0 if its line goes on, None to scan the file from its beginning.
        """
        del last, following
        return None

    def cuts(self, file: OpenFile, start: int, step: int) -> Iterable[int]:
        """Return where parts of plain text behind `start` begin, about every `step` bytes.

        A record begins at each. Processes scan the parts; the facts of the last one are the file's.
        Without cuts, a file is one part.
        """
        del file, start, step
        return ()


class LineScanner(Scanner):
    """Every line that is not blank is a record, its newline included."""

    kind = "jsonl"
    is_quick = True
    decode = staticmethod(decode_as_json)

    def begin(self, path: str, facts: Mapping[str, Any] | None = None, start: int = 0) -> LineScan:
        return LineScan(may_be_marked=not start)

    def known_bytes(self, last: bytes, following: bytes) -> int:
        return len(last) if b"\n" in last[-1:] + following else 0

    def cuts(self, file: OpenFile, start: int, step: int) -> Iterable[int]:
        at = _first_line(file, start + step)
        while at < file.size:
            yield at
            at = _first_line(file, at + step)


def _first_line(file: OpenFile, at: int) -> int:
    """Return where the first line from a byte on begins, or the file ends."""
    for begin in range(at - 1, file.size, _CUT_BYTES):
        end = file.read_at(begin, min(_CUT_BYTES, file.size - begin)).find(b"\n") + 1
        if end:
            return begin + end
    return file.size


class LineScan(FileScan):
    r"""Finds lines.

    >>> scan = LineScan()
    >>> scan.add(b"one\n\ntw").tolist(), scan.add(b"o\nthree").tolist(), scan.finish().tolist()
    ([[0, 4]], [[5, 4]], [[9, 5]])
    """

    def __init__(self, *, may_be_marked: bool = True) -> None:
        self._may_be_marked = may_be_marked
        self._at = 0  # Where the next block begins.
        self._begun = 0  # Where the unfinished line begins.
        self._is_blank = True  # Whether that line is white space so far.
        self._finder = LineFinder()

    def add(self, block: bytes | memoryview) -> NDArray[np.int64]:
        return self.add_found(self._finder.find(block))

    def add_found(self, found: LineEnds) -> NDArray[np.int64]:
        """Do the same with a block that some thread has searched already."""
        if self._may_be_marked and not self._at and found.is_marked:
            self._begun = len(BOM)
            found = found._replace(begins_blank=found.begins_blank_after_mark)
        rows = np.empty((len(found.ends), 2), np.int64)
        if len(found.ends):
            stops = found.ends + (self._at + 1)
            rows[0, 0] = self._begun
            rows[1:, 0] = stops[:-1]
            np.subtract(stops, rows[:, 0], out=rows[:, 1])
            found.blank[0] = self._is_blank and found.begins_blank
            rows = rows[~found.blank] if found.blank.any() else rows
            self._begun = int(stops[-1])
            self._is_blank = found.ends_blank
        else:
            self._is_blank = self._is_blank and found.begins_blank
        self._at += found.size
        return rows

    def finish(self) -> NDArray[np.int64]:
        if self._is_blank:
            return np.empty((0, 2), np.int64)
        return np.array([[self._begun, self._at - self._begun]], np.int64)


class LineEnds(NamedTuple):
    size: int
    ends: NDArray[np.int64]
    """Where newlines stand."""
    blank: NDArray[np.bool_]
    """Lines that end here and are white space; that of the first line is not set."""
    begins_blank: bool
    """Whether the bytes up to the first newline, or all, are white space."""
    ends_blank: bool
    """Whether the bytes behind the last newline are white space."""
    is_marked: bool
    """Whether it begins with the bytes of a byte order mark."""
    begins_blank_after_mark: bool
    """`begins_blank` without that mark."""


class LineFinder:
    """Finds line ends, with arrays that it uses again: fresh memory costs more than the search."""

    def __init__(self) -> None:
        self._is_newline = np.empty(0, bool)
        self._in_eight = np.empty(0, bool)

    def find(self, block: bytes | memoryview) -> LineEnds:
        """Return the line ends of a block, which it does not keep."""
        ends = self._newlines(block)
        is_marked = bytes(block[:3]) == BOM
        blank = np.zeros(len(ends), bool)
        if len(ends) > 1:
            blank[1:] = blank_lines(block, ends[:-1] + 1, ends[1:])
        begins = block[: int(ends[0])] if len(ends) else block
        rest = block[int(ends[-1]) + 1 :] if len(ends) else block
        return LineEnds(
            len(block),
            ends,
            blank,
            _is_blank(begins),
            _is_blank(rest),
            is_marked,
            is_marked and _is_blank(begins[len(BOM) :]),
        )

    def _newlines(self, block: bytes | memoryview) -> NDArray[np.int64]:
        size = -(-len(block) // 8) * 8
        if len(self._is_newline) < size:
            self._is_newline = np.empty(size, bool)
            self._in_eight = np.empty(size // 8, bool)
        found = self._is_newline[:size]
        np.equal(np.frombuffer(block, np.uint8), _NEWLINE, out=found[: len(block)])
        found[len(block) :] = False
        # Most runs of eight bytes hold none: eight are skipped at the cost of one.
        eights = found.view(np.uint64)
        some = self._in_eight[: size // 8]
        np.not_equal(eights, 0, out=some)
        groups = np.flatnonzero(some)
        if len(groups) > len(some) // _DENSE:
            return np.flatnonzero(found)
        inside = np.flatnonzero(eights[groups].view(bool))
        places: NDArray[np.int64] = (groups[inside >> 3] << 3) + (inside & 7)
        return places


def _is_blank(part: bytes | memoryview) -> bool:
    # The first letters decide nearly always, without a copy of a long part.
    return not bytes(part[:64]).strip() and not bytes(part).strip()


def escaped_bytes(size: int, escapes: NDArray[np.int64], *, is_first: bool) -> NDArray[np.bool_]:
    """Return which bytes of a block are escaped, and whether the one behind it is.

    In a run of escapes every second one is itself escaped; so is the first byte with `is_first`.

    >>> escaped_bytes(4, np.array([0, 1, 3]), is_first=False).tolist()
    [False, True, False, False, True]
    """
    escaped = np.zeros(size + 1, bool)
    escaped[0] = is_first
    escapes = escapes[escapes > 0] if is_first else escapes
    numbers = np.arange(len(escapes))
    is_begun = np.diff(escapes, prepend=-2) != 1
    rank = numbers - np.maximum.accumulate(np.where(is_begun, numbers, 0))
    escaped[escapes[rank % 2 == 0] + 1] = True
    return escaped


class ScannedFrames:
    """The zstd frames of a file, as its scan meets them."""

    def __init__(self) -> None:
        self._numbers = array("q")  # A file of 100 MB may have millions.
        self._text = 0

    def add(self, offset: int, size: int, text_bytes: int) -> None:
        self._numbers.extend((offset, size, self._text, text_bytes))
        self._text += text_bytes

    @property
    def rows(self) -> NDArray[np.int64]:
        """Offset, bytes, offset of the text, bytes of the text: int64[k, 4]."""
        return np.array(self._numbers, np.int64).reshape(-1, 4)

    @property
    def as_tuples(self) -> list[tuple[int, int, int, int]]:
        """The same rows, for the result of a unit."""
        return [(begin, size, *text) for begin, size, *text in self.rows.tolist()]


def scan_file(
    file: OpenFile,
    scan: FileScan,
    start: int,
    on_read: Callable[[int], object],
    frames: ScannedFrames,
) -> Iterator[NDArray[np.int64]]:
    """Yield offset and bytes of a file's records, many at a time, from byte `start` on.

    `on_read` is called in this thread with the bytes read from storage since the last call.
    """
    if isinstance(scan, LineScan) and is_local_text(file.path):
        for ends in _line_ends(file, start):
            on_read(ends.size)
            yield scan.add_found(ends)
    else:
        for block in text_blocks(file, start, on_read, frames):
            yield scan.add(block)
    yield scan.finish()


def is_local_text(path: str) -> bool:
    """Whether lines can be found from the middle of a file on, cheaply."""
    return compression_of(path) is None and not is_remote(path)


@contextmanager
def opened(found: Found) -> Iterator[OpenFile]:
    """Open a file with the size of its listing: appended bytes are for the next update."""
    with found.open() as file:
        if file.size < found.entry.size:
            raise StaleIndexError(
                f"{found.path} shrank while it was being indexed.", path=found.path
            )
        file.size = found.entry.size
        if is_local_text(file.path):
            refuse_no_text(file.path, file.read_at(0, min(HEAD_BYTES, file.size)))
        yield file


def text_blocks(
    file: OpenFile, start: int, on_read: Callable[[int], object], frames: ScannedFrames
) -> Generator[bytes, None, None]:
    """Yield a file's text from a byte on, read ahead, in blocks of about one size."""
    read: deque[int] = deque()  # Filled by the thread that reads, reported in this one.
    size = _REMOTE_BLOCK_BYTES if compression_of(file.path) is None else _BLOCK_BYTES
    metered = MeteredFile(file, read.append)
    # Only plain text is read from the middle on.
    fetched = (
        read_blocks(metered, size, start) if start else decompressed(metered, size, frames.add)
    )
    with closing(ReadAhead(fetched, limit=_AHEAD_BYTES, weigh=len, name="scan")) as ahead:
        for block in chain(_of_one_size(ahead), [b""]):
            while read:
                on_read(read.popleft())
            if block:
                yield block


def _line_ends(file: OpenFile, start: int) -> Iterator[LineEnds]:
    """Yield the line ends of a local file's blocks, which threads read and search."""
    own = threading.local()

    def look(at: int) -> LineEnds:
        if not hasattr(own, "finder"):
            own.finder, own.buffer = LineFinder(), memoryview(bytearray(_BLOCK_BYTES))
        size = min(_BLOCK_BYTES, file.size - at)
        block = own.buffer[:size]
        done = os.preadv(raw.fileno(), [block], at)
        if done < size:  # A signal, or the file shrank: then this raises.
            block[done:] = file.read_at(at + done, size - done)
        found: LineEnds = own.finder.find(block)
        return found

    starts = range(start, file.size, _BLOCK_BYTES)
    with open(file.path, "rb", buffering=0) as raw:
        if len(starts) <= 1:  # A thread would take longer to start.
            yield from map(look, starts)
            return
        coming: deque[Future[LineEnds]] = deque()
        threads = min(_MOST_THREADS, usable_cpus())
        with ThreadPoolExecutor(threads, "penstock-scan") as pool:
            try:
                for at in starts:
                    coming.append(pool.submit(look, at))
                    if len(coming) > 2 * threads:
                        yield coming.popleft().result()
                while coming:
                    yield coming.popleft().result()
            finally:
                for future in coming:
                    future.cancel()


def _of_one_size(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in blocks of about one size, so that a mark is seen in the first."""
    held: list[bytes] = []
    held_bytes = 0
    try:
        for block in blocks:
            held.append(block)
            held_bytes += len(block)
            if held_bytes >= TEXT_BYTES:
                whole, held, held_bytes = b"".join(held), [], 0
                for at in range(0, len(whole), 2 * TEXT_BYTES):
                    yield whole[at : at + 2 * TEXT_BYTES]
    except Exception:
        yield b"".join(held)  # What comes before the damage is good.
        raise
    yield b"".join(held)
