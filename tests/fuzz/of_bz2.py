"""Bzip2 against Python's `bz2` and `json`."""

from __future__ import annotations

import bz2
from typing import TYPE_CHECKING

from tests.fuzz._format import Refused
from tests.fuzz._lines import Lines, lines

if TYPE_CHECKING:
    from pathlib import Path


class Bz2(Lines):
    """One file of one stream, and one of several with zero bytes between them."""

    name = "bz2"
    rounds = (60, 10_000)
    ending = ".ndjson.bz2"
    can_shuffle = False

    def make(self, folder: Path) -> None:
        (folder / "one.ndjson.bz2").write_bytes(bz2.compress(lines(0, 6)))
        streams = [bz2.compress(lines(n, n + 2)) for n in range(6, 12, 2)]
        (folder / "several.ndjson.bz2").write_bytes(bytes(3).join(streams))

    def text(self, data: bytes) -> bytes:
        found, rest = b"", data.lstrip(b"\0")
        if not rest:
            raise Refused  # As for gzip: no stream is no file.
        while rest:
            stream = bz2.BZ2Decompressor()
            try:
                found += stream.decompress(rest)
            except OSError:
                raise Refused from None
            if not stream.eof:
                raise Refused
            rest = stream.unused_data.lstrip(b"\0")
        return found
