from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.decode import TypedDecoder
from penstock.errors import SchemaMismatchError
from tests.decode.bad_lines import Heard, never


def settled(values: list[str], type_: pa.DataType, heard: Heard | None = None) -> list[object]:
    """Return a column made of JSON values, in the fast way and the careful one."""
    decoder = TypedDecoder(pa.schema({"f": type_}))
    text = "".join(f'{{"f":{value}}}\n' for value in values).encode()
    batch = decoder.settle(text, None, never if heard is None else heard)
    batch.validate(full=True)
    fast = decoder.attempt(text)
    assert (fast is None) == bool(heard)
    if fast is not None:
        assert fast.equals(batch)
    return batch.column(0).to_pylist()


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        ('"2020-01-02T03:04:05"', pa.timestamp("s"), datetime(2020, 1, 2, 3, 4, 5)),  # noqa: DTZ001
        ('"2020-01-02 03:04:05.5"', pa.timestamp("ms"), datetime(2020, 1, 2, 3, 4, 5, 500_000)),  # noqa: DTZ001
        (
            '"2020-01-02T03:04:05Z"',
            pa.timestamp("us", "UTC"),
            datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC),
        ),
        ("86400", pa.timestamp("s", "UTC"), datetime(1970, 1, 2, tzinfo=UTC)),
        ('"2020-01-02"', pa.date32(), date(2020, 1, 2)),
        ("1", pa.date32(), date(1970, 1, 2)),
        ('"2020-01-02"', pa.date64(), date(2020, 1, 2)),
        ("86400000", pa.date64(), date(1970, 1, 2)),
        ('"10:11:12"', pa.time32("s"), time(10, 11, 12)),
        ('"10:11:12.5"', pa.time64("us"), time(10, 11, 12, 500_000)),
        ("86399", pa.time32("s"), time(23, 59, 59)),
        ("5", pa.duration("s"), timedelta(seconds=5)),
        ('"1.50"', pa.decimal128(5, 2), Decimal("1.50")),
        ("1.5", pa.decimal128(5, 2), Decimal("1.50")),
        ("0.1", pa.decimal256(40, 2), Decimal("0.10")),
        ("123", pa.decimal128(5, 2), Decimal("123.00")),
        ("1e2", pa.decimal128(5, 2), Decimal("100.00")),
        (
            '"12345678901234567890.123456789"',
            pa.decimal128(38, 9),
            Decimal("12345678901234567890.123456789"),
        ),
    ],
)
def test_types_that_json_has_no_token_for_are_read_from_strings_and_numbers(
    value: str, type_: pa.DataType, expected: object
) -> None:
    assert settled([value, "null", value], type_) == [expected, None, expected]


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ('"yesterday"', pa.timestamp("s")),
        ('"2020-01-02T03:04:05.5"', pa.timestamp("s")),
        ('"2020-01-02T03:04:05Z"', pa.timestamp("s")),
        ('"2020-01-02T03:04:05"', pa.timestamp("s", "UTC")),
        ("1.5", pa.timestamp("s")),
        ("true", pa.timestamp("s")),
        ("9223372036854775808", pa.timestamp("s")),
        ('"2020-01-32"', pa.date32()),
        ("5", pa.date64()),
        ('"25:00"', pa.time32("s")),
        ('"10:11:12.5"', pa.time32("s")),
        ("86400", pa.time32("s")),
        ("-1", pa.time64("ns")),
        ('"5s"', pa.duration("s")),
        ("1000", pa.decimal128(5, 2)),
        ("1.555", pa.decimal128(5, 2)),
        ('"one"', pa.decimal128(5, 2)),
        ('"NaN"', pa.decimal128(5, 2)),
        ("NaN", pa.decimal128(5, 2)),
        ("Infinity", pa.decimal128(5, 2)),
        ("0.12345678901234567", pa.decimal128(38, 30)),
    ],
)
def test_what_a_type_would_drop_or_bend_is_an_error(value: str, type_: pa.DataType) -> None:
    heard = Heard()
    assert settled(["null", value, "null"], type_, heard) == [None, None]
    ((index, _, why),) = heard
    assert index == 1
    assert isinstance(why, SchemaMismatchError)
    assert str(type_) in str(why)


def test_strings_and_numbers_may_stand_in_one_column_of_instants() -> None:
    expected = datetime(1970, 1, 2, tzinfo=UTC)
    values = ["86400", "null", '"1970-01-02T00:00:00Z"']
    assert settled(values, pa.timestamp("s", "UTC")) == [expected, None, expected]


def test_an_extension_type_is_read_as_its_storage() -> None:
    class Celsius(pa.ExtensionType):
        def __init__(self) -> None:
            super().__init__(pa.float32(), "penstock.test.celsius")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Celsius:
            return cls()

    decoder = TypedDecoder(pa.schema({"f": Celsius()}))
    batch = decoder.settle(b'{"f":20.5}\n{}\n', None, never)
    assert batch.column(0).type == Celsius()
    assert batch.column(0).storage.to_pylist() == [20.5, None]


def test_an_instant_inside_a_struct_inside_a_list_is_checked_like_any_other() -> None:
    type_ = pa.list_(pa.struct({"at": pa.timestamp("s"), "n": pa.int8()}))
    rows = settled(['[{"at":"1970-01-01T00:00:05"},{"n":1}]'], type_)
    assert rows == [[{"at": datetime(1970, 1, 1, 0, 0, 5), "n": None}, {"at": None, "n": 1}]]  # noqa: DTZ001
    heard = Heard()
    settled(['[{"at":"1970-01-01T00:00:05"},{"at":"soon"}]'], type_, heard)
    assert "field 'f[].at' holds 'soon'" in str(heard[0][2])
