"""The cost of an epoch: requests to storage, and their bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import OptionError
from penstock.order._blocks import LANES, WINDOW_BLOCKS, window_records
from penstock.order._order import KINDS
from penstock.order._whole import whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.order._order import Kind

_ENDS = 2 * LANES
"""Blocks open beyond the windows' share, since the windows of all lanes end inside blocks."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Requests and bytes of one epoch, over all ranks."""

    requests: int
    """Reads of a block."""
    bytes: int
    """Bytes in them."""
    open_bytes: int
    """Bytes of blocks in use at a time on a host: a cache that holds them reads no block twice."""


def estimate(  # noqa: PLR0913 (what the cost of an epoch depends on)
    block_bytes: NDArray[np.int64],
    kind: Kind,
    world_size: int = 1,
    workers: int = 0,
    cache_bytes: int = 0,
    *,
    block_records: NDArray[np.int64] | None = None,
    batch_size: int = 1,
    hosts: int = 1,
) -> Estimate:
    """Estimate the requests of an epoch over blocks of these sizes (int64[n]).

    A block is read as a whole. Each step, each rank touches the blocks in which its `batch_size`
    records lie; a touch is a request unless the block is in the cache of the host (`cache_bytes`),
    which all ranks and workers there share. Blocks count as equally large.

    - *Open* are the blocks in use at a time: in full order all; in block order those of a window,
      or all where the dataset is no larger; in sequential order two for each rank.
    - *Touches* are batches × the blocks that a batch is expected to lie in: with P blocks open to
      the rank P × (1 - (1 - 1/P) ** batch_size), in sequential order
      1 + (batch_size - 1) / records per block.
    - *First touches* are blocks × hosts; in block order, if the world size divides the lanes, only
      blocks + hosts - 1, for each host then has its own part of the data.
    - requests = first touches + (touches - first touches) × (1 - cache / open). Where one batch
      touches much of what a cache holds, it drops blocks before their time, and there are more.

    `block_records` (int64[n]) is needed where the cache does not hold what is open. Workers of a
    rank take turns by whole batches, so their number changes nothing.

    >>> import numpy as np
    >>> sizes, records = np.full(10_000, 2**20), np.full(10_000, 1000)
    >>> estimate(sizes, "full", block_records=records).requests
    10000000
    >>> estimate(sizes, "block", world_size=8, workers=4, cache_bytes=2**30).requests
    10000
    """
    for name, value in {"world_size": world_size, "batch_size": batch_size, "hosts": hosts}.items():
        whole_number(name, value, 1)
    whole_number("workers", workers, 0)
    whole_number("cache_bytes", cache_bytes, 0)
    if hosts > world_size:
        raise OptionError(f"hosts={hosts}: there may be at most {world_size}, one for each rank.")
    if kind not in KINDS:
        raise OptionError(f"kind={kind!r}: an order is one of {', '.join(KINDS)}.")
    sizes = _checked("block_bytes", block_bytes)
    total = None
    if block_records is not None:
        records = _checked("block_records", block_records)
        if len(records) != len(sizes):
            raise OptionError(f"{len(records):,} block_records for {len(sizes):,} block_bytes.")
        # Blocks without a record are never read.
        sizes, total = sizes[records > 0], int(records.sum())
    blocks = len(sizes)
    if not blocks:
        return Estimate(0, 0, 0)
    split, open_on_host = _open(kind, blocks, total, world_size, hosts)
    mean_bytes = float(sizes.sum()) / blocks
    open_bytes = round(open_on_host * mean_bytes)
    requests = float(blocks + hosts - 1 if split else blocks * hosts)
    if cache_bytes < open_bytes:
        if total is None:
            raise OptionError(
                f"cache_bytes={cache_bytes:,} is less than the {open_bytes:,} bytes that are open "
                "at a time: give block_records, how many lie in each block."
            )
        open_to_rank = open_on_host * hosts / world_size if split else open_on_host
        if kind == "sequential":
            touched = 1 + (min(batch_size, total) - 1) * blocks / total
        else:
            touched = open_to_rank * (1 - (1 - 1 / max(1.0, open_to_rank)) ** batch_size)
        again = -(-total // batch_size) * touched - requests
        requests += max(0.0, again) * (1 - cache_bytes / open_bytes)
    return Estimate(round(requests), round(round(requests) * mean_bytes), open_bytes)


def _open(
    kind: Kind, blocks: int, total: int | None, world_size: int, hosts: int
) -> tuple[bool, float]:
    """Return whether ranks take whole lanes, and how many blocks are open on one host."""
    if kind == "sequential":
        return False, min(blocks, 2 * -(-world_size // hosts))
    window: float = WINDOW_BLOCKS
    if total is not None:
        window = window_records(total, blocks) * blocks / total
    if kind == "full" or blocks <= window:
        return False, blocks
    split = LANES % world_size == 0
    return split, min(blocks, window + _ENDS) / (hosts if split else 1)


def _checked(name: str, values: NDArray[np.int64]) -> NDArray[np.int64]:
    array = np.asarray(values)
    fact = f"is an array of {array.dtype}{list(array.shape)}"
    if array.ndim == 1 and (not array.size or array.dtype.kind in "iu"):
        if not array.size or array.min() >= 0:
            return array.astype(np.int64)
        fact = f"has {array.min():,}"
    raise OptionError(f"{name} {fact}; give integers of 0 or more, one a block.")
