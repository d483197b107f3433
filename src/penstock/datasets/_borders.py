"""Where the records of a view go over from one block to another."""

from __future__ import annotations

import numpy as np

_STRETCH = 1 << 20
"""Numbers of an unsorted view that are looked at together."""


def block_borders(ids: np.ndarray, blocks: np.ndarray, *, is_sorted: bool) -> np.ndarray:
    """Return the offsets in `ids` at which another of `blocks` begins, first 0, last the length.

    >>> import numpy as np
    >>> block_borders(np.array([0, 1, 5, 6, 9]), np.array([0, 5, 8, 10]), is_sorted=True).tolist()
    [0, 2, 4, 5]
    >>> block_borders(np.array([9, 8, 1]), np.array([0, 5, 8, 10]), is_sorted=False).tolist()
    [0, 2, 3]
    """
    if not len(ids):
        return np.zeros(1, np.int64)
    if is_sorted:
        return np.unique(np.searchsorted(ids, blocks)).astype(np.int64)
    parts = [np.zeros(1, np.int64)]
    last = None
    for start in range(0, len(ids), _STRETCH):
        inside = np.searchsorted(blocks, ids[start : start + _STRETCH], "right")
        if last is not None and inside[0] != last:
            parts.append(np.array([start]))
        parts.append(start + 1 + np.flatnonzero(np.diff(inside)))
        last = inside[-1]
    return np.concatenate([*parts, np.array([len(ids)])])
