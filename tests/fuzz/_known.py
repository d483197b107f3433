"""Deaths inside of dependencies that no check before the call can prevent."""

from __future__ import annotations

_LENGTHS = "liborc adds up lengths of texts without a check: their sum is negative"
_UNWRITTEN = "liborc hands out memory that it has not written, where a compressed stream ends early"

KNOWN_DEATHS: dict[tuple[str, int, int], str] = {
    ("orc", 14, 1732): _LENGTHS,
    ("orc", 14, 3625): _UNWRITTEN,
    ("orc", 14, 9856): _UNWRITTEN,
    ("orc", 15, 808): _UNWRITTEN,
}
"""By format, seed and number: why. Values that differ from one call to the next are here, too."""
