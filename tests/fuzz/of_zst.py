"""Zstandard: our seekable files and those of other tools, against pyzstd and Python's `json`."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyzstd
import zstandard

from penstock.jsonl import JsonlFile
from tests.fuzz._format import Refused
from tests.fuzz._lines import Lines, lines

if TYPE_CHECKING:
    from pathlib import Path

_ANY_WINDOW = {pyzstd.DParameter.windowLogMax: 31}


class Zst(Lines):
    """Frames with a seek table, frames of another tool, and one without size and checksum."""

    name = "zst"
    rounds = (100, 40_000)
    ending = ".jsonl.zst"

    def make(self, folder: Path) -> None:
        with JsonlFile(folder / "ours.jsonl.zst").writer_sync(frame_bytes=500) as writer:
            writer.write_raw(lines(0, 12))
        frame = zstandard.ZstdCompressor(write_checksum=True).compress
        skipped = b"\x50\x2a\x4d\x18\x03\0\0\0abc"
        many = frame(lines(12, 15)) + skipped + frame(lines(15, 17)) + frame(b"")
        (folder / "others.jsonl.zst").write_bytes(many)
        stream = io.BytesIO()
        with zstandard.ZstdCompressor().stream_writer(stream, closefd=False) as writer:
            writer.write(lines(17, 20))
        (folder / "stream.jsonl.zst").write_bytes(stream.getvalue())

    def text(self, data: bytes) -> bytes:
        if not data:
            raise Refused  # As the zstd command does: no frame is no file.
        try:
            return pyzstd.decompress(data, option=_ANY_WINDOW)
        except (pyzstd.ZstdError, MemoryError):
            raise Refused from None
