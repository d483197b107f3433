"""Python records into Arrow columns, by the rules that hold for JSON text.

Values that JSON does not have (instants, bytes, decimals …) become what Arrow makes of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.decode._assemble import record_batch
from penstock.decode._bad_rows import bad_rows
from penstock.decode._columns import REFUSALS, JsonColumn, Misfit
from penstock.decode._fit import fit_array, mismatch
from penstock.decode._kinds import Kind, TooDeepError, kind_of_values, settled
from penstock.decode._nested_columns import column_for
from penstock.decode._unify import column_of_kind, warn_of_mixed
from penstock.decode._value_types import plain_items
from penstock.errors import SchemaMismatchError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PLAIN = frozenset({type(None), bool, int, float, str, list, dict})

Row = Mapping[str, Any]


def typed_batch(
    rows: Sequence[Row], schema: pa.Schema, numbers: NDArray[np.int64]
) -> pa.RecordBatch:
    """Return the columns of a schema out of records, each of exactly the type asked for.

    A field that is missing is null. `numbers` are the record numbers, int64[rows], for the error
    about a value that does not fit.

    >>> import numpy as np
    >>> typed_batch([{"a": 1}, {}], pa.schema({"a": pa.int8()}), np.arange(2)).to_pydict()
    {'a': [1, None]}
    """
    arrays = []
    for field in schema:
        column = column_for(field.type, field.name)
        values = [row.get(field.name) for row in rows]

        def build(start: int, stop: int) -> pa.Array:
            return _build(column, field, values[start:stop])  # noqa: B023 (used at once)

        try:
            arrays.append(build(0, len(values)))
        except Misfit as whole:
            # Where each row fits by itself, foreign values of several types do not fit together,
            # or a dictionary is too small.
            bad = bad_rows(len(values), build, (Misfit,), has_bad=True)
            row, misfit = next(bad, (0, whole))
            raise mismatch(misfit, int(numbers[row])) from None
    return record_batch(arrays, len(rows), schema)


def inferred_batch(rows: Sequence[Row], *, keeps_numbers: bool = False) -> pa.RecordBatch:
    """Return all fields of records, with types as wide as these records need.

    Fields of mixed types become strings, with a warning; numbers that no type holds do not, if it
    `keeps_numbers`.

    >>> inferred_batch([{"a": 1}, {"a": 0.5, "b": b"x"}]).schema.types
    [DataType(double), DataType(binary)]
    """
    names = dict.fromkeys(chain.from_iterable(rows))
    columns = [
        _inferred(name, [row.get(name) for row in rows], keeps_numbers=keeps_numbers)
        for name in names
    ]
    types = [column.type for column in columns]
    return record_batch(columns, len(rows), pa.schema(list(zip(names, types, strict=True))))


def _inferred(name: str, values: Sequence[object], *, keeps_numbers: bool) -> pa.Array:
    kind = _kind(values, keeps_numbers=keeps_numbers)
    if kind is None:
        values = [_plain(value) for value in values]
        kind = _kind(values, keeps_numbers=keeps_numbers)
    try:
        array = pa.array(values) if kind is None else column_of_kind(kind, name).build(values)
    except Misfit as misfit:
        raise SchemaMismatchError(
            f"field {misfit.path!r} holds {misfit.value!r}, which Arrow cannot express"
            f"{f': {misfit.why}' if misfit.why else ''}"
        ) from None
    except REFUSALS as why:
        raise SchemaMismatchError(
            f"field {name!r} holds values that no Arrow type holds together: {why}. "
            f"Convert them, or ask for other fields"
        ) from None
    if kind is not None:
        warn_of_mixed(kind, name, "Ask for the field with a type to choose another")
    return array


def _kind(values: Sequence[object], *, keeps_numbers: bool) -> Kind | None:
    """Return the kind of values; None where one has a type that JSON does not have."""
    try:
        return settled(kind_of_values(values, depth=1), keeps_numbers=keeps_numbers)
    except KeyError:  # Kinds are looked up by type.
        return None
    except TooDeepError as why:
        raise SchemaMismatchError(f"a record cannot become columns: {why}") from None


def _build(column: JsonColumn, field: pa.Field, values: Sequence[object]) -> pa.Array:
    try:
        array = column.build(values)
    except Misfit as misfit:
        if type(misfit.value) in _PLAIN:
            raise
        array = _build_foreign(column, [_plain(value) for value in values])
    if not field.nullable and array.null_count:
        raise Misfit(column.path, None, f"{field.type} not null")
    return array


def _build_foreign(column: JsonColumn, values: Sequence[object]) -> pa.Array:
    try:
        return column.build(values)
    except Misfit as misfit:
        if type(misfit.value) in _PLAIN:
            raise
        try:
            return fit_array(pa.array(values), column.type, column.path)
        except REFUSALS as why:
            raise column.misfit(misfit.value, str(why)) from None


def _plain(value: object) -> object:
    """Return a value as the types that JSON text gives, where there is one for it."""
    if type(value) in _PLAIN and not isinstance(value, list | dict):
        return value
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if (plain := plain_items(value)) is not value:
        return plain
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    return value
