"""Numbers whose types no type holds exactly, as one column: each value keeps its own type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.decode._assemble import is_any
from penstock.decode._columns import WHOLE_FLOATS

if TYPE_CHECKING:
    from numpy.typing import NDArray

NUMBERS = ("integer", "floating", "decimal")
"""Kinds of Arrow types, by the names of the tests in `pyarrow.types`."""
_SIGNIFICANT_BITS = {pa.float16(): 11, pa.float32(): 24, pa.float64(): 53}
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""Decimal digits of integers of so many bits."""


class NumbersScalar(pa.ExtensionScalar):  # type: ignore[misc] # pyarrow has no types
    """One number as Python has it."""

    def as_py(self, **options: Any) -> object:  # noqa: ANN401 (as the base has it)
        # By place: several may have the same name.
        places = range(self.type.storage_type.num_fields if self.is_valid else 0)
        parts = (self.value[at].as_py(**options) for at in places)
        return next((part for part in parts if part is not None), None)


class NumbersType(pa.ExtensionType):  # type: ignore[misc] # pyarrow has no types
    """Numbers of several types, such as int64 in one file and double in another.

    The storage is a struct with a field for each type, of which a value has one. The name of the
    field is a place that holds such numbers: a file, or "" if any may. No column that a user gets
    is of this type: `refuse_numbers` of `penstock.datasets` raises before.
    """

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "penstock.numbers")

    @classmethod
    def of(cls, types: Iterable[tuple[pa.DataType, str]]) -> NumbersType:
        """Return the type of numbers of these types, each with its place."""
        return cls(pa.struct([pa.field(place, type_) for type_, place in types]))

    @property
    def parts(self) -> list[tuple[pa.DataType, str]]:
        """The types, each with its place."""
        return [(field.type, field.name) for field in self.storage_type]

    @property
    def exact(self) -> pa.DataType:
        """The type of numbers that holds all of these exactly, or this one."""
        types: list[pa.DataType | None] = [type_ for type_, _ in self.parts]
        return reduce(exact_type, types) or self

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> NumbersType:
        # A file may claim to hold it.
        is_struct = pa.types.is_struct(storage_type) and storage_type.num_fields
        if not is_struct or not all(is_any(field.type, NUMBERS) for field in storage_type):
            raise ValueError(f"penstock.numbers of {storage_type}")
        return cls(storage_type)

    def __arrow_ext_scalar_class__(self) -> type[NumbersScalar]:
        return NumbersScalar

    def __hash__(self) -> int:
        return hash(self.storage_type)

    def __str__(self) -> str:
        return " or ".join(dict.fromkeys(str(type_) for type_, _ in self.parts))


JSON_NUMBERS = NumbersType.of([(pa.int64(), ""), (pa.uint64(), ""), (pa.float64(), "")])
"""Numbers of JSON, which has no types."""
pa.register_extension_type(JSON_NUMBERS)


def exact_type(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    """Return the narrowest type that holds every number of two types, None if there is none.

    >>> exact_type(pa.int32(), pa.float32()), exact_type(pa.int64(), pa.float64())
    (DataType(double), None)
    """
    if one is None or other is None or one == other:
        return one and other
    pair = (one, other)
    integers = [type_ for type_ in pair if pa.types.is_integer(type_)]
    decimals = [type_ for type_ in pair if pa.types.is_decimal(type_)]
    if len(integers) == len(pair):
        signed = any(map(pa.types.is_signed_integer, pair))
        return None if signed and pa.uint64() in pair else _unified(pair)
    if decimals:
        tens = [pa.decimal128(_DIGITS[type_.bit_width], 0) for type_ in integers]
        return _unified([*decimals, *tens]) if len(decimals + tens) == len(pair) else None
    bits = [
        _SIGNIFICANT_BITS.get(type_, type_.bit_width - pa.types.is_signed_integer(type_))
        for type_ in pair
    ]
    return next((type_ for type_, own in _SIGNIFICANT_BITS.items() if own >= max(bits)), None)


def floats_equal(integers: pa.Array) -> bool:
    """Whether a double equals each integer of an array."""
    values = integers.drop_null().to_numpy(zero_copy_only=False)
    sizes = values.astype(np.uint64)
    sizes = np.where(values < 0, ~sizes + 1, sizes)
    # A double has 53 bits, and any number of zeros behind them.
    lowest = sizes & (~sizes + 1)
    return bool(((sizes < lowest * WHOLE_FLOATS) | (lowest >= 1 << 11) | (sizes == 0)).all())


def _unified(types: Sequence[pa.DataType]) -> pa.DataType | None:
    schemas = [pa.schema([("", type_)]) for type_ in types]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:  # More digits than a decimal has.
        return None


def numbers_in(type_: pa.DataType, path: str) -> Iterator[tuple[str, NumbersType]]:
    """Yield path and type of the numbers of several types in a field, or inside of it."""
    if isinstance(type_, NumbersType):
        yield path, type_
    for at in range(type_.num_fields):
        inner = type_.field(at)
        is_item = not pa.types.is_struct(type_)
        yield from numbers_in(inner.type, f"{path}[]" if is_item else f"{path}.{inner.name}")


def number_parts(array: pa.Array) -> list[pa.Array]:
    """Return the numbers of each type, null where a number is of another one."""
    parts: list[pa.Array] = array.storage.flatten()
    return parts


def numbers_array(parts: Sequence[pa.Array], type_: NumbersType) -> pa.Array:
    """Return one column of the numbers of all parts: each row is null in all but one of them."""
    nulls = np.logical_and.reduce([part.is_null().to_numpy(zero_copy_only=False) for part in parts])
    storage = pa.StructArray.from_arrays(
        list(parts), fields=list(type_.storage_type), mask=pa.array(nulls)
    )
    return pa.ExtensionArray.from_storage(type_, storage)


def batches_of_one_type(
    batch: pa.RecordBatch,
) -> Iterator[tuple[NDArray[np.int64], pa.RecordBatch]]:
    """Yield rows, int64[rows], and their columns: in each batch a column has one plain type."""
    if not any(isinstance(type_, NumbersType) for type_ in batch.schema.types):
        yield np.arange(batch.num_rows), batch
        return
    rows, kinds = np.arange(batch.num_rows), np.zeros(batch.num_rows, np.int64)
    columns: dict[str, list[pa.Array]] = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        columns[name] = [array]
        if isinstance(array.type, NumbersType):
            columns[name] = number_parts(array)
            there = [part.is_valid().to_numpy(zero_copy_only=False) for part in columns[name]]
            kinds = kinds * len(there) + np.argmax(there, axis=0)
    for kind in np.unique(kinds).tolist():
        own = rows[kinds == kind]
        arrays, rest = [], kind
        for parts in reversed(columns.values()):
            rest, at = divmod(rest, len(parts))
            arrays.append(parts[at].take(pa.array(own)))
        yield own, pa.RecordBatch.from_arrays(arrays[::-1], list(columns))
