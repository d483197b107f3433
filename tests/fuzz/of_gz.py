"""Gzip against Python's `gzip` and `json`."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING

from tests.fuzz._format import Refused
from tests.fuzz._lines import Lines, lines

if TYPE_CHECKING:
    from pathlib import Path


class Gz(Lines):
    """One file of one member, and one of several with zero bytes between them."""

    name = "gz"
    rounds = (100, 25_000)
    ending = ".jsonl.gz"
    can_shuffle = False

    def make(self, folder: Path) -> None:
        (folder / "one.jsonl.gz").write_bytes(gzip.compress(lines(0, 6), mtime=0))
        members = [gzip.compress(lines(n, n + 2), mtime=0) for n in range(6, 12, 2)]
        (folder / "several.jsonl.gz").write_bytes(bytes(3).join(members))

    def text(self, data: bytes) -> bytes:
        if not data:
            raise Refused  # As the gzip command does: no member is no file.
        try:
            return gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            raise Refused from None
