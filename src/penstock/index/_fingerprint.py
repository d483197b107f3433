"""Fingerprints: short texts that change with the data."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from penstock.storage import OpenFile

_END_BYTES = 16 << 10
_WHOLE_BLOCK = 8 << 20


def digest(value: object) -> str:
    """Return 16 hexadecimal digits for a plain JSON value.

    >>> digest([1, "a"]) == digest([1, "a"]) != digest([1, "b"])
    True
    """
    try:
        text = orjson.dumps(value)
    except orjson.JSONEncodeError:  # The name of a file that is not UTF-8.
        text = json.dumps(value, separators=(",", ":")).encode()
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def file_fingerprint(file: OpenFile, size: int | None = None) -> str:
    """Return a hash of the head, the tail and the size of a file, or of its first `size` bytes."""
    size = file.size if size is None else size
    ends = sorted({0, max(0, size - _END_BYTES)})
    hashed = hashlib.blake2b(str(size).encode(), digest_size=8)
    for part in file.read_ranges([(at, min(_END_BYTES, size - at)) for at in ends]):
        hashed.update(part)
    return hashed.hexdigest()


def whole_hash(file: OpenFile, size: int | None = None) -> str:
    """Return a hash of every byte of a file, or of its first `size` bytes."""
    size = file.size if size is None else size
    hashed = hashlib.blake2b(digest_size=16)
    for start in range(0, size, _WHOLE_BLOCK):
        hashed.update(file.read_at(start, min(_WHOLE_BLOCK, size - start)))
    return hashed.hexdigest()
