"""Deaths inside of dependencies that no check before the call can prevent."""

from __future__ import annotations

KNOWN_DEATHS: dict[tuple[str, int, int], str] = {}
"""By format, seed and number: why."""
