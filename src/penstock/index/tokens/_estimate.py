"""What tokenising some files takes, from a look at the first documents."""

from __future__ import annotations

import errno
import hashlib
import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import StorageError
from penstock.index._line_pieces import LongLine
from penstock.index.checked._units import Part, opened_lines
from penstock.index.tokens._documents import DocumentMaker
from penstock.jsonl import compression_of

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from penstock.index._line_pieces import Piece
    from penstock.index._listing import Found, Listing
    from penstock.index.tokens._documents import TokenWork

_LOOK_BYTES = 32 << 10
_LONGEST = 1 << 20
"""Bytes of a line that is looked at."""
_COMPRESSED = 3
"""Bytes of text in a compressed one, about."""


class Estimate(NamedTuple):
    """What is to be expected."""

    probe: str
    """Of the first tokens: another tokenizer gives others."""
    seconds: float
    """Of one processor."""
    token_bytes: int
    """Of all tokens."""


def estimated(listing: Listing, work: TokenWork) -> Estimate:
    """Tokenise the first documents, and return what the others will take."""
    work = replace(work, skips=True)  # What is bad is told when its turn comes.
    made: list[bytes] = []

    def keep(tokens: NDArray[np.integer], lengths: NDArray[np.int64]) -> None:
        made[:] = [tokens.tobytes(), lengths.tobytes()]

    for found in listing.files:
        piece = _first_lines(found)
        if piece is None:
            continue
        took = 0.0
        for _ in range(2):  # The first time much is loaded.
            began = time.perf_counter()
            DocumentMaker(work, found, keep).add(piece)
            took = time.perf_counter() - began
        if made:
            hashed = hashlib.blake2b(b"".join(made), digest_size=8).hexdigest()
            share = sum(map(_text_bytes, listing.files)) / len(piece.text)
            return Estimate(hashed, took * share, int(len(made[0]) * share))
    return Estimate("", 0.0, 0)


def _first_lines(found: Found) -> Piece | None:
    """Return the first lines of a file that are not too many, if there are such."""
    part = Part(found, 0, found.entry.size)
    with opened_lines(part, lambda _: None, _LONGEST) as pieces:
        for piece in pieces:
            if not isinstance(piece, LongLine) and piece.text.strip():
                stop = piece.text.find(b"\n", _LOOK_BYTES) + 1
                return piece._replace(text=piece.text[: stop or None])
    return None


def _text_bytes(found: Found) -> int:
    is_plain = compression_of(found.entry.name) is None
    return found.entry.size * (1 if is_plain else _COMPRESSED)


def refuse_full_disk(needed: int, folder: Path) -> None:
    """Raise where there is not enough room."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise no_room(needed, folder, f"{free:,} are free", errno.ENOSPC)


def no_room(needed: int, folder: Path, why: str, number: int | None) -> StorageError:
    """Return the error that tells how much room tokens need."""
    return StorageError(
        f"writing these tokens takes about {needed:,} bytes in {folder.parent}: {why}.",
        remedy="Free space there, or give another folder: output_base_path= (for tokens of a "
        "bucket: the variable PENSTOCK_CACHE).",
        path=str(folder.parent),
        errno=number,
    )
