"""The first rows of a long CSV file, without reading the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.index import list_files
from penstock.jsonl import compression_of
from penstock.storage import read_blocks

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.index import Listing, Scanner

_SMALL = 16 << 20
"""A file that is read whole in a blink."""
_LONGEST = 64 << 20
_BLOCK_BYTES = 1 << 20


def head_of(listing: Listing, scanner: Scanner, count: int, folder: Path) -> Listing | None:
    """Copy the first `count` rows of the first file to a folder, each where it stands.

    None where that would save nothing: a short file, a compressed one, fewer rows.
    """
    first = listing.files[0]
    if first.entry.size <= _SMALL or compression_of(first.entry.name) is not None:
        return None
    file = first.store.open(first.entry.name, first.entry)
    try:
        scan, text, rows = scanner.begin(first.path), bytearray(), 0
        for block in read_blocks(file, _BLOCK_BYTES):
            places = scan.add(block)
            text += block
            rows += len(places)
            if rows >= count:
                copy = folder / first.entry.name.rpartition("/")[2]
                copy.write_bytes(text[: int(places[-1].sum())])
                return list_files(copy)
            if len(text) > _LONGEST:
                break
    finally:
        file.close()
    return None
