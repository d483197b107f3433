"""The content of `sample_schema.json`: the arrays of a sample, as data-forager has them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from penstock.errors import CorruptIndexError, OptionError

SAMPLE_SCHEMA = "sample_schema.json"
_LARGEST = 1 << 31
"""Bytes of a sample: what NumPy takes for one item."""
_WIDEST = 8
"""Bytes of a number that Arrow has a type for."""


@dataclass(slots=True)
class ArraySpec:
    """One array of a sample: its name, the NumPy type of its values, its first byte."""

    name: str
    dtype: str
    offset: int


@dataclass(slots=True)
class SampleSchema:
    """The arrays of every sample, of `sample_size` values each.

    >>> SampleSchema(8, [ArraySpec("tokens", "uint32", 0)]).total_bytes_per_sample
    32
    """

    sample_size: int
    arrays: list[ArraySpec] = field(default_factory=list)
    total_bytes_per_sample: int | None = None
    """By default the bytes of all arrays."""

    def __post_init__(self) -> None:
        if self.total_bytes_per_sample is None and self.arrays:
            sizes = (_value_type(array.dtype).itemsize for array in self.arrays)
            self.total_bytes_per_sample = self.sample_size * sum(sizes)

    def row(self) -> np.dtype[Any]:
        """Return a sample as a NumPy type: a field of `sample_size` values for each array."""
        arrays, size, total = self.arrays, self.sample_size, self.total_bytes_per_sample or 0
        types = [_value_type(array.dtype) for array in arrays]
        if len({array.name for array in arrays}) != len(arrays) or not all(a.name for a in arrays):
            raise OptionError("two arrays have one name, or an array has none.")
        ends = [a.offset + size * type_.itemsize for a, type_ in zip(arrays, types, strict=True)]
        fits = arrays and size > 0 and min(array.offset for array in arrays) >= 0
        if not fits or max(ends) > total or total > _LARGEST:
            raise OptionError(
                f"arrays of {size:,} values do not fit into samples of {total:,} bytes."
            )
        return np.dtype(
            {
                "names": [array.name for array in arrays],
                "formats": [(type_, (size,)) for type_ in types],
                "offsets": [array.offset for array in arrays],
                "itemsize": total,
            }
        )


def encode_schema(schema: SampleSchema) -> bytes:
    """Return the bytes of `sample_schema.json`; raise for a schema that describes no sample."""
    schema.row()
    return msgspec.json.format(msgspec.json.encode(schema), indent=2)


def decode_schema(data: bytes, path: str) -> SampleSchema:
    """Return the schema in a `sample_schema.json`; raise where it describes no sample."""
    try:
        schema = msgspec.json.decode(data, type=SampleSchema)
        schema.row()
    except (ValueError, TypeError) as why:
        raise CorruptIndexError(
            f"{path}, which describes the extra arrays of token samples, is damaged: {why} Copy "
            "the folder again, or tokenise again with the tool that made it.",
            path=path,
        ) from None
    return schema


def _value_type(name: str) -> np.dtype[Any]:
    # NumPy parses what has commas and braces, and raises as parsers do.
    with suppress(TypeError, ValueError, SyntaxError):
        found = np.dtype(name).newbyteorder("<")
        if found.kind in "biuf" and found.itemsize <= _WIDEST:
            return found
    raise OptionError(f"{name!r} is no type of numbers.")
