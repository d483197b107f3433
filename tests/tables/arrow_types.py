"""Every type of Arrow by itself and inside of every other, with values of each."""

from __future__ import annotations

from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LONG = "a text that does not fit into a view"
_VALUES: dict[pa.DataType, list[Any]] = {
    pa.null(): [None, None],
    pa.bool_(): [True, False],
    pa.int8(): [1, -2],
    pa.uint64(): [1, 2**64 - 1],
    pa.float16(): [0.5, 2.0],
    pa.float64(): [0.1, -2.0],
    pa.string(): ["a", _LONG],
    pa.large_string(): ["a", _LONG],
    pa.string_view(): ["a", _LONG],
    pa.binary(): [b"a", b"\xff"],
    pa.large_binary(): [b"a", b"\xff"],
    pa.binary_view(): [b"a", _LONG.encode()],
    pa.binary(2): [b"ab", b"cd"],
    pa.binary(0): [b"", b""],
    pa.decimal32(5, 2): [Decimal("1.50"), Decimal("-2.25")],
    pa.decimal64(12, 2): [Decimal("1.50"), Decimal("-2.25")],
    pa.decimal128(20, 2): [Decimal("1.50"), Decimal("-2.25")],
    pa.decimal256(50, 2): [Decimal("1.50"), Decimal("-2.25")],
    pa.date32(): [date(2024, 2, 29), date(1, 1, 1)],
    pa.date64(): [date(2024, 2, 29), date(1900, 1, 1)],
    pa.time32("ms"): [time(1), time(2, 3)],
    pa.time64("us"): [time(1), time(2, 3, 4, 5)],
    pa.timestamp("us"): [datetime(2024, 1, 1), datetime(1969, 1, 1)],  # noqa: DTZ001 (as Arrow has it)
    pa.duration("us"): [timedelta(1), timedelta(seconds=-1)],
    pa.month_day_nano_interval(): [pa.MonthDayNano([1, 2, 3]), pa.MonthDayNano([0, 0, 0])],
    pa.struct([]): [{}, {}],
    pa.uuid(): [b"0123456789abcdef", bytes(16)],
    pa.json_(): ["{}", "[1]"],
    pa.fixed_shape_tensor(pa.int32(), [2]): [[1, 2], [3, 4]],
}
_UNREAD = [
    pa.sparse_union([]),
    pa.dense_union([]),
    pa.sparse_union([pa.field("a", pa.int64())]),
    pa.dense_union([pa.field("a", pa.int64()), pa.field("b", pa.string())]),
    pa.run_end_encoded(pa.int32(), pa.string()),
]
_AROUND_TYPES: list[Callable[[pa.DataType], pa.DataType]] = [
    lambda type_: type_,
    pa.list_,
    pa.large_list_view,
    lambda type_: pa.list_(type_, 2),
    lambda type_: pa.struct([("a", type_)]),
    lambda type_: pa.map_(pa.string(), type_),
    lambda type_: pa.dictionary(pa.int8(), type_),
    lambda type_: pa.list_(pa.dictionary(pa.int8(), pa.struct([("a", type_)]))),
]
UNREAD = [around(type_) for type_ in _UNREAD for around in _AROUND_TYPES]


def _encode(array: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0, None, 2], pa.int8()), array)


def _list(array: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, None, 1, 3], pa.int32()), array)


def _view(array: pa.Array) -> pa.Array:
    return pa.ListViewArray.from_arrays([2, 0, 0], [1, 0, 2], array)


def _large_view(array: pa.Array) -> pa.Array:
    return pa.LargeListViewArray.from_arrays([2, 0, 0], [1, 0, 2], array)


def _pairs(array: pa.Array) -> pa.Array:
    many = pa.concat_arrays([array, array])
    mask = pa.array([False, True, False])
    return pa.FixedSizeListArray.from_arrays(many, type=pa.list_(array.type, 2), mask=mask)


def _struct(array: pa.Array) -> pa.Array:
    mask = pa.array([False, False, True])
    return pa.StructArray.from_arrays([array, pa.array([1, 2, 3])], ["a", "b"], mask=mask)


def _map(array: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays([0, 1, 1, 3], ["x", "y", "z"], array)


_AROUND: list[Callable[[pa.Array], pa.Array]] = [
    lambda array: array,
    _encode,
    _list,
    _view,
    _large_view,
    _pairs,
    _struct,
    _map,
    lambda array: _encode(_view(array)),
    lambda array: _view(_encode(array)),
    lambda array: _map(_struct(_encode(array))),
    lambda array: _struct(_pairs(_view(array))),
    lambda array: _list(_list(_large_view(array))),
]


def arrays() -> Iterator[pa.Array]:
    """Yield three values of each type that is read."""
    for type_, (first, last) in _VALUES.items():
        storage = type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_
        array = pa.array([first, None, last], storage)
        if storage is not type_:
            array = pa.ExtensionArray.from_storage(type_, array)
        for around in _AROUND:
            # pyarrow does not make a few of them, and does not write or read others again.
            with suppress(pa.ArrowException, AttributeError, TypeError, NotImplementedError):
                yield _read_again(around(array))


def _read_again(array: pa.Array) -> pa.Array:
    sink, batch = pa.BufferOutputStream(), pa.record_batch([array], ["x"])
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_file(sink.getvalue()).get_batch(0).column(0)
