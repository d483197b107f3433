from __future__ import annotations

import datetime as dt
import json
import math
from collections import Counter
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.index import UNREADABLE, Profile, profile_text
from penstock.index.profile import _profile as tree
from tests.decode.json_values import records as json_records
from tests.index.profile_model import profile_of, profile_records
from tests.rounds import rounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAMES = st.sampled_from(["a", "b", "c", "a.b", "", "\ud800", "long name"])
MOMENTS = st.one_of(
    st.datetimes(),
    st.datetimes(timezones=st.just(dt.UTC)),
    st.dates(),
    st.times(),
    st.timedeltas(dt.timedelta(days=-9999), dt.timedelta(days=9999)),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(),
    st.floats(),
    st.sampled_from(["", "word", "x" * 100, "\ud800", "Ünïcödé"]),
    st.text(max_size=4),
    st.binary(max_size=80),
    st.decimals(),
    MOMENTS,
    st.complex_numbers(),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=5)
ALIKE = st.fixed_dictionaries({"id": st.integers(0, 9), "items": st.lists(OBJECTS, max_size=2)})
RECORDS = st.lists(st.one_of(ALIKE, OBJECTS, VALUES, st.just(UNREADABLE)), max_size=16)
CUTS = st.lists(st.integers(0, 16), max_size=4)


def parts(records: Sequence[object], cuts: Sequence[int]) -> Iterator[Sequence[object]]:
    borders = [0, *sorted(min(cut, len(records)) for cut in cuts), len(records)]
    for start, stop in pairwise(borders):
        yield records[start:stop]


def field_of(document: dict[str, Any], path: str) -> Any:
    (found,) = [field for field in document["fields"] if field["path"] == path]
    return found


def profiled(*records: object) -> dict[str, Any]:
    return profile_records([records]).document()


@given(RECORDS, CUTS, st.booleans())
def test_however_records_are_parted_the_profile_is_the_same(
    records: list[object],
    cuts: list[int],
    kept: bool,  # noqa: FBT001
) -> None:
    whole = Profile()
    whole.add(records, 0)
    merged, batched = Profile(), profile_records(parts(records, cuts))
    for part in parts(records, cuts):
        profile = Profile()
        profile.add(part, 0)
        merged.merge(Profile.from_bytes(profile.to_bytes()) if kept else profile, merged.records)
    assert merged.document() == batched.document() == whole.document()
    assert merged.to_bytes() == batched.to_bytes() == whole.to_bytes()
    assert Profile.from_bytes(whole.to_bytes()).document() == whole.document()
    json.loads(profile_text(whole.document()))


@given(st.lists(st.dictionaries(st.text("abcdef", max_size=2), SCALARS, max_size=6)), CUTS)
def test_so_it_is_where_names_are_too_many(records: list[Any], cuts: list[int]) -> None:
    before, tree.MOST_NAMES = tree.MOST_NAMES, 6
    try:
        nested = [{"map": record, "list": [record, {"a": record}]} for record in records]
        whole = profiled(*nested)
        merged = Profile()
        for part in parts(nested, cuts):
            merged.merge(profile_records([part]), merged.records)
        assert merged.document() == whole
        names = {name for record in records for name in record}
        paths = {field["path"] for field in whole["fields"]}
        assert ("map.*" in paths) == (len(names) > 6)
    finally:
        tree.MOST_NAMES = before


@given(json_records())
def test_every_path_has_its_types_records_nulls_and_borders(records: list[Any]) -> None:
    document, expected = profiled(*records), profile_of(records)
    assert {field["path"] for field in document["fields"]} == expected.keys()
    for field in document["fields"]:
        model = expected[field["path"]]
        seen = {k: (t["count"], t["first"], t["last"]) for k, t in field["types"].items()}
        assert seen == model["types"]
        assert field["nulls"] == model["types"].get("null", (0,))[0]
        assert field["missing"] == model["missing"]
        assert field["first"] == min(first for _, first, _ in seen.values())
        assert field["last"] == max(last for _, _, last in seen.values())
        for kind, type_ in ((int, "int"), (float, "float"), (str, "string")):
            values = [value for value in model["values"] if type(value) is kind]
            finite = [v for v in values if kind is not float or math.isfinite(v)]
            if finite:
                assert field["types"][type_]["min"] == min(finite)
                assert field["types"][type_]["max"] == max(finite)
        if "list" in field["types"]:
            lengths = [len(value) for value in model["values"] if type(value) is list]
            told = field["types"]["list"]["lengths"]
            assert (told["min"], told["max"]) == (min(lengths), max(lengths))
            assert sum(told["bars"]["counts"]) == len(lengths)
        if "distinct" in field:
            different = {(type(v), v if v == v else None) for v in model["values"]}  # noqa: PLR0124 (NaN)
            assert field["distinct"] == len(different - {(type(None), None)})
        held = [value for value in model["values"] if value is not None]
        if "values" in field:
            assert len({type(value) for value in held}) == 1
            counts = [count for _, count in field["values"]]
            assert counts == sorted(Counter(held).values(), reverse=True)


def test_values_are_counted_where_there_are_few_and_they_come_again() -> None:
    records = [{"pet": "cat" if n % 4 else "dog", "ok": n < 30, "id": n, "size": n % 50, "t": None}
               for n in range(100)]  # fmt: skip
    document = profiled(*records)
    values = {field["path"]: field.get("values") for field in document["fields"]}
    sizes = [[size, 2] for size in range(50)]
    assert values == {
        "pet": [["cat", 75], ["dog", 25]],
        "ok": [[False, 70], [True, 30]],
        "id": None,
        "size": sizes,
        "t": None,
    }
    many = profiled(*({"n": n % 257, "long": "x" * (60 + n % 2)} for n in range(1000)))
    assert not any("values" in field for field in many["fields"])


def test_an_older_state_counts_no_values_when_it_goes_on() -> None:
    index = Path(__file__).parents[1] / "golden" / "index-checked-1" / "jsonl" / "index"
    old = Profile.from_bytes((index / "profile.state").read_bytes())
    old.add([{"text": "a"}] * 1000, old.records)
    assert not any("values" in field for field in old.document()["fields"])


def test_fields_come_in_the_order_that_records_have_them() -> None:
    document = profiled({"z": 1, "u": {"b": 1, "a": 2}}, {"new": 1, "z": 2}, {"list": [{"y": 1}]})
    paths = [field["path"] for field in document["fields"]]
    assert paths == ["z", "u", "u.b", "u.a", "new", "list", "list[]", "list[].y"]


def test_numbers_beyond_64_bit_and_those_that_are_none_are_told() -> None:
    document = profiled(
        {"n": 10**400}, {"n": -(10**30)}, {"n": 7}, {"f": math.nan}, {"f": -math.inf}
    )
    number, other = field_of(document, "n"), field_of(document, "f")
    assert (number["min"], number["max"], number["distinct"]) == (-(10**30), 10**400, 3)
    assert other["types"]["float"]["nan"] == other["types"]["float"]["infinite"] == 1
    assert "min" not in other
    assert sorted(other["examples"]) == ["-inf", "nan"]
    assert json.loads(profile_text(document)) == document


def test_what_parquet_holds_beside_json_is_told() -> None:
    moment = dt.datetime(2024, 2, 29, 12, 30)  # noqa: DTZ001
    document = profiled(
        {
            "moment": moment,
            "zoned": moment.replace(tzinfo=dt.timezone(dt.timedelta(hours=1))),
            "day": moment.date(),
            "time": moment.time(),
            "span": dt.timedelta(hours=36),
            "exact": Decimal("1.10"),
            "bytes": b"\x00ab",
        }
    )
    told = {f["path"]: (f["type"], f.get("min"), f["examples"]) for f in document["fields"]}
    assert told == {
        "moment": ("timestamp", "2024-02-29T12:30:00.000000", ["2024-02-29T12:30:00.000000"]),
        "zoned": ("timestamp[tz]", "2024-02-29T11:30:00.000000Z", ["2024-02-29T11:30:00.000000Z"]),
        "day": ("date", "2024-02-29", ["2024-02-29"]),
        "time": ("time", "12:30:00", ["12:30:00"]),
        "span": ("duration", "1 day, 12:00:00", ["1 day, 12:00:00"]),
        "exact": ("decimal", "1.1", ["1.1"]),
        "bytes": ("binary", None, ["\\x00ab"]),
    }


def test_long_texts_are_cut_where_they_are_shown_and_nowhere_else() -> None:
    document = profiled(*({"t": "x" * 500 + str(n)} for n in range(10)))
    field = field_of(document, "t")
    assert field["min"] == field["examples"][0] == "x" * 60 + "…"
    assert field["distinct"] == 10
    assert field["types"]["string"]["lengths"]["max"] == 501


def record_of(n: int) -> dict[str, Any]:
    return {"id": n, "user": f"u{n % 5000}", "kind": n % 7, "f": n / 3}


def test_estimates_are_near_and_small_counts_exact() -> None:
    count = rounds(50_000, 1_000_000)
    profile = Profile()
    for first in range(0, count, 10_000):
        numbers = range(first, first + 10_000)
        profile.add(
            [{"id": n, "user": f"u{n % 5000}", "kind": n % 7, "f": n / 3} for n in numbers], first
        )
    document = profile.document()
    merged = Profile()
    for start in (0, count // 3):
        part = Profile()
        stop = count if start else count // 3
        part.add([record_of(n) for n in range(start, stop)], 0)
        merged.merge(part, start)
    assert merged.to_bytes() == profile.to_bytes()
    for path, distinct in (("id", count), ("user", 5000), ("f", count)):
        assert field_of(document, path)["distinct"] == pytest.approx(distinct, rel=0.08)
        assert not field_of(document, path)["distinct_is_exact"]
    kind = field_of(document, "kind")
    assert (kind["distinct"], kind["distinct_is_exact"]) == (7, True)
    assert kind["types"]["int"]["bars"]["counts"] == [
        sum(n % 7 == k for n in range(count)) for k in range(7)
    ]
    quantiles = field_of(document, "id")["types"]["int"]["quantiles"]
    assert quantiles["p50"] == pytest.approx(count / 2, rel=0.02)
    assert quantiles["p99"] == pytest.approx(count * 0.99, rel=0.02)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=2000), CUTS)
def test_quantiles_lie_between_neighbours_however_numbers_came(
    numbers: list[float], cuts: list[int]
) -> None:
    rng = np.random.default_rng(len(numbers))
    numbers = [*numbers, *(rng.normal(size=500) * 10.0 ** rng.integers(-9, 9, 500)).tolist()]
    document = profiled(*({"n": n} for n in numbers))
    merged = Profile()
    for part in parts(numbers, [cut * 20 for cut in cuts]):
        merged.merge(profile_records([[{"n": n} for n in part]]), merged.records)
    assert merged.document() == document
    field = field_of(document, "n")["types"]["float"]
    ordered = np.sort(numbers)
    told = list(field["quantiles"].values())
    assert told == sorted(told)
    assert ordered[0] <= told[0]
    assert told[-1] <= ordered[-1]
    assert abs(sum(field["bars"]["counts"]) - len(numbers)) <= 8  # Rounded each by itself.


def test_what_is_nested_without_end_is_counted_and_not_followed() -> None:
    value: Any = 1
    for _ in range(500):
        value = {"a": [value]}
    document = profiled(value)
    assert 10 < len(document["fields"]) < 100


def test_records_that_are_no_objects_are_told_apart() -> None:
    document = profiled({"a": 1}, [1, 2], UNREADABLE, None)
    types = {kind: t["count"] for kind, t in document["record_types"].items()}
    assert types == {"list": 1, "null": 1, "object": 1, "unreadable": 1}
    assert field_of(document, "[]")["count"] == 2
    assert document["drift"][0]["path"] == ""
    assert document["drift"][0]["text"].startswith("the record is object in record 0, ")


def test_columns_are_profiled_like_the_records_they_are_of() -> None:
    records = [{"a": n, "b": None if n % 2 else "x"} for n in range(10)]
    profile = Profile()
    for first in (0, 4):
        some = records[first:][: 4 if not first else 6]
        columns = {name: [record[name] for record in some] for name in ("a", "b")}
        profile.add_columns(columns, np.arange(first, first + len(some)))
    assert profile.document() == profiled(*records)


def test_what_is_no_state_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Profile.from_bytes(b"nonsense")


ALL_KINDS = [
    {
        "id": n,
        "f": n / 3,
        "s": f"Köln {n % 3}",
        "b": n % 2 == 0,
        "l": [n, {"x": 1}],
        "o": {"y": None},
        "d": Decimal(n) / 7,
        "t": dt.datetime(2020, 1, 1, n),  # noqa: DTZ001 (a kind of its own)
        "day": dt.date(2020, 1, 1 + n),
        "time": dt.time(n),
        "lasts": dt.timedelta(n),
        "bytes": b"x" * n,
    }
    for n in range(9)
]
ODD = st.sampled_from(
    (None, -1, 7, 2**62, 0.5, math.nan, "", "nan", "0x" + "f" * 40, b"", bytes(8), [], {}, [1])
)


def whole_profile() -> Profile:
    profile = Profile()
    profile.add(ALL_KINDS, 0)
    return profile


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    for key, inside in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(inside, dict | list):
            yield from places_in(inside)


@given(data=st.data())
def test_a_damaged_state_is_refused_or_goes_on(data: st.DataObject) -> None:
    document = msgspec.msgpack.decode(whole_profile().to_bytes())
    holder, key = data.draw(st.sampled_from([*places_in(document)]))
    old = holder[key]
    holder[key] = data.draw(ODD)
    if isinstance(old, bytes) and len(old) >= 8 and data.draw(st.booleans()):
        at = 8 * data.draw(st.integers(0, len(old) // 8 - 1))
        number = data.draw(st.sampled_from([0, 2, -1, 2**63 - 1])) % 2**64
        holder[key] = old[:at] + number.to_bytes(8, "little") + old[at + 8 :]
    try:
        profile = Profile.from_bytes(msgspec.msgpack.encode(document))
    except ValueError:
        return
    if profile.records == profile.end:
        profile.merge(whole_profile(), profile.records)
        assert json.loads(profile_text(profile.document()))
        assert Profile.from_bytes(profile.to_bytes()).document() == profile.document()


def test_a_state_whose_hashes_do_not_ascend_is_refused() -> None:
    profile = Profile()
    profile.add([{"id": n} for n in range(9)], 0)
    document = msgspec.msgpack.decode(profile.to_bytes())
    ((_, field),) = document["root"][2]
    distinct = field[1]["int"][5]
    distinct[0] = distinct[0][:-8] + (2).to_bytes(8, "little")
    with pytest.raises(ValueError, match="cannot be true"):
        Profile.from_bytes(msgspec.msgpack.encode(document))
