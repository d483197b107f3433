"""Python records into Arrow columns, by the rules that hold for JSON text.

Values that JSON does not have (instants, bytes, decimals …) become what Arrow makes of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.decode._assemble import record_batch
from penstock.decode._bad_rows import bad_rows
from penstock.decode._columns import REFUSALS, JsonColumn, Misfit
from penstock.decode._fit import fit_array, mismatch
from penstock.decode._kinds import TooDeepError, kind_of_records, settled_record
from penstock.decode._schema_columns import column_for
from penstock.decode._widen import batch_of_records
from penstock.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_log = logging.getLogger("penstock.decode")

_PLAIN = frozenset({type(None), bool, int, float, str, list, dict})

Row = Mapping[str, Any]


def typed_batch(
    rows: Sequence[Row], schema: pa.Schema, numbers: NDArray[np.int64]
) -> pa.RecordBatch:
    """Return the columns of a schema out of records, each of exactly the type asked for.

    A field that is missing is null. `numbers` are the record numbers, int64[rows], for the error
    about a value that does not fit.

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


def inferred_batch(rows: Sequence[Row], warned: set[str]) -> pa.RecordBatch:
    """Return all fields of records, with types as wide as these records need.

    Fields of mixed types become strings, with a warning unless the field is in `warned`.

    >>> inferred_batch([{"a": 1}, {"a": 0.5, "b": b"x"}], set()).schema.types
    [DataType(double), DataType(binary)]
    """
    try:
        return _inferred(rows, warned)
    except _ForeignValue:
        pass
    plain = [{name: _plain(value) for name, value in row.items()} for row in rows]
    try:
        return _inferred(plain, warned)
    except _ForeignValue:
        names = dict.fromkeys(chain.from_iterable(plain))
    columns = {name: _inferred_column(name, plain, warned) for name in names}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


class _ForeignValue(Exception):  # noqa: N818 - says what a value is, not what went wrong
    """A value of a type that JSON does not have."""


def _inferred(rows: Sequence[Row], warned: set[str]) -> pa.RecordBatch:
    mixed: dict[str, str] = {}
    try:
        # Kinds are looked up by type, and there is none for a type that JSON does not have.
        kind = kind_of_records([_as_dict(row) for row in rows], mixed.setdefault)
    except KeyError:
        raise _ForeignValue from None
    except TooDeepError as why:
        raise SchemaMismatchError(f"a record cannot become columns: {why}") from None
    kind = settled_record(kind, "", mixed.setdefault)
    for path in mixed.keys() - warned:
        warned.add(path)
        _log.warning(
            "field %r holds %s and becomes a string: strings stay as they are, other values "
            "become their JSON text. Ask for the field with a type to choose another",
            path,
            mixed[path],
        )
    try:
        return batch_of_records([_as_dict(row) for row in rows], kind)
    except Misfit as misfit:
        raise SchemaMismatchError(
            f"field {misfit.path!r} holds {misfit.value!r}, which Arrow cannot express"
            f"{f': {misfit.why}' if misfit.why else ''}"
        ) from None


def _inferred_column(name: str, rows: Sequence[Row], warned: set[str]) -> pa.Array:
    values = [row.get(name) for row in rows]
    try:
        return _inferred([{name: value} for value in values], warned).column(0)
    except _ForeignValue:
        try:
            return pa.array(values)
        except REFUSALS as why:
            raise SchemaMismatchError(
                f"field {name!r} holds values that no Arrow type holds together: {why}. "
                f"Convert them, or ask for other fields"
            ) from None


def _as_dict(row: Row) -> dict[str, Any]:
    return row if type(row) is dict else dict(row)


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
    """Return a value as the types that JSON text gives, where there is one for it.

    >>> _plain({"a": (np.int8(1), np.zeros(2))})
    {'a': [1, [0.0, 0.0]]}
    """
    if type(value) in _PLAIN and not isinstance(value, list | dict):
        return value
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        # Instants would lose their unit as Python values, nanoseconds even their type.
        return value if value.dtype.kind in "mM" else value.tolist()
    for plain in (str, int, float):
        if isinstance(value, plain):
            return plain(value)
    return value
