"""Records into lines."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import uuid
from collections import OrderedDict, namedtuple
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from penstock.errors import UnserializableRecordError
from penstock.jsonl._encode import LineEncoder

if TYPE_CHECKING:
    from collections.abc import Callable

BEYOND_64_BITS = 2**70
"""orjson refuses this one, so everything beside it goes the long way."""


def encoded(value: object, *, allow_nan: bool = False) -> Any:
    """Return what a value reads as after it was written, the same on both ways."""
    line = LineEncoder(allow_nan=allow_nan).encode(value)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    back = json.loads(line)
    long_way = LineEncoder(allow_nan=allow_nan).encode({"value": value, "wide": BEYOND_64_BITS})
    assert repr(json.loads(long_way)["value"]) == repr(back)
    return back


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5
    _hidden: str = "kept"


@dataclasses.dataclass(slots=True)
class Nested:
    points: list[Point]
    when: dt.date


class Plain(msgspec.Struct):
    a: int
    b: list[int] = []


class Named(msgspec.Struct, rename="camel", tag="named", tag_field="kind"):
    first_name: str
    born: dt.date | None = None
    left_out: int | msgspec.UnsetType = msgspec.UNSET


class Row(msgspec.Struct, array_like=True, tag=True):
    a: int
    b: str


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Word(str):
    __slots__ = ()


class Count(int):
    pass


Pair = namedtuple("Pair", "a b")  # noqa: PYI024 (the untyped kind is what is tested)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": {"b": [1, None, True, "é"]}}, {"a": {"b": [1, None, True, "é"]}}),
        ([], []),
        ("text", "text"),
        (Point(1), {"x": 1, "y": 0.5, "_hidden": "kept"}),
        (
            Nested([Point(1)], dt.date(2020, 1, 2)),
            {"points": [{"x": 1, "y": 0.5, "_hidden": "kept"}], "when": "2020-01-02"},
        ),
        (Plain(1, [2]), {"a": 1, "b": [2]}),
        ({"inside": [Plain(1)]}, {"inside": [{"a": 1, "b": []}]}),
        (Named("Ada"), {"kind": "named", "firstName": "Ada", "born": None}),
        (Row(1, "x"), ["Row", 1, "x"]),
        (dt.datetime(2020, 1, 2, 3, 4, 5, 6), "2020-01-02T03:04:05.000006"),  # noqa: DTZ001
        (dt.datetime(2020, 1, 2, tzinfo=dt.UTC), "2020-01-02T00:00:00+00:00"),
        (dt.date(2020, 1, 2), "2020-01-02"),
        (dt.time(3, 4, 5), "03:04:05"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (decimal.Decimal("1.10"), "1.10"),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        ((1, (2,)), [1, [2]]),
        (Pair(1, "x"), [1, "x"]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        ({Word("key"): Word("value"), "n": Count(5)}, {"key": "value", "n": 5}),
        ({"wide": [2**64, -(2**63) - 1, 10**30]}, {"wide": [2**64, -(2**63) - 1, 10**30]}),
        ({"lone": "\ud800", "é": "\udfff!"}, {"lone": "\ud800", "é": "\udfff!"}),
        ({"\ud800": 1}, {"\ud800": 1}),
        ({"": {"": []}}, {"": {"": []}}),
        ("\x00\n\r\u2028", "\x00\n\r\u2028"),
    ],
)
def test_a_record_may_hold(value: object, expected: object) -> None:
    assert encoded(value) == expected


def test_a_struct_is_written_as_msgspec_reads_it() -> None:
    struct = Named("Ada", dt.date(1815, 12, 10))
    assert msgspec.json.decode(LineEncoder().encode(struct), type=Named) == struct
    row = Row(1, "x")
    assert msgspec.json.decode(LineEncoder().encode(row), type=Row) == row


SCALARS = [
    *(np.dtype(kind).type(5) for kind in "bhilqBHILQ"),
    *(np.dtype(kind).type(-1.5) for kind in "efd"),
    np.True_,
    np.str_("text"),
]


@pytest.mark.parametrize("scalar", SCALARS, ids=lambda scalar: scalar.dtype.char)
def test_numpy_scalars_of_every_type_are_written(scalar: np.generic) -> None:
    assert encoded({"a": scalar}) == {"a": scalar.item()}
    assert encoded([scalar]) == [scalar.item()]


dtypes = st.one_of(
    npst.boolean_dtypes(),
    npst.integer_dtypes(),
    npst.unsigned_integer_dtypes(),
    npst.floating_dtypes(sizes=(16, 32, 64)),
    npst.unicode_string_dtypes(max_len=3),
)


@given(st.data())
def test_numpy_arrays_of_every_shape_and_layout_are_written(data: st.DataObject) -> None:
    dtype = data.draw(dtypes)
    finite = {"allow_nan": False, "allow_infinity": False} if dtype.kind == "f" else {}
    shape = data.draw(npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    array = data.draw(
        npst.arrays(dtype, shape, elements=npst.from_dtype(dtype, **finite, alphabet="aé0"))
        if dtype.kind == "U"
        else npst.arrays(dtype, shape, elements=npst.from_dtype(dtype, **finite))
    )
    if array.ndim:
        array = data.draw(st.sampled_from([array, array[::2], array.T, array[::-1]]))
    back = json.loads(LineEncoder().encode({"a": array}))["a"]
    assert np.array_equal(np.array(back, array.dtype).reshape(array.shape), array)
    long_way = json.loads(LineEncoder().encode({"a": array, "wide": BEYOND_64_BITS}))["a"]
    assert np.array_equal(np.array(long_way, array.dtype).reshape(array.shape), array)


@pytest.mark.parametrize("unit", ["D", "h", "s", "ms", "us", "ns"])
def test_numpy_moments_are_written_as_datetimes(unit: str) -> None:
    moments = np.array(["2020-01-02", "2021-03-04"], f"datetime64[{unit}]")
    expected = ["2020-01-02T00:00:00", "2021-03-04T00:00:00"]
    assert encoded({"a": moments}) == {"a": expected}
    assert encoded({"a": moments[::-1]}) == {"a": expected[::-1]}
    assert encoded({"a": moments[0]}) == {"a": expected[0]}


def test_moments_of_pandas_are_written_as_datetimes_with_their_nanoseconds() -> None:
    moment = pd.Timestamp("2020-01-02T03:04:05.000000006")
    zoned = pd.Timestamp("2020-01-02", tz="Europe/Rome")
    texts = ["2020-01-02T03:04:05.000000006", "2020-01-02T00:00:00+01:00", None]
    assert encoded({"a": [moment, zoned, pd.NaT]}) == {"a": texts}


def test_an_array_of_objects_is_written_object_by_object() -> None:
    array = np.array([1, None, "x", Point(2), dt.date(2020, 1, 2)], object)
    assert encoded(array) == [1, None, "x", {"x": 2, "y": 0.5, "_hidden": "kept"}, "2020-01-02"]


@pytest.mark.parametrize(
    ("record", "path", "kind"),
    [
        ({"a": {1, 2}}, "a", "set"),
        ({"a": [0, {"b": (1, b"x")}]}, "a[1].b[1]", "bytes"),
        ({"a": Point({3})}, "a.x", "set"),  # type: ignore[arg-type]
        ([{"a": 1j}], "[0].a", "complex"),
        ({"a": Plain(1, [object()])}, "a.b[0]", "object"),  # type: ignore[list-item]
        ({"a": Named("x", 1j)}, "a.born", "complex"),  # type: ignore[arg-type]
        ({"a": np.array([b"x"])}, "a[0]", "bytes"),
        ({"a": np.array([1j, 2j])}, "a[0]", "complex"),
        ({"a": np.timedelta64(1, "ns")}, "a", "timedelta64"),
        ({"a": np.longdouble(1)}, "a", "longdouble"),
        ({"a": dt.timedelta(1)}, "a", "timedelta"),
        ({"a": Point}, "a", "type"),
        ({"a": {"b": object()}, "wide": BEYOND_64_BITS}, "a.b", "object"),
    ],
)
def test_what_cannot_be_written_is_a_type_error_naming_its_place(
    record: object, path: str, kind: str
) -> None:
    with pytest.raises(TypeError) as caught:
        LineEncoder().encode(record)
    assert isinstance(caught.value, UnserializableRecordError)
    assert f"cannot write {path}:" in str(caught.value)
    assert kind in str(caught.value)
    assert caught.value.field == path  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", [{1, 2}, object(), b"bytes", 1j, range(3), iter([])])
def test_a_record_that_is_no_record_is_named_as_such(value: object) -> None:
    with pytest.raises(TypeError, match="cannot write the record: JSON has no"):
        LineEncoder().encode(value)


@pytest.mark.parametrize("key", [1, None, 1.5, True, (1,), b"x", uuid.UUID(int=1)])
def test_keys_that_are_no_strings_are_refused_by_name(key: object) -> None:
    with pytest.raises(TypeError, match="cannot write a") as caught:
        LineEncoder().encode({"a": {key: 1}})
    assert repr(key) in str(caught.value)
    assert type(key).__name__ in str(caught.value)


def test_a_huge_value_is_not_shown_in_full() -> None:
    with pytest.raises(TypeError) as caught:
        LineEncoder().encode({"a": set(range(100_000))})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("depth", [100, 250, 300])
def test_nesting_is_written_as_deep_as_python_can(depth: int) -> None:
    value: object = 1
    for _ in range(depth):
        value = [value]
    assert json.loads(LineEncoder().encode({"a": value})) == {"a": value}


def test_nesting_without_end_is_a_type_error() -> None:
    endless: list[object] = []
    endless.append(endless)
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    for record in ({"a": endless}, {"a": deep}):
        with pytest.raises(TypeError, match="nested too deeply, or contains itself"):
            LineEncoder().encode(record)


NOT_FINITE = [math.nan, math.inf, -math.inf]


WRAPPINGS: dict[str, Callable[[Any], object]] = {
    "field": lambda n: {"a": n},
    "nested": lambda n: {"a": [{"b": n}]},
    "beside nulls": lambda n: {"a": n, "null": None, "text": "null"},
    "the long way": lambda n: {"a": n, "wide": BEYOND_64_BITS},
    "list": lambda n: [n],
    "bare": lambda n: n,
    "array": lambda n: {"a": np.array([n, 1.0])[0:1]},
    "dataclass": lambda n: {"a": Point(1, n)},
    "struct": lambda n: {"a": Plain(n)},
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("number", [*NOT_FINITE, np.float32(np.nan), np.float64(np.inf)], ids=repr)
def test_numbers_that_json_has_not_become_null_and_are_counted(
    wrapping: str, number: float
) -> None:
    wrap = WRAPPINGS[wrapping]
    encoder = LineEncoder()
    line = encoder.encode(wrap(number))
    assert b"NaN" not in line
    assert b"Inf" not in line
    assert encoder.not_finite == 1
    json.loads(line, parse_constant=pytest.fail)
    as_python_does = LineEncoder(allow_nan=True)
    assert repr(json.loads(as_python_does.encode(wrap(number)))) == repr(
        json.loads(json.dumps(_plain(wrap(number))))
    )
    assert as_python_does.not_finite == 0


def _plain(value: Any) -> Any:
    """Return a record of these tests as plain Python objects."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Plain):
        return _plain({"a": value.a, "b": value.b})
    return _plain(vars(value)) if isinstance(value, Point) else value


floats = st.floats() | st.sampled_from(NOT_FINITE)
with_floats = st.recursive(
    floats | st.none() | st.text(max_size=4) | st.just("null") | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=3)
    ),
    max_leaves=8,
)


def _count(value: object) -> int:
    if isinstance(value, dict):
        return sum(map(_count, value.values()))
    if isinstance(value, list):
        return sum(map(_count, value))
    return isinstance(value, float) and not math.isfinite(value)


def _with_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _with_nulls(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_nulls(inner) for inner in value]
    return None if _count(value) else value


@given(with_floats)
def test_each_nan_is_counted_once_and_nothing_else_changes(value: object) -> None:
    encoder = LineEncoder()
    assert repr(json.loads(encoder.encode(value))) == repr(_with_nulls(value))
    assert encoder.not_finite == _count(value)
    with_nan = LineEncoder(allow_nan=True)
    assert repr(json.loads(with_nan.encode(value))) == repr(value)
    assert with_nan.not_finite == 0


def test_nulls_beside_arrays_do_not_hide_a_nan() -> None:
    encoder = LineEncoder()
    encoder.encode({"a": None, "b": np.array([1.0, np.nan]), "c": np.array([])})
    assert encoder.not_finite == 1
