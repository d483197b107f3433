"""Compressed files as other programs write them."""

from __future__ import annotations

import gzip
import io
import struct
from typing import TYPE_CHECKING

import pyzstd

if TYPE_CHECKING:
    from collections.abc import Iterable

SKIPPABLE_FRAME = struct.pack("<II", 0x184D2A50, 5) + b"hello"
CHECKSUM = {pyzstd.CParameter.checksumFlag: 1}
NO_CONTENT_SIZE = {pyzstd.CParameter.contentSizeFlag: 0}


def packed(text: bytes, ending: str) -> bytes:
    """Return a text compressed as a name's ending asks for."""
    if ending.startswith(".zst"):
        return pyzstd.compress(text)
    return gzip.compress(text) if ending == ".gz" else text


def zstd_frames(parts: Iterable[bytes], options: dict[int, int] | None = None) -> list[bytes]:
    """Return each part of a text as a frame."""
    return [pyzstd.compress(part, options) for part in parts]


def seekable(text: bytes, frame_bytes: int, options: dict[int, int] | None = None) -> bytes:
    """Return what pyzstd's SeekableZstdFile writes: frames cut anywhere, and a table."""
    whole = io.BytesIO()
    with pyzstd.SeekableZstdFile(
        whole, "wb", level_or_option=options, max_frame_content_size=frame_bytes
    ) as file:
        file.write(text)
    return whole.getvalue()


def table_with_checksums(frames: list[bytes], texts: list[bytes]) -> bytes:
    """Return a seek table whose entries carry a checksum, as zstd's own example program does."""
    entries = b"".join(
        struct.pack("<III", len(frame), len(text), 0xDEADBEEF)
        for frame, text in zip(frames, texts, strict=True)
    )
    footer = struct.pack("<IBI", len(frames), 0x80, 0x8F92EAB1)
    return struct.pack("<II", 0x184D2A5E, len(entries + footer)) + entries + footer


def halves(text: bytes, size: int) -> list[bytes]:
    """Return a text in parts of `size` bytes, wherever lines end."""
    return [text[start : start + size] for start in range(0, len(text), size)]
