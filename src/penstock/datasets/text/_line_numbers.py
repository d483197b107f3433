"""The number of a line in its file, counted when an error needs it."""

from __future__ import annotations

from contextlib import closing
from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.datasets._views import bare_origins
from penstock.jsonl import compression_of, decompressed
from penstock.storage import Entry, StorageOptions, is_remote, locate

if TYPE_CHECKING:
    from penstock.datasets._source import Source

_BLOCK = 1 << 20
_MOST_FETCHED = 64 << 20
"""Bytes of a remote file that are read to count its lines."""
_MOST_UNPACKED = 1 << 30
"""Bytes of compressed files, of which none is counted but from its beginning."""

_newlines: dict[tuple[str, Entry], list[int]] = {}
"""Before each block of a plain file, as far as they were counted."""
_unpacked = 0


def line_number(path: str, offset: int, options: StorageOptions) -> int | None:
    """Return the line at a byte of a file's text, from 1; None where counting reads too much."""
    if is_remote(path) and offset > _MOST_FETCHED:
        return None
    store, name = locate(path, options)
    return _count(path, options, store.entry(name), offset)


@lru_cache(maxsize=4096)  # A search for bad records meets each of them several times.
def _count(path: str, options: StorageOptions, entry: Entry, offset: int) -> int | None:
    global _unpacked  # noqa: PLW0603 (one sum a process)
    store, name = locate(path, options)
    with closing(store.open(name, entry)) as file:
        if compression_of(path) is not None:
            if _unpacked + offset > _MOST_UNPACKED:
                return None
            _unpacked += offset
            line, left = 1, offset
            for block in decompressed(file, _BLOCK):
                line += block[:left].count(b"\n")
                left -= len(block)
                if left <= 0:
                    break
            return line
        known = [*_newlines.get((path, entry), [0])]
        number, rest = divmod(offset, _BLOCK)
        for before in range(len(known) - 1, number):
            known.append(known[-1] + file.read_at(before * _BLOCK, _BLOCK).count(b"\n"))
        _newlines[path, entry] = known
        return 1 + known[number] + file.read_at(number * _BLOCK, rest).count(b"\n")


def line_of(source: Source, number: int) -> int | None:
    """Return the line on which a record begins; None where records are no lines of text."""
    path, offset, _ = source.location(number)
    for origin in bare_origins(source):
        if origin.has_lines and path in origin.files:
            return line_number(path, offset, origin.storage_options)
    return None
