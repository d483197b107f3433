"""Which order a shuffle means for a source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from penstock.errors import OptionError
from penstock.storage import is_remote

if TYPE_CHECKING:
    from penstock.datasets import Source
    from penstock.order._order import Kind

_PLAIN = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt")
"""Text in which a record is read by itself."""


def chosen_order(source: Source, shuffle: bool | Literal["full", "block"]) -> tuple[Kind, str]:  # noqa: FBT001 (the loader's own argument)
    """Return the kind of order that `shuffle` asks for, and why."""
    if shuffle is False:
        return "sequential", "shuffle=False"
    if shuffle is True:
        return natural_shuffle(source)
    if shuffle in ("full", "block"):
        return shuffle, f"shuffle={shuffle!r}"
    raise OptionError(f"shuffle={shuffle!r}: expected True, False, 'full' or 'block'.")


def natural_shuffle(source: Source) -> tuple[Literal["full", "block"], str]:
    """Return the shuffle that a source is read well with, and why."""
    files = source.files
    if lies_remote(source):
        return "block", "remote data is read by blocks, each once"
    if any(not path.lower().endswith(_PLAIN) for path in files):
        return "block", "compressed data is read by blocks, each once"
    return "full", "any record can be read by itself here"


def lies_remote(source: Source) -> bool:
    """Whether some of its files are not on this machine."""
    return any(map(is_remote, source.files))
