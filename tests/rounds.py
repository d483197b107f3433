"""How often a test repeats itself: a few times in `make test`, in full in `make test-long`."""

from __future__ import annotations

import os

_chosen = os.environ.get("PENSTOCK_ROUNDS") or "small"
if _chosen not in ("small", "long"):
    # A misspelt "long" must not pass for a long run.
    raise ValueError(f"PENSTOCK_ROUNDS={_chosen!r}: expected 'small' or 'long'")

LONG = _chosen == "long"


def rounds(small: int, long: int) -> int:
    """Return `long` in `make test-long`, else `small`."""
    return long if LONG else small
