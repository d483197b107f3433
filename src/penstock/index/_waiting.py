"""The files that a build scans: new ones, and those that grew from where they are known."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.index._names import refuse_unnamable
from penstock.jsonl import compression_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.index._listing import Found, Listing
    from penstock.index._meta import FileMeta
    from penstock.index._sample_index import SampleIndex
    from penstock.index._scan import Scanner


@dataclass(slots=True)
class FileToScan:
    """A file, and the results of its scan so far."""

    found: Found
    relative: str
    number: int | None
    """Its number, if the index has records of it."""
    was: FileMeta | None
    """The file as the index has it, up to where the scan begins."""
    start: int
    """Where the scan begins."""
    last_run: int = 0
    """Of a file with `again`: the number of its last run."""
    again: tuple[range, ...] = ()
    """The numbers of records that the index has and the scan finds again."""
    repeated: int = 0
    """How many of those were found."""
    has_changed: bool = False
    """Whether one of those has other bytes now: more of them."""
    records: int = 0
    """All that were found, as `text_bytes` is of all."""
    text_bytes: int = 0
    frames: list[NDArray[np.int64]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    bad_lines: int = 0
    newlines: int | None = None


def files_to_scan(listing: Listing, scanner: Scanner, old: SampleIndex | None) -> list[FileToScan]:
    """Return the files that are new, and those that grew."""
    grown = None if old is None or old.meta is None else _Grown(scanner, old)
    known: dict[str, tuple[int, FileMeta]] = {}
    unchanged: dict[str, int] = {}
    if old is not None and old.meta is not None:
        known = {file.path: (number, file) for number, file in enumerate(old.meta.files)}
        unchanged = {file.path: file.size for file in old.meta.empty}
    waiting = []
    for found in listing.files:
        relative = listing.relative(found)
        refuse_unnamable(relative)
        if grown is not None and relative in known:
            number, was = known[relative]
            if was.size != found.entry.size:
                waiting.append(grown.continued(FileToScan(found, relative, number, was, was.size)))
        elif unchanged.get(relative) != found.entry.size:
            waiting.append(FileToScan(found, relative, None, None, 0))
    return waiting


class _Grown:
    """Finds where the scan of a file that grew begins."""

    def __init__(self, scanner: Scanner, old: SampleIndex) -> None:
        assert old.meta is not None  # noqa: S101 (the caller looked)
        self._scanner, self._old = scanner, old
        self._runs: dict[int, list[tuple[int, range]]] = defaultdict(list)
        ends = pairwise(old.meta.starts().tolist())
        for at, (run, numbers) in enumerate(zip(old.meta.runs, ends, strict=True)):
            self._runs[run.file].append((at, range(*numbers)))

    def continued(self, one: FileToScan) -> FileToScan:
        """Return a file, to be scanned from where its last whole record ends.

        If nothing tells where that is, the file is scanned from its beginning, and its records
        keep their numbers.
        """
        assert one.was is not None  # noqa: S101 (the index has it)
        assert one.number is not None  # noqa: S101 (likewise)
        runs, end = self._runs[one.number], one.was.size
        last_run, last = runs[-1][0], runs[-1][1][-1:]
        _, offset, size = self._old.rows_of(np.array(last))[0].tolist()
        if compression_of(one.found.path) is None:
            with one.found.open() as file:
                text = file.read_at(offset, end + 1 - offset)
            known = self._scanner.known_bytes(text[:-1], text[-1:])
            if known == end - offset:
                return one
            if known == 0 and offset + size == end:
                counts = {"records": one.was.records - 1, "bytes": one.was.bytes - size}
                was = msgspec.structs.replace(one.was, **counts)
                return replace(one, was=was, start=offset, last_run=last_run, again=(last,))
        again = tuple(numbers for _, numbers in runs)
        return replace(one, was=None, start=0, last_run=last_run, again=again)
