"""Arrow columns as Python records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import SchemaMismatchError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


def as_records(batch: pa.RecordBatch, numbers: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Return the rows of a batch as Python has them.

    `numbers` are their record numbers, int64[rows], for the error about a value that Python does
    not have: text that is not UTF-8, a date beyond the year 9999, nanoseconds without pandas.

    >>> import pyarrow as pa, numpy as np
    >>> as_records(pa.record_batch({"a": [1, 2], "b": ["x", None]}), np.arange(2))
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': None}]
    """
    names = batch.schema.names
    if not names:
        return [{} for _ in range(batch.num_rows)]
    columns = [
        as_values(column, name, numbers) for name, column in zip(names, batch.columns, strict=True)
    ]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def as_values(column: pa.Array, name: str, numbers: NDArray[np.int64]) -> list[Any]:
    """Return a column as Python values; see `as_records`."""
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, ArithmeticError) as why:
        record = next(
            (int(number) for number, value in zip(numbers, column, strict=True) if _is_odd(value)),
            int(numbers[0]),
        )
        if isinstance(why, UnicodeError):
            raise bad_text(name, record) from None
        said = "this machine does not know the time zone" if "zoneinfo" in str(why) else str(why)
        raise SchemaMismatchError(
            f"record {record:,}: field {name!r} holds a value of type {column.type} that Python "
            f"cannot express: {said}. Leave the field out, or read it as Arrow with another type: "
            f"read(ids, {{{name!r}: …}}).",
            field=name,
            record=record,
        ) from None
    return values


def bad_text(name: str, record: int) -> SchemaMismatchError:
    """Return the error about a text that is not UTF-8, which files of other tools may hold."""
    return SchemaMismatchError(
        f"record {record:,}: field {name!r} holds text that is not UTF-8.",
        remedy="Ask for binary in place of string, or write the text again as UTF-8.",
        field=name,
        record=record,
    )


def as_shown(value: pa.Scalar) -> object:
    """Return a value for the text of an error, whether Python has it or not."""
    return f"a value of type {value.type}" if _is_odd(value) else value.as_py()


def _is_odd(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except (ValueError, ArithmeticError):
        return True
    return False
