"""One number for each key of a column, the same in every process and release."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import OptionError

is_ = pa.types


def key_hashes(array: pa.Array, key: int, path: str) -> np.ndarray:
    """Return a hash (uint64) of every value of a column; `path` names it in errors.

    What counts is the text of a value: 17, 17.0 and "17" are one key, null is one of its own.

    >>> import pyarrow as pa
    >>> whole, text = pa.array([17, None, 17]), pa.array(["17", None, ""])
    >>> (key_hashes(whole, 1, "user") == key_hashes(text, 1, "user")).tolist()
    [True, True, False]
    """
    encoded = _plain(array, path).dictionary_encode()
    own = key.to_bytes(8, "little")
    hashes = [_hash(_text(value).encode(), own) for value in _values(encoded.dictionary)]
    # Null stands at the end, where a number that is null is made to point.
    hashes.append(_hash(b"\0null", own))
    places = pc.fill_null(encoded.indices, len(hashes) - 1).to_numpy(zero_copy_only=False)
    found: np.ndarray = np.array(hashes, np.uint64)[places]
    return found


def _plain(array: pa.Array, path: str) -> pa.Array:
    if is_.is_dictionary(array.type):
        return _plain(array.dictionary_decode(), path)
    if is_.is_null(array.type) or is_.is_string_view(array.type):
        return array.cast(pa.string())
    if is_.is_nested(array.type):
        raise OptionError(
            f"by={path!r} is {array.type}: records are kept together by one value. "
            "Name a field inside it, as in by='user.id'."
        )
    return array


def _values(distinct: pa.Array) -> list[object]:
    type_ = distinct.type
    if is_.is_float16(type_) or is_.is_float32(type_):
        distinct = distinct.cast(pa.float64())
    elif is_.is_temporal(type_) or is_.is_decimal(type_):
        # As text, because Python's moments know no nanoseconds.
        distinct = distinct.cast(pa.string())
    try:
        values: list[object] = distinct.to_pylist()
    except UnicodeDecodeError:  # Parquet files may hold texts that are no UTF-8.
        texts: list[bytes | None] = distinct.cast(pa.large_binary()).to_pylist()
        values = [None if text is None else text.decode("utf-8", "replace") for text in texts]
    return values


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, str) else repr(value)


def _hash(text: bytes, key: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, key=key).digest(), "little")
