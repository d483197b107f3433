"""The number of a line in its file, counted when an error needs it."""

from __future__ import annotations

from contextlib import closing
from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.jsonl import compression_of, decompressed
from penstock.storage import Entry, is_remote, locate

if TYPE_CHECKING:
    from penstock.storage import StorageOptions

_BLOCK = 1 << 20
_MOST_FETCHED, _MOST_READ = 64 << 20, 16 << 30
"""Bytes of a remote and of a local file that are read to count its lines."""
_MOST_UNPACKED = 1 << 30
"""Bytes of compressed files, of which none is counted but from its beginning."""

_newlines: dict[tuple[str, Entry], list[int]] = {}
"""Before each block of a plain file, as far as they were counted."""
_unpacked = 0


def is_too_far(path: str, offset: int) -> bool:
    """Whether the lines before a byte of a file are too many to be counted for a message."""
    return offset > (_MOST_FETCHED if is_remote(path) else _MOST_READ)


def line_number(path: str, offset: int, options: StorageOptions) -> int | None:
    """Return the line at a byte of a file's text, from 1; None where counting reads too much."""
    if is_too_far(path, offset):
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
