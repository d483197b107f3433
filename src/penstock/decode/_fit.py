"""Arrow columns into the types that were asked for, exactly or not at all.

The rules are those of `TypedDecoder`: integers never wrap, floats never become infinite, strings
are never parsed as numbers. Arrow's own casts are more generous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock._words import counted
from penstock.decode._as_records import as_shown, bad_text
from penstock.decode._assemble import (
    LISTS,
    STRINGS,
    TEXTS,
    dictionary_array,
    is_any,
    list_array,
    list_items,
    list_lengths,
    map_array,
    null_rows,
    record_batch,
    struct_array,
)
from penstock.decode._bad_rows import bad_rows
from penstock.decode._columns import REFUSALS, WHOLE_FLOATS, Misfit, narrowed_floats
from penstock.decode._nested_columns import column_for
from penstock.decode._numbers import (
    NUMBERS,
    NumbersType,
    exact_type,
    number_parts,
    numbers_array,
)
from penstock.decode._plain_forms import to_plain_form
from penstock.decode._records import HOLDS_ALL
from penstock.decode._value_types import TEXT, ValueType
from penstock.errors import SchemaMismatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Cast = Callable[[pa.Array, pa.DataType, str], pa.Array]

is_ = pa.types


def fit_batch(
    batch: pa.RecordBatch, schema: pa.Schema, numbers: NDArray[np.int64]
) -> pa.RecordBatch:
    """Return the columns of a schema out of a batch, each of exactly the type asked for.

    A column that the batch does not have is null. `numbers` are the rows' record numbers, int64
    [rows], for the error about a value that does not fit.

    >>> batch = pa.record_batch({"a": [1, 2], "b": ["x", "y"]})
    >>> fit_batch(batch, pa.schema({"a": pa.int8(), "c": pa.string()}), np.arange(2)).to_pylist()
    [{'a': 1, 'c': None}, {'a': 2, 'c': None}]
    """
    try:
        return cast_batch(batch, schema, exactly)
    except Misfit as misfit:
        raise mismatch(misfit, int(numbers[misfit.row])) from None


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema, cast: Cast) -> pa.RecordBatch:
    """Return the columns of a schema, null where the batch has none; `cast` makes the leaves."""
    names = set(batch.schema.names)
    arrays = []
    for field in schema:
        array = batch.column(field.name) if field.name in names else pa.nulls(batch.num_rows)
        if not array.type.equals(field.type):
            array = to_plain_form(array)
        if not field.nullable and array.null_count:
            raise _null(field, field.name, null_rows(array))
        arrays.append(fit_array(array, field.type, field.name, cast))
    return record_batch(arrays, batch.num_rows, schema)


def exactly(array: pa.Array, type_: pa.DataType, path: str) -> pa.Array:
    """Return an array without parts as another type; raise `Misfit` if a value does not fit."""
    try:
        return _cast(array, type_, path)
    except (Misfit, *REFUSALS) as whole:
        why: Exception = whole

    def cast(start: int, stop: int) -> pa.Array:
        return _cast(array[start:stop], type_, path)

    errors = (Misfit, *REFUSALS)
    row, why = next(bad_rows(len(array), cast, errors, has_bad=True), (0, why))
    reason = why.why if isinstance(why, Misfit) else str(why)
    raise Misfit(path, as_shown(array[row]), str(type_), reason, row) from None


def fit_array(array: pa.Array, type_: pa.DataType, path: str, cast: Cast = exactly) -> pa.Array:
    """Return an array as another type; raise `Misfit` if a value of it does not fit."""
    if array.type.equals(type_):
        return array
    if array.null_count == len(array):
        return pa.nulls(len(array), type_)
    if isinstance(array, pa.ExtensionArray):
        return _fit_extension(array, type_, path, cast)
    if is_.is_dictionary(array.type):
        return fit_array(array.dictionary_decode(), type_, path, cast)
    if isinstance(type_, pa.BaseExtensionType) and not isinstance(type_, ValueType):
        return _into_extension(array, type_, path, cast)
    if is_.is_dictionary(type_):
        return cast(fit_array(array, type_.value_type, path, cast), type_, path)
    for nested, fitting, fit in _NESTED:
        if not is_any(type_, nested):
            continue
        if is_any(array.type, fitting):
            return fit(array, type_, path, cast)
        row = int((~null_rows(array)).argmax())
        raise Misfit(path, as_shown(array[row]), str(type_), row=row)
    return cast(array, type_, path)


def _fit_extension(array: pa.Array, type_: pa.DataType, path: str, cast: Cast) -> pa.Array:
    if isinstance(array.type, NumbersType):
        return _fit_numbers(array, type_, path, cast)
    is_text = isinstance(type_, ValueType) or is_any(type_, STRINGS)
    plain = uuids_as_texts(array) if is_text else array
    return fit_array(array.storage if plain is array else plain, type_, path, cast)


def _into_extension(array: pa.Array, type_: pa.DataType, path: str, cast: Cast) -> pa.Array:
    if isinstance(type_, NumbersType):
        return _as_numbers(array, type_, path)
    storage = fit_array(array, type_.storage_type, path, cast)
    return pa.ExtensionArray.from_storage(type_, storage)


def _fit_numbers(array: pa.Array, type_: pa.DataType, path: str, cast: Cast) -> pa.Array:
    """Return numbers of several types as another type, each by the rules of its own."""
    parts = [fit_array(part, type_, path, cast) for part in number_parts(array)]
    if isinstance(type_, NumbersType):
        every = zip(*(number_parts(part) for part in parts), strict=True)
        return numbers_array([pc.coalesce(*same) for same in every], type_)
    there = np.argmax([~null_rows(part) for part in parts], axis=0)
    # Taken: of types of our own Arrow knows no `coalesce`.
    return pa.concat_arrays(parts).take(pa.array(there * len(array) + np.arange(len(array))))


def _as_numbers(array: pa.Array, type_: NumbersType, path: str) -> pa.Array:
    """Return numbers of one type as those of several, of which one holds it exactly."""
    kinds = [kind for kind in NUMBERS if is_any(array.type, [kind])]
    at = next(
        (
            at
            for at, (part, _) in enumerate(type_.parts)
            if is_any(part, kinds) and exact_type(part, array.type) == part
        ),
        None,
    )
    if at is None:
        row = int((~null_rows(array)).argmax())
        raise Misfit(path, as_shown(array[row]), str(type_), row=row)
    parts = [pa.nulls(len(array), part) for part, _ in type_.parts]
    parts[at] = array.cast(parts[at].type)
    return numbers_array(parts, type_)


def uuids_as_texts(array: pa.Array) -> pa.Array:
    """Return UUIDs as texts, and an array of another type as it is."""
    if getattr(array.type, "extension_name", "") != "arrow.uuid":
        return array
    return pa.array([None if one is None else str(one) for one in array.to_pylist()], pa.string())


def refuse_bad_texts(batch: pa.RecordBatch, numbers: NDArray[np.int64]) -> None:
    """Raise where a text is not UTF-8."""
    for row, name in bad_texts(batch):
        raise bad_text(name, int(numbers[row]))


def bad_texts(batch: pa.RecordBatch) -> Iterator[tuple[int, str]]:
    """Yield the row and the field of each value with text that is not UTF-8."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if _holds_texts(column.type) and not _are_texts(column):
            found = bad_rows(len(column), partial(_check_texts, column), (ValueError,))
            yield from ((row, name) for row, _ in found)


def _check_texts(column: pa.Array, start: int, stop: int) -> None:
    # Taken, not sliced: the items of nested values are checked as a whole.
    if not _are_texts(column.take(pa.array(range(start, stop)))):
        raise ValueError


def _are_texts(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as why:
        return "UTF8" not in str(why)
    return True


def _holds_texts(type_: pa.DataType) -> bool:
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    if is_.is_dictionary(type_):
        type_ = type_.value_type
    parts = [type_.field(at).type for at in range(type_.num_fields)]
    return is_any(type_, STRINGS) or any(map(_holds_texts, parts))


def mismatch(misfit: Misfit, number: int) -> SchemaMismatchError:
    """Return the error about a value of a record that does not fit."""
    return SchemaMismatchError(
        f"record {number:,}: {misfit.fact}", remedy=HOLDS_ALL, field=misfit.path, record=number
    )


def _null(field: pa.Field, path: str, nulls: NDArray[np.bool_]) -> Misfit:
    return Misfit(path, None, f"{field.type} not null", row=int(nulls.argmax()))


def _fit_lists(array: pa.Array, type_: pa.DataType, path: str, cast: Cast) -> pa.Array:
    if is_.is_map(array.type):
        entry = {"key": array.type.key_type, "value": array.type.item_type}
        array = array.cast(pa.list_(pa.struct(entry)))
    nulls, lengths, items = null_rows(array), list_lengths(array), list_items(array)
    if not type_.value_field.nullable and items.null_count:
        missing = _null(type_.value_field, f"{path}[]", null_rows(items))
        raise _in_row(missing, np.where(nulls, 0, lengths))
    rooms = lengths
    if is_.is_fixed_size_list(type_):
        wrong = ~nulls & (lengths != type_.list_size)
        if wrong.any():
            row = int(wrong.argmax())
            why = f"it does not have {counted(type_.list_size, 'item')}"
            raise Misfit(path, as_shown(array[row]), str(type_), why, row)
        # Such a list keeps room for its items also where it is null.
        rooms = np.full(len(array), type_.list_size)
        filled = np.full(rooms.sum(), -1)
        filled[np.repeat(~nulls, type_.list_size)] = np.arange(len(items))
        items = items.take(pa.array(filled, mask=filled < 0))
    fitted = _of_rows(items, type_.value_type, path, rooms, cast)
    return list_array(lengths, nulls, fitted, type_)


def _of_rows(
    items: pa.Array, type_: pa.DataType, path: str, lengths: NDArray[np.int64], cast: Cast
) -> pa.Array:
    try:
        return fit_array(items, type_, f"{path}[]", cast)
    except Misfit as misfit:
        raise _in_row(misfit, lengths) from None


def _in_row(misfit: Misfit, lengths: NDArray[np.int64]) -> Misfit:
    misfit.row = int(np.searchsorted(np.cumsum(lengths), misfit.row, side="right"))
    return misfit


def _fit_structs(array: pa.Array, type_: pa.DataType, path: str, cast: Cast) -> pa.Array:
    nulls = null_rows(array)
    # `flatten` hides the values under a null struct, `field` would show them.
    there = dict(zip([field.name for field in array.type], array.flatten(), strict=True))
    children = []
    for field in type_:
        inner = f"{path}.{field.name}"
        child = there.get(field.name, pa.nulls(len(array)))
        missing = null_rows(child) & ~nulls
        if not field.nullable and missing.any():
            raise _null(field, inner, missing)
        children.append(fit_array(child, field.type, inner, cast))
    return struct_array(children, nulls, type_)


def _fit_maps(array: pa.Array, type_: pa.DataType, path: str, cast: Cast) -> pa.Array:
    # Arrow flattens lists, not maps.
    nulls, offsets = null_rows(array), array.offsets.to_numpy().astype(np.int64)
    lengths = np.diff(offsets)
    there = np.arange(offsets[0], offsets[-1])[np.repeat(~nulls, lengths)]
    lengths[nulls] = 0
    rows = pa.array(there)
    keys = _of_rows(array.keys.take(rows), type_.key_type, path, lengths, cast)
    items = _of_rows(array.items.take(rows), type_.item_type, path, lengths, cast)
    return map_array(lengths, nulls, keys, items, type_)


def _cast(array: pa.Array, type_: pa.DataType, path: str) -> pa.Array:
    have = array.type
    if array.null_count == len(array):
        return pa.nulls(len(array), type_)
    if is_.is_integer(type_) and is_.is_floating(have):
        if pc.any(pc.greater_equal(pc.abs(array), float(WHOLE_FLOATS))).as_py():
            raise ValueError("a float this large may stand for a neighbouring integer")
        return array.cast(type_)
    if is_.is_floating(type_) and is_any(have, ("integer", "floating", "decimal")):
        return narrowed_floats(array.cast(pa.float64(), safe=False), type_)
    if is_.is_dictionary(type_):
        return dictionary_array(type_, array)
    if isinstance(type_, ValueType):
        if type_ == TEXT and is_any(have, STRINGS):
            return pa.ExtensionArray.from_storage(type_, array.cast(type_.storage_type))
        return column_for(type_, path).build(array.to_pylist())
    is_number = is_.is_integer(type_) and is_.is_decimal(have)
    if is_number or any(is_any(have, one) and is_any(type_, one) for one in _FAMILIES):
        return array.cast(type_)
    if is_any(have, ("boolean", "integer", "floating", "string", "large_string")):
        # Strings as moments or decimals, integers as counts: rare, and the rules are written once.
        return column_for(type_, path).build(array.to_pylist())
    raise TypeError(f"it is {have}")


_NESTED = (
    (LISTS, (*LISTS, "map"), _fit_lists),
    (("struct",), ("struct",), _fit_structs),
    (("map",), ("map",), _fit_maps),
)
"""Nested types, those that are made into them, and how."""
_FAMILIES = (("integer",), TEXTS, ("decimal",), ("timestamp", "date"), ("time",), ("duration",))
"""Types that Arrow casts into each other safely, by their tests in `pyarrow.types`."""
