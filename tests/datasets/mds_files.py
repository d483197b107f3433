"""MDS folders, written from what is known of the format; held against the real writer by hand."""

from __future__ import annotations

import bz2
import gzip
import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import zstandard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_FIXED = {
    "int": "<i8", "int8": "i1", "int16": "<i2", "int32": "<i4", "int64": "<i8", "uint8": "u1",
    "uint16": "<u2", "uint32": "<u4", "uint64": "<u8", "float16": "<f2", "float32": "<f4",
    "float64": "<f8",
}  # fmt: skip
_CODES = {
    "uint8": 8, "int8": 9, "uint16": 16, "int16": 17, "float16": 18, "uint32": 32, "int32": 33,
    "float32": 34, "uint64": 64, "int64": 65, "float64": 66,
}  # fmt: skip
_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "br": lambda data: pa.compress(data, "brotli", asbytes=True),
    "snappy": lambda data: pa.compress(data, "snappy", asbytes=True),
}


def write_mds(
    folder: Path,
    columns: Mapping[str, str],
    rows: Sequence[Mapping[str, Any]],
    *,
    samples: int = 1_000_000,
    compression: str | None = None,
) -> None:
    """Write a folder with at most so many samples a shard."""
    folder.mkdir(parents=True, exist_ok=True)
    shards = []
    for number, start in enumerate(range(0, len(rows), samples)):
        some = rows[start : start + samples]
        data = shard_bytes(columns, some)
        raw = {"basename": f"shard.{number:05}.mds", "bytes": len(data), "hashes": {}}
        packed = None
        if compression is not None:
            kind = compression.partition(":")[0]
            small = _PACKERS[kind](data)
            packed = {"basename": f"{raw['basename']}.{kind}", "bytes": len(small), "hashes": {}}
            (folder / str(packed["basename"])).write_bytes(small)
        else:
            (folder / str(raw["basename"])).write_bytes(data)
        shards.append(
            {**_config(columns), "samples": len(some), "raw_data": raw, "zip_data": packed}
            | {"compression": compression}
        )
    index = {"version": 2, "shards": shards}
    (folder / "index.json").write_text(json.dumps(index, sort_keys=True))


def shard_bytes(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return a whole shard."""
    config = json.dumps(_config(columns), sort_keys=True).encode()
    texts = [_sample(columns, row) for row in rows]
    first = 4 + 4 * (len(rows) + 1) + len(config)
    offsets = first + np.cumsum([0, *map(len, texts)])
    head = struct.pack("<I", len(rows)) + offsets.astype("<u4").tobytes()
    return head + config + b"".join(texts)


def size_of(encoding: str) -> int | None:
    """Return the bytes of every value, where they are the same."""
    if encoding in _FIXED:
        return np.dtype(_FIXED[encoding]).itemsize
    kind, *details = encoding.split(":")
    if kind == "ndarray" and len(details) == 2:
        return int(np.prod(_shape(details[1]))) * np.dtype(details[0]).itemsize
    return None


def encoded(encoding: str, value: Any) -> bytes:
    """Return the bytes of a value; bytes stand for themselves."""
    if isinstance(value, bytes):
        return value
    if encoding in _FIXED:
        return np.array(value, _FIXED[encoding]).tobytes()
    if encoding.startswith("ndarray"):
        return _array(encoding.split(":")[1:], value)
    if encoding == "json":
        return json.dumps(value).encode()
    if encoding.startswith("list[") or encoding == "jpeg_array":
        sizes = struct.pack(f"<{len(value) + 1}I", len(value), *map(len, value))
        return bytes(4 * encoding.startswith("list[")) + sizes + b"".join(value)
    return str(value).encode()


def _array(details: Sequence[str], value: Any) -> bytes:
    head = b"" if details else bytes([_CODES[value.dtype.name]])
    if len(details) < 2:
        kind = int(np.searchsorted([1 << 8, 1 << 16, 1 << 32], max(value.shape), "right"))
        shape = np.array(value.shape, f"<u{1 << kind}").tobytes()
        head += bytes([value.ndim << 2 | kind]) + shape
    return head + bytes(value.tobytes())


def _shape(text: str) -> list[int]:
    return [int(axis) for axis in text.split(",")]


def _sample(columns: Mapping[str, str], row: Mapping[str, Any]) -> bytes:
    values = [(kind, encoded(kind, row[name])) for name, kind in sorted(columns.items())]
    sizes = [len(value) for kind, value in values if size_of(kind) is None]
    return struct.pack(f"<{len(sizes)}I", *sizes) + b"".join(value for _, value in values)


def _config(columns: Mapping[str, str]) -> dict[str, Any]:
    names = sorted(columns)
    return {
        "version": 2,
        "format": "mds",
        "compression": None,
        "hashes": [],
        "size_limit": 1 << 26,
        "column_names": names,
        "column_encodings": [columns[name] for name in names],
        "column_sizes": [size_of(columns[name]) for name in names],
    }
