from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.decode import TypedDecoder, decode_line
from penstock.errors import OptionError, PenstockError, SchemaMismatchError
from tests.decode.bad_lines import Heard, never
from tests.decode.json_values import any_integers, any_leaf, floats, nested, strings, texts
from tests.rounds import rounds

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

NARROW = pa.schema([("id", pa.int64()), ("price", pa.float64()), ("title", pa.string())])


def decoded(text: bytes, schema: pa.Schema, heard: Heard | None = None) -> list[dict[str, object]]:
    """Return the rows of a text, after checking that the fast way has them too or refuses."""
    decoder = TypedDecoder(schema)
    batch = decoder.settle(text, None, never if heard is None else heard)
    assert batch.schema == schema
    batch.validate(full=True)
    lines = [line for line in text.splitlines(keepends=True) if line.strip()]
    for fast in (decoder.attempt(text), decoder.attempt_lines(lines)):
        if fast is not None:
            assert fast.schema == schema
            assert repr(fast.to_pylist()) == repr(batch.to_pylist())
            assert not heard
    return batch.to_pylist()


def refusal(value: str, type_: pa.DataType | pa.Field) -> str:
    """Return why a value, as JSON text, does not fit a type."""
    field = type_ if isinstance(type_, pa.Field) else pa.field("f", type_)
    text = b'{"f":null}\n{"f":%s}\n' % value.encode() if field.nullable else value.encode()
    heard = Heard()
    decoded(text, pa.schema([field]), heard)
    (bad,) = heard
    assert bad[0] == (1 if field.nullable else 0)
    assert isinstance(bad[2], SchemaMismatchError)
    assert isinstance(bad[2], ValueError)
    return str(bad[2])


def test_only_the_columns_of_the_schema_are_decoded() -> None:
    text = b'{"id":1,"other":{"deep":[1]},"price":0.5,"title":"x"}\n{"title":"y"}\n{}\n'
    assert TypedDecoder(NARROW).attempt(text) is not None
    assert decoded(text, NARROW) == [
        {"id": 1, "price": 0.5, "title": "x"},
        {"id": None, "price": None, "title": "y"},
        {"id": None, "price": None, "title": None},
    ]


def test_lines_are_decoded_as_a_text_of_them() -> None:
    lines = [b'{"id":1,"price":0.5,"title":"\xc3\xa4"}\n', b'{"id":2}\r\n', b"{}"]
    decoder = TypedDecoder(NARROW)
    assert decoder.attempt_lines(lines) == decoder.attempt(b"".join(lines))
    assert decoder.attempt_lines([]) == decoder.attempt(b"")
    for bad in (
        b'{"id":1}{"id":2}\n',
        b'{"x":"\xff"}\n',
        b'{"x":%s}' % (b"9" * 5000),
        b"\n",
        b"[]",
    ):
        assert decoder.attempt_lines([*lines[:2], bad]) is None


def test_a_number_too_large_for_a_narrow_float_is_found_among_others() -> None:
    schema = pa.schema({"f": pa.float32()})
    assert TypedDecoder(schema).attempt(b'{"f":1e38}\n{"f":null}\n{"f":3}\n') is not None
    assert TypedDecoder(schema).attempt(b'{"f":1}\n{"f":1e39}\n') is None
    heard = Heard()
    assert decoded(b'{"f":1}\n{"f":1e39}\n', schema, heard) == [{"f": 1.0}]
    assert len(heard) == 1


X = pa.struct({"x": pa.float32()})
SEVERAL = pa.struct({"x": pa.float32(), "y": pa.string(), "z": pa.list_(pa.int8(), 2)})


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.list_(pa.float32()), ["[1, 0.1, null]", "[]", "null"]),
        (pa.list_(pa.float16()), ["[1, 0.1, null]", "[]", "null"]),
        (pa.large_list(pa.list_(pa.float32())), ["[[1], [], null, [null]]", "null"]),
        (pa.list_(pa.float32(), 2), ["[1, 0.1]", "null", "[null, 1e38]"]),
        (pa.list_(pa.list_(pa.float64(), 1), 2), ["[[1], null]", "null"]),
        (pa.list_(pa.float32(), 0), ["[]", "null"]),
        (pa.list_(pa.field("item", pa.float32(), nullable=False), 2), ["[1, 2]", "null"]),
        (X, ['{"x": 1}', '{"y": {}}', "null"]),
        (pa.list_(X), ['[{"x": 1}, null, {"x": null, "y": [1]}]', "[]", "null"]),
        (pa.list_(X, 1), ['[{"y": 1, "x": 2}]', "null"]),
        (pa.list_(SEVERAL), ['[{"z": [1, 2], "y": "a"}, {"x": 0.1}]', "null"]),
        (pa.struct({"a": pa.list_(X)}), ['{"a": [{"x": 1}]}', "{}", "null"]),
        (pa.map_(pa.string(), pa.float32()), ['{"b": 0.1, "a": null}', "{}", "null"]),
        (pa.list_(pa.dictionary(pa.int8(), pa.string())), ['["a", null, "a"]', "null"]),
        (pa.list_(pa.timestamp("s")), ['["2020-01-01", 5, null]', "null"]),
    ],
    ids=str,
)
def test_nested_values_that_fit_are_decoded_the_fast_way(
    type_: pa.DataType, values: list[str]
) -> None:
    schema = pa.schema({"f": type_})
    text = "".join(f'{{"f": {value}}}\n' for value in values).encode()
    assert TypedDecoder(schema).attempt(text) is not None
    assert len(decoded(text, schema)) == len(values)


def test_of_a_key_written_twice_in_a_part_the_last_value_counts() -> None:
    text = b'{"f":[{"x":1,"x":2},{"x":3,"x":null},{"x":"no","x":4}]}\n'
    assert decoded(text, pa.schema({"f": pa.list_(X)})) == [
        {"f": [{"x": 2}, {"x": None}, {"x": 4}]}
    ]


def test_zeros_keep_the_sign_that_floats_have_and_integers_have_not() -> None:
    for type_ in (pa.list_(pa.float32()), pa.list_(pa.float64(), 3), pa.list_(pa.float16())):
        (row,) = decoded(b'{"f":[-0,-0.0,0]}', pa.schema({"f": type_}))
        assert repr(row["f"]) == "[0.0, -0.0, 0.0]"


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "é"])
def test_any_name_can_be_that_of_a_part(name: str) -> None:
    text = json.dumps({"f": [{name: 5, "other": 1}, {}, None]}).encode()
    schema = pa.schema({"f": pa.list_(pa.struct({name: pa.float32()}))})
    assert decoded(text, schema) == [{"f": [{name: 5}, {name: None}, None]}]
    assert TypedDecoder(schema).attempt(text) is not None


def test_columns_stand_in_the_order_of_the_schema_whatever_that_of_the_text() -> None:
    assert list(decoded(b'{"b":1,"a":2}', pa.schema({"a": pa.int8(), "b": pa.int8()}))[0]) == [
        "a",
        "b",
    ]


def test_blank_lines_carriage_returns_and_a_missing_last_newline_are_fine() -> None:
    text = b'\n{"id":1}\r\n\r\n  \t\n {"id":2} \n\n{"id":3}'
    assert TypedDecoder(NARROW).attempt(text) is not None
    assert [row["id"] for row in decoded(text, NARROW)] == [1, 2, 3]


@pytest.mark.parametrize("text", [b"", b"\n", b" \r\n\n"])
def test_a_text_without_records_is_a_batch_without_rows(text: bytes) -> None:
    assert decoded(text, NARROW) == []


def test_a_schema_without_fields_still_counts_rows() -> None:
    assert decoded(b"{}\n" * 3, pa.schema([])) == [{}, {}, {}]
    assert TypedDecoder(pa.schema([])).attempt(b'{"a":1}\n{}\n').num_rows == 2


def test_bad_lines_are_told_with_their_index_bytes_and_reason_in_order() -> None:
    text = b'{"id":1}\n\n{"id":\nnull\n[1]\n{"id":"x"}\n{"id":2}\n{"id":1} {"id":2}\n"\xff"\n'
    heard = Heard()
    assert decoded(text, NARROW, heard) == [
        {"id": 1, "price": None, "title": None},
        {"id": 2, "price": None, "title": None},
    ]
    assert heard.indices == [2, 3, 4, 5, 7, 8]
    assert [raw for _, raw, _ in heard] == [text.split(b"\n")[index] for index in heard.indices]
    reasons = [str(why) for _, _, why in heard]
    assert "this line is null" in reasons[1]
    assert "this line is an array" in reasons[2]
    assert "field 'id' holds 'x', which does not fit int64" in reasons[3]
    assert all(isinstance(why, ValueError) for _, _, why in heard)


def test_a_handler_that_raises_ends_the_decoding_with_its_error() -> None:
    def stop(index: int, raw: bytes, why: Exception) -> None:
        raise PenstockError(f"{index} {raw!r}") from why

    with pytest.raises(PenstockError, match="1 b'no'"):
        TypedDecoder(NARROW).settle(b'{"id":1}\nno\nno\n', None, stop)


def test_two_values_on_a_line_are_a_bad_line() -> None:
    for line in (b'{"id":1} {"id":2}', b'{"id":1}{"id":2}'):
        text = b'{"id":0}\n' + line + b'\n{"id":3}\n'
        assert TypedDecoder(NARROW).attempt(text) is None
        heard = Heard()
        assert [row["id"] for row in decoded(text, NARROW, heard)] == [0, 3]
        assert heard.indices == [1]


def test_values_across_lines_are_bad_lines() -> None:
    heard = Heard()
    assert decoded(b'{"id":\n1}\n{"id":2}\n', NARROW, heard)[0]["id"] == 2
    assert heard.indices == [0, 1]


def test_every_misfit_among_many_rows_is_found() -> None:
    values = ['"x"' if n % 7 == 3 else str(n) for n in range(1000)]
    heard = Heard()
    rows = decoded("".join(f'{{"id":{value}}}\n' for value in values).encode(), NARROW, heard)
    assert heard.indices == [n for n in range(1000) if n % 7 == 3]
    assert [row["id"] for row in rows] == [n for n in range(1000) if n % 7 != 3]


def test_a_row_with_two_misfits_is_one_bad_line() -> None:
    heard = Heard()
    decoded(b'{"title":1,"id":"x"}', NARROW, heard)
    (bad,) = heard
    assert "'id'" in str(bad[2])


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ("1.5", pa.int64()),
        ("1180591620717411303424", pa.int64()),
        ("9223372036854775808", pa.int64()),
        ("-9223372036854775809", pa.int64()),
        ("18446744073709551616", pa.uint64()),
        ("-1", pa.uint64()),
        ("300", pa.int8()),
        ("-1", pa.uint8()),
        ("true", pa.int64()),
        ('"1"', pa.int64()),
        ("[1]", pa.int64()),
        ("NaN", pa.int64()),
        ("1e400", pa.int64()),
        ("9007199254740992.0", pa.int64()),
        ("-9007199254740992.0", pa.int64()),
        ("256.0", pa.uint8()),
        ("true", pa.float64()),
        ('"1"', pa.float64()),
        ("1" * 400, pa.float64()),
        ("1e39", pa.float32()),
        ("65520", pa.float16()),
        ("1", pa.bool_()),
        ('"true"', pa.bool_()),
        ("1", pa.string()),
        ("{}", pa.string()),
        ('"\\ud800"', pa.string()),
        ('"\\ud800"', pa.binary()),
        ("0", pa.null()),
        ("{}", pa.list_(pa.int64())),
        ("[1, true]", pa.list_(pa.int64())),
        ("[1, 2.5]", pa.list_(pa.int64())),
        ("[[1], 2]", pa.list_(pa.list_(pa.int64()))),
        ("[1, 2, 3]", pa.list_(pa.int64(), 2)),
        ("[1]", pa.list_(pa.float32(), 2)),
        ("[]", pa.list_(X, 2)),
        ("[0, 1e39]", pa.list_(pa.float32())),
        ("[0, -1e39]", pa.list_(pa.float32(), 2)),
        ("[0, 65520]", pa.list_(pa.float16())),
        ("[[0, 1e39], null]", pa.list_(pa.list_(pa.float32()))),
        ("[0, true]", pa.list_(pa.float32())),
        ('[0, "1"]', pa.list_(pa.float32())),
        ('[{"x": 1}, {"x": 1e39}]', pa.list_(X)),
        ('[{"x": 1}, 2]', pa.list_(X)),
        ('[{"x": 1}, [2]]', pa.list_(X)),
        ('{"x": 1}', pa.list_(X)),
        ('{"a": 1e39}', pa.map_(pa.string(), pa.float32())),
        ("[]", pa.struct({"x": pa.int64()})),
        ('{"x": "1"}', pa.struct({"x": pa.int64()})),
        ('{"x": "1"}', pa.map_(pa.string(), pa.int64())),
        ("1", pa.dictionary(pa.int8(), pa.string())),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_never_a_coercion(
    value: str, type_: pa.DataType
) -> None:
    assert "which does not fit" in refusal(value, type_)


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        ("-128", pa.int8(), -128),
        ("18446744073709551615", pa.uint64(), 2**64 - 1),
        ("2.0", pa.int64(), 2),
        ("-9007199254740991.0", pa.int64(), 1 - 2**53),
        ("1e2", pa.uint8(), 100),
        ("3", pa.float64(), 3.0),
        ("9007199254740993", pa.float64(), 2.0**53),
        ("1180591620717411303424", pa.float64(), 2.0**70),
        ("0.1", pa.float32(), float(np.float32(0.1))),
        ("16777217", pa.float32(), 16777216.0),
        ("65519", pa.float16(), 65504.0),
        ("Infinity", pa.float32(), math.inf),
        ("-Infinity", pa.float64(), -math.inf),
        ("1e400", pa.float64(), math.inf),
        ("null", pa.int64(), None),
        ('"\\ud83d\\ude00"', pa.string(), "😀"),
        ('"é"', pa.large_string(), "é"),
        ('"é"', pa.string_view(), "é"),
        ('"é"', pa.binary(), b"\xc3\xa9"),
        ('"é"', pa.binary(2), b"\xc3\xa9"),
        ('"é"', pa.binary_view(), b"\xc3\xa9"),
        ("null", pa.null(), None),
        ("[1,null]", pa.list_(pa.int8()), [1, None]),
        ("[1,null]", pa.large_list(pa.float32()), [1.0, None]),
        ("[1,null]", pa.list_(pa.int8(), 2), [1, None]),
        ("[1,null]", pa.list_view(pa.int8()), [1, None]),
        ("[1,null]", pa.large_list_view(pa.int8()), [1, None]),
        ("[[],null,[true]]", pa.list_(pa.list_(pa.bool_())), [[], None, [True]]),
        ('{"x":1,"z":2}', pa.struct({"x": pa.int8(), "y": pa.string()}), {"x": 1, "y": None}),
        ("{}", pa.struct([]), {}),
        ('{"b":1,"a":null}', pa.map_(pa.string(), pa.int8()), [("b", 1), ("a", None)]),
        ("{}", pa.map_(pa.string(), pa.int8()), []),
        ('"red"', pa.dictionary(pa.int8(), pa.string()), "red"),
        ("7", pa.dictionary(pa.uint16(), pa.int64()), 7),
    ],
)
def test_a_value_that_fits_is_that_value(value: str, type_: pa.DataType, expected: object) -> None:
    text = b'{"f":%s}\n{}\n{"f":null}\n' % value.encode()
    rows = decoded(text, pa.schema({"f": type_}))
    assert repr([row["f"] for row in rows]) == repr([expected, None, None])


def test_nan_is_a_float_and_not_null() -> None:
    (row,) = decoded(b'{"f":NaN}', pa.schema({"f": pa.float64()}))
    assert math.isnan(row["f"])


def test_null_or_missing_is_an_error_where_the_schema_says_not_null() -> None:
    required = pa.field("f", pa.int64(), nullable=False)
    for line in ('{"f":null}', "{}"):
        assert "'f' holds None, which does not fit int64 not null" in refusal(line, required)
    slow = pa.field("f", pa.timestamp("s"), nullable=False)
    assert "not null" in refusal("{}", slow)
    assert "not null" in refusal('{"f":null}', slow)


def test_null_is_an_error_inside_parts_that_may_not_be_null() -> None:
    items = pa.list_(pa.field("item", pa.int64(), nullable=False))
    assert "may not be null" in refusal("[1,null]", items)
    for inner in (pa.float32(), pa.timestamp("s"), pa.struct({"y": pa.int8()})):
        for items in (
            pa.list_(pa.field("item", inner, nullable=False)),
            pa.list_(pa.field("item", inner, nullable=False), 1),
            pa.map_(pa.string(), pa.field("value", inner, nullable=False)),
        ):
            value = '{"a":null}' if pa.types.is_map(items) else "[null]"
            assert "may not be null" in refusal(value, items)
            rows = decoded(b'{"f":null}\n{}', pa.schema({"f": items}))
            assert rows == [{"f": None}, {"f": None}]
        part = pa.struct([pa.field("x", inner, nullable=False)])
        for value in ('{"y":1}', '{"x":null}'):
            assert "'f.x' holds None" in refusal(value, part)
            assert "'f[].x' holds None" in refusal(f"[null,{value}]", pa.list_(part))
    part = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    assert decoded(b'{"f":null}\n{"f":{"x":1}}', pa.schema({"f": part})) == [
        {"f": None},
        {"f": {"x": 1}},
    ]
    entries = pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))
    assert "may not be null" in refusal('{"a":null}', entries)


def test_the_error_names_the_part_and_the_very_value() -> None:
    type_ = pa.list_(pa.struct({"x": pa.int8()}))
    reason = refusal('[{"x":1},{"x":2},{"x":300},{"x":4}]', type_)
    assert "field 'f[].x' holds 300, which does not fit int8" in reason


def test_a_long_value_is_shortened_in_the_error() -> None:
    assert len(refusal('"' + "x" * 5000 + '"', pa.int64())) < 300


def test_of_a_key_written_twice_the_last_value_counts() -> None:
    text = b'{"id":"x","id":1}\n{"id":2,"price":3,"id":null}\n'
    assert [row["id"] for row in decoded(text, NARROW)] == [1, None]


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a\0b", "", "a.b", "é", "class", "f0"])
def test_any_name_can_be_that_of_a_field(name: str) -> None:
    text = (
        json.dumps({name: 5}).encode() + b"\n" + json.dumps({name: 6}, ensure_ascii=False).encode()
    )
    assert decoded(text, pa.schema({name: pa.int64()})) == [{name: 5}, {name: 6}]


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":1,"skipped":"\xff"}',
        b'{"id":1,"skipped\xff":1}',
        b'{"id":1,"skipped":' + b"7" * 4301 + b"}",
        b'{"id":1,"skipped":01}',
        b'{"id":1,"skipped":[}',
    ],
)
def test_a_line_is_bad_also_when_what_is_wrong_stands_in_a_field_nobody_asked_for(
    line: bytes,
) -> None:
    text = b'{"id":1}\n' + line + b"\n"
    assert TypedDecoder(NARROW).attempt(text) is None
    heard = Heard()
    assert len(decoded(text, NARROW, heard)) == 1
    assert heard.indices == [1]


@pytest.mark.parametrize("skipped", [b"NaN", b"1e400", b'"\\ud800"', b"9" * 4300])
def test_a_line_is_good_when_only_a_field_nobody_asked_for_is_odd(skipped: bytes) -> None:
    assert decoded(b'{"skipped":%s,"id":1}' % skipped, NARROW)[0]["id"] == 1


def test_a_line_nested_beyond_all_measure_is_a_bad_line() -> None:
    heard = Heard()
    decoded(b'{"a":%s%s}\n{"id":1}' % (b"[" * 100_000, b"]" * 100_000), NARROW, heard)
    assert heard.indices == [0]


def test_a_dictionary_too_small_for_a_batch_is_named_and_no_line_is_blamed() -> None:
    schema = pa.schema({"f": pa.dictionary(pa.int8(), pa.string())})
    text = b"".join(b'{"f":"%d"}\n' % n for n in range(200))
    with pytest.raises(SchemaMismatchError, match=r"'f' cannot hold 200 rows .* wider index"):
        TypedDecoder(schema).settle(text, TypedDecoder(schema).attempt(text), never)


def test_a_schema_with_a_name_twice_is_refused() -> None:
    with pytest.raises(OptionError, match="'a' more than once"):
        TypedDecoder(pa.schema([("a", pa.int64()), ("a", pa.string())]))


@pytest.mark.parametrize(
    "type_",
    [
        pa.dense_union([pa.field("x", pa.int64())]),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.month_day_nano_interval(),
        pa.map_(pa.int64(), pa.string()),
        pa.struct([("x", pa.int64()), ("x", pa.int64())]),
        pa.list_(pa.dictionary(pa.int8(), pa.struct({"x": pa.int8()}))),
    ],
    ids=str,
)
def test_a_type_that_json_cannot_be_is_refused_at_once(type_: pa.DataType) -> None:
    with pytest.raises(OptionError, match=r"field 'f.*' cannot be read from JSON"):
        TypedDecoder(pa.schema({"f": type_}))


class Unfit(Exception):  # noqa: N818
    """The model's word for a value that a type cannot hold."""


INTEGERS = [pa.int8(), pa.uint8(), pa.int32(), pa.int64(), pa.uint64()]
RANGES = {t: (np.iinfo(str(t)).min, np.iinfo(str(t)).max) for t in INTEGERS}


def fitted(value: object, type_: pa.DataType) -> object:
    """Return what a column of a type holds for a JSON value, by the rules of the docs."""
    type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
    if value is None:
        return None
    if type_ in RANGES and isinstance(value, (int, float)) and not isinstance(value, bool):
        exact = isinstance(value, int) or (value.is_integer() and abs(value) <= 2**53)
        low, high = RANGES[type_]
        if exact and low <= value <= high:
            return int(value)
    elif pa.types.is_floating(type_) and type(value) in (int, float):
        return fitted_float(value, type_)
    elif type(value) is {pa.bool_(): bool, pa.string(): str}.get(type_):
        return value
    elif is_list(type_) and isinstance(value, list):
        return fitted_list(value, type_)
    elif pa.types.is_struct(type_) and isinstance(value, dict):
        return {part.name: fitted_part(value.get(part.name), part) for part in type_}
    elif pa.types.is_map(type_) and isinstance(value, dict):
        return [(key, fitted(item, type_.item_type)) for key, item in value.items()]
    raise Unfit


def fitted_list(values: list[object], type_: pa.DataType) -> list[object]:
    if pa.types.is_fixed_size_list(type_) and len(values) != type_.list_size:
        raise Unfit
    return [fitted_part(value, type_.value_field) for value in values]


def fitted_part(value: object, part: pa.Field) -> object:
    if value is None and not part.nullable:
        raise Unfit
    return fitted(value, part.type)


def is_list(type_: pa.DataType) -> bool:
    kinds = pa.types
    return kinds.is_list(type_) or kinds.is_large_list(type_) or kinds.is_fixed_size_list(type_)


def fitted_float(value: float, type_: pa.DataType) -> float:
    try:
        wide = float(value)
    except OverflowError:
        raise Unfit from None
    if pa.types.is_float64(type_):
        return wide
    with np.errstate(over="ignore"):
        narrow = float(np.float16(wide) if pa.types.is_float16(type_) else np.float32(wide))
    if math.isinf(narrow) and not math.isinf(wide):
        raise Unfit
    return narrow


LEAVES = [
    *INTEGERS,
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.dictionary(pa.int32(), pa.string()),
]


def nest(inner: SearchStrategy[pa.DataType]) -> SearchStrategy[pa.DataType]:
    """Types made of others."""
    items = st.builds(pa.field, st.just("item"), inner, st.sampled_from([True, True, False]))
    parts = st.lists(
        st.builds(pa.field, st.sampled_from("abc"), inner, st.sampled_from([True, True, False])),
        max_size=2,
        unique_by=lambda part: part.name,
    )
    return (
        items.map(pa.list_)
        | items.map(pa.large_list)
        | st.builds(pa.list_, items, st.integers(0, 2))
        | inner.map(lambda type_: pa.map_(pa.string(), type_))
        | parts.map(pa.struct)
    )


TYPES = st.recursive(st.sampled_from(LEAVES), nest, max_leaves=3)


def mostly(type_: pa.DataType) -> SearchStrategy[object]:
    """Values of which most fit a type."""
    some: SearchStrategy[object]
    if pa.types.is_fixed_size_list(type_):
        size = type_.list_size
        some = st.lists(mostly(type_.value_type), min_size=size, max_size=size)
    elif is_list(type_):
        some = st.lists(mostly(type_.value_type), max_size=3)
    elif pa.types.is_struct(type_):
        some = st.fixed_dictionaries({}, optional={part.name: mostly(part.type) for part in type_})
    elif pa.types.is_map(type_):
        some = st.dictionaries(strings, mostly(type_.item_type), max_size=3)
    elif pa.types.is_string(type_) or pa.types.is_dictionary(type_):
        some = strings
    elif pa.types.is_boolean(type_):
        some = st.booleans()
    elif pa.types.is_floating(type_):
        some = floats | any_integers
    else:
        some = st.integers(0, 127) | any_integers
    return st.one_of(*[some] * 6, st.none(), nested(any_leaf))


@settings(max_examples=rounds(100, 3000))
@given(st.data())
def test_the_decoder_is_decode_line_and_a_choice_of_fitting_fields(data: st.DataObject) -> None:
    fields = data.draw(st.dictionaries(st.sampled_from("abcd"), TYPES, max_size=3))
    record = st.fixed_dictionaries(
        {}, optional={**{name: mostly(t) for name, t in fields.items()}, "other": nested(any_leaf)}
    )
    text = data.draw(texts(data.draw(st.lists(record, max_size=6))))
    expected, unfit = [], []
    for index, line in enumerate(text.split(b"\n")):
        if line.strip():
            row = decode_line(line)
            try:
                expected.append({name: fitted(row.get(name), t) for name, t in fields.items()})
            except Unfit:
                unfit.append(index)
    heard = Heard()
    assert repr(decoded(text, pa.schema(list(fields.items())), heard)) == repr(expected)
    assert heard.indices == unfit


def fitting(part: pa.Field) -> SearchStrategy[object]:
    """Values that all fit, as plain JSON has them."""
    type_, some = part.type, None
    if pa.types.is_fixed_size_list(type_):
        size = type_.list_size
        some = st.lists(fitting(type_.value_field), min_size=size, max_size=size)
    elif is_list(type_):
        some = st.lists(fitting(type_.value_field), max_size=3)
    elif pa.types.is_struct(type_):
        required = {inner.name: fitting(inner) for inner in type_ if not inner.nullable}
        others = {inner.name: fitting(inner) for inner in type_ if inner.nullable}
        some = st.fixed_dictionaries(required, optional=others)
    elif pa.types.is_map(type_):
        some = st.dictionaries(strings, fitting(type_.item_field), max_size=3)
    elif pa.types.is_floating(type_):
        width = type_.bit_width
        some = st.floats(width=width, allow_nan=False, allow_infinity=False) | st.integers(-9, 9)
    elif type_ in RANGES:
        some = st.integers(*RANGES[type_])
    else:
        some = st.booleans() if pa.types.is_boolean(type_) else strings
    return st.none() | some if part.nullable else some


@settings(max_examples=rounds(50, 3000))
@given(st.data())
def test_records_that_fit_are_decoded_the_fast_way(data: st.DataObject) -> None:
    schema = pa.schema(
        data.draw(st.dictionaries(st.sampled_from("abcd"), TYPES, max_size=3)).items()
    )
    rows = st.fixed_dictionaries({}, optional={part.name: fitting(part) for part in schema})
    text = data.draw(texts(data.draw(st.lists(rows, max_size=6))))
    assert TypedDecoder(schema).attempt(text) is not None
    expected = [
        {part.name: fitted(row.get(part.name), part.type) for part in schema}
        for row in map(decode_line, filter(bytes.strip, text.split(b"\n")))
    ]
    assert repr(decoded(text, schema)) == repr(expected)
