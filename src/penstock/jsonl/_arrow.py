"""Pieces of text into Arrow record batches of one size."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from penstock._cpus import usable_cpus
from penstock.decode import InferringDecoder, TypedDecoder, unify
from penstock.errors import OptionError, SchemaMismatchError
from penstock.jsonl._decode import MalformedLine
from penstock.jsonl._records import AsyncRuns
from penstock.jsonl._text import TextPiece, and_failure
from penstock.jsonl._threads import in_thread
from penstock.order import whole_number
from penstock.storage import refuse_inherited
from penstock.storage._read_ahead import close_source

if TYPE_CHECKING:
    SchemaChoice: TypeAlias = pa.Schema | Literal["strict"] | None

__all__ = ["PIECE_BYTES", "AsyncArrowRuns", "SchemaChoice", "alone", "runs_of", "unify"]

PIECE_BYTES = 2 << 20
"""Text decoded at a time: large enough that the decoder's cost per call does not count."""
_MOST_THREADS = 4


def runs_of(
    pieces: Iterator[TextPiece], size: int, schema: SchemaChoice
) -> Generator[pa.RecordBatch | MalformedLine]:
    """Return record batches of `size` rows, the last perhaps shorter, and bad lines."""
    return _sized(_decoded(pieces, _decoder(schema)), whole_number("batch_size", size, 1))


class AsyncArrowRuns(AsyncRuns[pa.RecordBatch]):
    """The same, made in a thread."""

    def __init__(self, runs: Generator[pa.RecordBatch | MalformedLine]) -> None:
        self._runs = runs

    async def __anext__(self) -> pa.RecordBatch | MalformedLine:
        if (run := await in_thread(next, self._runs, None)) is None:
            raise StopAsyncIteration
        return run

    async def aclose(self) -> None:
        await in_thread(self._runs.close)


def alone(batch: pa.RecordBatch | None) -> list[pa.RecordBatch]:
    return [] if batch is None else [batch]


def _decoder(schema: SchemaChoice) -> TypedDecoder | InferringDecoder:
    if isinstance(schema, pa.Schema):
        return TypedDecoder(schema)
    if schema is None or schema == "strict":
        return InferringDecoder(strict=schema == "strict")
    raise OptionError(f"schema={schema!r}: expected a pyarrow.Schema, 'strict' or None.")


def _decoded(
    pieces: Iterator[TextPiece], decoder: TypedDecoder | InferringDecoder
) -> Generator[pa.RecordBatch | MalformedLine]:
    """Yield the rows of each piece, and the bad lines at their places.

    Attempts at the next pieces run ahead on other cores; they are settled in order.
    """
    process = os.getpid()
    threads = min(_MOST_THREADS, usable_cpus())
    pool = ThreadPoolExecutor(threads, "penstock-arrow")
    attempts: deque[tuple[TextPiece, Future[pa.RecordBatch | None]]] = deque()

    def settled(left: int) -> Iterator[pa.RecordBatch | MalformedLine]:
        while len(attempts) > left:
            refuse_inherited(
                process, "a file was decoded ahead", "Begin to read in the forked process itself."
            )
            yield from _settled(decoder, *attempts.popleft())

    try:
        for piece in and_failure(pieces):
            if isinstance(piece, Exception):
                yield from settled(0)
                raise piece
            # Up to three times as fast as bytes.count.
            piece.lines = int(np.count_nonzero(np.frombuffer(piece.text, np.uint8) == ord("\n")))
            attempts.append((piece, pool.submit(decoder.attempt, piece.text)))
            yield from settled(threads)
        yield from settled(0)
    finally:
        pool.shutdown(cancel_futures=True)
        close_source(pieces)


def _settled(
    decoder: TypedDecoder | InferringDecoder,
    piece: TextPiece,
    attempt: Future[pa.RecordBatch | None],
) -> Iterator[pa.RecordBatch | MalformedLine]:
    bad: list[MalformedLine] = []

    def set_apart(index: int, line: bytes, reason: Exception) -> None:
        bad.append(MalformedLine(piece.path, piece.first_line + index, line, reason))

    try:
        batch = decoder.settle(piece.text, attempt.result(), set_apart)
    except SchemaMismatchError as mismatch:
        raise _placed(mismatch, piece) from None
    if not bad:
        yield batch
        return
    rows_before = [0, *accumulate(bool(line.strip()) for line in piece.text.split(b"\n"))]
    row = 0
    for number, bad_line in enumerate(bad):
        # The bad lines before were filled as well, but are no rows.
        stop = rows_before[bad_line.number - piece.first_line] - number
        if stop > row:
            yield batch.slice(row, stop - row)
        yield bad_line
        row = stop
    yield batch.slice(row)


def _placed(mismatch: SchemaMismatchError, piece: TextPiece) -> SchemaMismatchError:
    """Return the error with the path and line number in place of the index in a piece."""
    index: int = getattr(mismatch, "line_index", 0)
    line_number = piece.first_line + index
    message = f"{piece.path}, line {line_number:,}: {getattr(mismatch, 'why', mismatch)}"
    return SchemaMismatchError(message, path=piece.path, line_number=line_number)


def _sized(
    runs: Generator[pa.RecordBatch | MalformedLine], size: int
) -> Generator[pa.RecordBatch | MalformedLine]:
    """Yield the same rows in batches of one size, each with the schema known by then."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    try:
        for run in runs:
            if isinstance(run, MalformedLine):
                yield run
                continue
            waiting.append(run)
            rows += run.num_rows
            while rows >= size:
                yield _joined(waiting, size)
                rows -= size
        if rows:
            yield _joined(waiting, rows)
    finally:
        runs.close()


def _joined(waiting: list[pa.RecordBatch], rows: int) -> pa.RecordBatch:
    """Take the first `rows` rows out of `waiting` as one batch."""
    taken: list[pa.RecordBatch] = []
    while rows:
        batch = waiting.pop(0)
        if batch.num_rows > rows:
            waiting.insert(0, batch.slice(rows))
            batch = batch.slice(0, rows)
        taken.append(batch)
        rows -= batch.num_rows
    if len(taken) == 1:
        return taken[0]
    # Arrow's own allocator would keep 20 MB more for batches of the default size.
    (joined,) = unify(taken).combine_chunks(pa.system_memory_pool()).to_batches()
    return joined
