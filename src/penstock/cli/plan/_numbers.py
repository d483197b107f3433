"""The numbers of an epoch: steps, rows, and reads from storage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.loading import Sharing, Steps
from penstock.order import Skips, clip_blocks, estimate, share_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from penstock.datasets import Source
    from penstock.order import Cursor, Estimate, Kind


@dataclass(frozen=True, slots=True)
class Rows:
    """How the rest of an epoch is shared; the same on every rank, but for padding."""

    each: int
    """Rows that every rank gets, padding included."""
    last: int
    """Rows of a rank's last batch."""
    padded: int
    """Rows, over all ranks, that only make steps equal."""
    dropped: int
    """Records at the end that no rank gets."""


def rows_of(steps: Steps) -> Rows:
    """Return how the rest of an epoch, behind the cursor, is shared.

    >>> from penstock.order import Cursor
    >>> cursor = Cursor(fingerprint="", length=10)
    >>> rows_of(Steps(cursor, None, Sharing(batch_size=2, world_size=3)))
    Rows(each=4, last=2, padded=2, dropped=0)
    >>> rows_of(Steps(cursor, None, Sharing(batch_size=2, world_size=3, drop_last=True)))
    Rows(each=2, last=2, padded=0, dropped=4)
    """
    sharing, left = steps.sharing, len(steps.order) - steps.cursor.position
    count = len(steps) - steps.first
    if not count:
        return Rows(0, 0, 0, left)
    rows, _ = share_rows(
        count - 1,
        sharing.batch_size,
        0,
        sharing.world_size,
        len(steps.order),
        sharing.drop_last,
        origin=steps.cursor.position,
    )
    each = (count - 1) * sharing.batch_size + len(rows)
    real = min(left, each * sharing.world_size)
    return Rows(each, len(rows), each * sharing.world_size - real, left - real)


@dataclass(frozen=True, slots=True)
class RunLayout:
    """How the ranks of a run are spread, and what they cache."""

    workers: int = 0
    hosts: int = 1
    cache_bytes: int = 0
    """Blocks that a host keeps, for block and sequential order."""


def costs(
    source: Source, steps: Steps, layout: RunLayout, file_bytes: Mapping[str, int]
) -> dict[Kind, Estimate]:
    """Return the reads of a whole epoch in each kind of order.

    Where a record can be read by itself, a full order reads each record once; else it reads the
    blocks that they lie in again for every batch.
    """
    cursor, sharing = steps.cursor, steps.sharing
    blocks = clip_blocks(source.blocks, cursor.length)
    records = np.diff(Skips(cursor.order_skip, cursor.length).ranks(blocks))
    text, stored = block_bytes(source, blocks, file_bytes)
    kinds: tuple[Kind, ...] = ("full", "block", "sequential")
    found = {
        kind: estimate(
            stored,
            kind,
            sharing.world_size,
            layout.workers,
            0 if kind == "full" else layout.cache_bytes,
            block_records=records,
            batch_size=sharing.batch_size,
            hosts=layout.hosts,
        )
        for kind in kinds
    }
    if not source.reads_blocks:
        kept = records / np.maximum(1, np.diff(blocks))
        found["full"] = type(found["full"])(
            requests=len(steps.order), bytes=round(float((text * kept).sum())), open_bytes=0
        )
    return found


def block_bytes(
    source: Source, blocks: NDArray[np.int64], file_bytes: Mapping[str, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the bytes of text of each block, and about how many are stored, int64[n] each.

    A block has the same share of its file's stored bytes as of its text, or of its rows where rows
    have no bytes.
    """
    if len(blocks) <= 1 or not source.files:
        return np.zeros(len(blocks) - 1, np.int64), np.zeros(len(blocks) - 1, np.int64)
    first, last = source.location(blocks[:-1]), source.location(blocks[1:] - 1)
    files = np.asarray(first.file, np.int64)
    ends = np.asarray(last.offset, np.int64) + np.asarray(last.bytes, np.int64)
    text = ends - np.asarray(first.offset, np.int64)
    is_text = np.asarray(last.bytes, np.int64) > 0
    weight = np.where(is_text, text, np.diff(blocks)).astype(np.float64)
    in_file = np.bincount(files, weight, minlength=len(source.files))
    sizes = np.array([file_bytes.get(path, -1) for path in source.files], np.float64)
    sizes = np.where(sizes < 0, in_file, sizes)
    stored = np.rint(sizes[files] * weight / np.maximum(1, in_file[files])).astype(np.int64)
    return np.where(is_text, text, stored), stored


def steps_of(cursor: Cursor, source: Source, sharing: Sharing, rank: int | None = None) -> Steps:
    """Return the steps of a cursor's epoch as one rank has them."""
    blocks = source.blocks if cursor.kind == "block" else None
    own = sharing if rank is None else replace(sharing, rank=rank)
    return Steps(cursor, blocks, own)
