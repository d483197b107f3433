"""Numbers of files with other types: no value is rounded that nobody asked to round."""

from __future__ import annotations

import json
import math
import pickle
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.datasets._memory import ListSource
from penstock.datasets._table_source import TableSource
from penstock.decode import exact_type
from penstock.errors import CorruptFileError, SchemaMismatchError
from penstock.schema import Observations
from tests.datasets import table_files
from tests.rounds import rounds

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.datasets import Source
    from tests.servers.s3_server import S3Server

BIG = 2**53 + 1
TABLES = [".parquet", *table_files.ENDINGS]
ENDINGS = [*TABLES, ".csv", ".jsonl"]
WHOLE, FRACTIONS = [BIG, BIG - 1, 7, -BIG], [0.5, None, 3.0, float(2**53)]
formats = pytest.mark.parametrize("ending", ENDINGS)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))


def write(path: Path, values: list[Any], type_: pa.DataType) -> None:
    """Write a file of records with `id`, and `k`, the number of the record in the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = range(len(values))
    if path.suffix == ".jsonl":
        path.write_text(
            "".join(
                json.dumps({"id": v, "k": k}) + "\n" for v, k in zip(values, numbers, strict=True)
            )
        )
    elif path.suffix == ".csv":
        rows = (
            f"{'' if v is None else repr(v)},{k}\n" for v, k in zip(values, numbers, strict=True)
        )
        path.write_text("id,k\n" + "".join(rows))
    else:
        table = pa.table({"id": pa.array(values, type_), "k": pa.array(numbers, pa.int64())})
        if path.suffix == ".parquet":
            pq.write_table(table, path)
        else:
            table_files.write(path, table)


def folder(path: Path, ending: str) -> Source:
    """Return a folder with integers in a file, and floats in another."""
    write(path / f"1{ending}", WHOLE, pa.int64())
    write(path / f"2{ending}", FRACTIONS, pa.float64())
    return penstock.open(path)


@formats
def test_a_record_has_the_value_of_its_own_file(tmp_path: Path, ending: str) -> None:
    source = folder(tmp_path / "d", ending)
    assert repr([row["id"] for row in source]) == repr([*WHOLE, *FRACTIONS])
    assert repr(source[[4, 0, 7]]) == repr([source[4], source[0], source[7]])
    assert repr(source.take([6, 0])[:]) == repr([source[6], source[0]])
    assert repr([row["id"] for row in source.map(dict)]) == repr([*WHOLE, *FRACTIONS])
    assert source.read([0], {"id": "json"})["id"].to_pylist() == [str(BIG)]
    assert repr(pickle.loads(pickle.dumps(source))[:]) == repr(source[:])


@formats
def test_integers_that_are_asked_for_are_exact_or_refused(tmp_path: Path, ending: str) -> None:
    source = folder(tmp_path / "d", ending)
    ids = [0, 1, 2, 3, 5, 6]
    exact = [*WHOLE, None, 3]
    assert source.read(ids, {"id": "int64"})["id"].to_pylist() == exact
    assert source.take(ids).arrow(fields={"id": "int64"})["id"].to_pylist() == exact
    loader = penstock.DataLoader(source.take([0, 6]), {"id": "int64"}, batch_size=2)
    assert next(iter(loader))["id"].tolist() == [BIG, 3]
    batch = next(iter(penstock.DataLoader(source, {"id": "int64"}, batch_size=3, output="arrow")))
    assert batch["id"].to_pylist() == WHOLE[:3]
    columns = source.materialize({"id": "int64"}, on_error="mask")
    assert columns.read(ids, {"id": "int64"})["id"].to_pylist() == exact
    for odd in (4, 7):
        with pytest.raises(SchemaMismatchError, match=rf"record {odd} .*'id' holds .*(0\.5|992)"):
            source.read([0, odd], {"id": "int64"})
    # Rounding is what doubles are asked for.
    assert source.read([0, 4], {"id": "float64"})["id"].to_pylist() == [2.0**53, 0.5]


@formats
def test_columns_without_a_type_name_both_files(tmp_path: Path, ending: str) -> None:
    source = folder(tmp_path / "d", ending)
    assert str(source.schema.field("id").type).startswith("int64 or ")
    assert str(source.schema.field("id").type).endswith("double")
    asked = [
        source.arrow,
        lambda: source.arrow([0, 4]),
        lambda: source.arrow(fields=["k", "id"]),
        lambda: source.read([4], ["id"]),
        lambda: source.read([0], source.schema),
        lambda: pa.table(source),
        lambda: source.materialize(["id"]),
        lambda: next(iter(penstock.DataLoader(source, ["id"], batch_size=2))),
        lambda: next(iter(penstock.DataLoader(source, batch_size=2, output="arrow"))),
    ]
    for ask in asked:
        with pytest.raises(
            SchemaMismatchError, match=r"field 'id' .*1\.[a-z]+ and .*2\."
        ) as raised:
            ask()
        assert "Ask for the field with a type: {'id': 'int64'}" in str(raised.value)
    for take in (pl.DataFrame, pd.DataFrame.from_arrow):
        with pytest.raises(Exception, match="no type holds them all exactly"):
            take(source)
    assert source.read([0, 4], ["k"])["k"].to_pylist() == [0, 0]
    assert source.arrow(fields=["k"])["k"].to_pylist() == [0, 1, 2, 3] * 2


@formats
def test_where_finds_the_number_and_not_its_neighbour(tmp_path: Path, ending: str) -> None:
    source = folder(tmp_path / "d", ending)

    def found(expression: object) -> list[int]:
        return np.asarray(source.where(expression).ids).tolist()

    assert found(f"id == {BIG}") == [0]
    assert found(f"id == {BIG - 1}") == [1, 7]
    assert found(f"id != {BIG}") == [1, 2, 3, 4, 6, 7]
    assert found(f"id > {BIG - 1}") == [0]
    assert found(f"id < {BIG} and k == 3") == [3, 7]
    assert found(f"id in ({BIG}, 0.5)") == [0, 4]
    assert found("id is null") == [5]
    assert found(lambda row: row["id"] == BIG) == [0]
    assert source.vocabulary("id")[:4] == WHOLE
    assert source.take([0, 1, 1, 6]).value_counts("id")[BIG] == 1
    one, other = source.split(a=0.5, b=0.5, by="id")
    assert {repr(row) for row in [*one, *other]} == {repr(row) for row in source}


@formats
def test_sources_put_together_are_as_one_folder(tmp_path: Path, ending: str) -> None:
    write(tmp_path / f"1{ending}", WHOLE, pa.int64())
    write(tmp_path / f"2{ending}", FRACTIONS, pa.float64())
    one, other = (penstock.open(tmp_path / f"{name}{ending}") for name in (1, 2))
    both = one + other
    assert repr([row["id"] for row in both]) == repr([*WHOLE, *FRACTIONS])
    assert both.read([6, 0], {"id": "int64"})["id"].to_pylist() == [3, BIG]
    assert [row["id"] for row in both.where(f"id == {BIG}")] == [BIG]
    mixture = penstock.Mixture({"a": one, "b": other}, {"a": 0.5, "b": 0.5})
    batch = next(iter(penstock.DataLoader(mixture, {"id": "float64"}, batch_size=2)))
    assert len(batch["id"]) == 2
    for ask in (both.arrow, lambda: both.arrow([0, 4]), lambda: pa.table(both)):
        with pytest.raises(SchemaMismatchError, match=r"'id' .*no type holds"):
            ask()


def test_sources_of_types_that_are_known_name_both() -> None:
    both = TableSource(pa.table({"id": [BIG]})) + TableSource(pa.table({"id": [0.5]}))
    with pytest.raises(SchemaMismatchError, match="'id' holds integers and floats"):
        both.arrow([0, 1])
    small = TableSource(pa.table({"id": pa.array([1], pa.int32())})) + TableSource(
        pa.table({"id": [0.5]})
    )
    assert small.arrow()["id"].to_pylist() == [1.0, 0.5]


CASES: dict[str, tuple[list[Any], pa.DataType, list[Any], pa.DataType]] = {
    "lists": ([[BIG, 1], None], pa.list_(pa.int64()), [[0.5], []], pa.list_(pa.float64())),
    "structs": (
        [{"x": BIG, "y": "a"}],
        pa.struct({"x": pa.int64(), "y": pa.string()}),
        [{"x": 0.5, "y": None}, None],
        pa.struct({"x": pa.float64(), "y": pa.string()}),
    ),
    "maps": (
        [[("k", BIG)]],
        pa.map_(pa.string(), pa.int64()),
        [[("k", 0.5)]],
        pa.map_(pa.string(), pa.float64()),
    ),
    "float32": ([2**24 + 1, BIG], pa.int64(), [0.5], pa.float32()),
    "uint64": ([2**64 - 1], pa.uint64(), [0.5], pa.float64()),
    "signs": ([2**64 - 1], pa.uint64(), [-1], pa.int64()),
    "decimals": ([Decimal("9007199254740993.25")], pa.decimal128(20, 2), [0.5], pa.float64()),
}


@pytest.mark.parametrize("case", CASES)
def test_values_inside_of_others_and_other_types_are_their_own(tmp_path: Path, case: str) -> None:
    values, type_, others, other_type = CASES[case]
    write(tmp_path / "1.parquet", values, type_)
    write(tmp_path / "2.parquet", others, other_type)
    source = penstock.open(tmp_path)
    assert repr([row["id"] for row in source]) == repr([*values, *others])
    with pytest.raises(SchemaMismatchError, match=r"field 'id.* is .*1\.parquet and .*2\.parquet"):
        source.arrow()
    if case == "structs":
        assert source.read([0], {"id.x": "int64"})["id.x"].to_pylist() == [BIG]
        assert [row["k"] for row in source.where(f"id.x == {BIG}")] == [0]
    elif case not in ("lists", "maps"):
        assert source.read([0], {"id": type_})["id"].to_pylist() == [values[0]]
        whole = [row["k"] for row in source.where(f"id == {int(values[-1])}")]
        assert whole == [len(values) - 1] * (int(values[-1]) == values[-1])


@pytest.mark.parametrize(
    ("one", "other", "whole"),
    [
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.int8(), pa.float16(), pa.float16()),
        (pa.uint16(), pa.float32(), pa.float32()),
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.decimal128(10, 2), pa.decimal128(22, 2)),
    ],
)
def test_types_that_a_type_holds_exactly_are_read_as_that(
    tmp_path: Path, one: pa.DataType, other: pa.DataType, whole: pa.DataType
) -> None:
    write(tmp_path / "1.parquet", [3], one)
    write(tmp_path / "2.parquet", [2], other)
    source = penstock.open(tmp_path)
    assert source.schema.field("id").type == whole
    assert source.arrow()["id"].to_pylist() == [3, 2]
    own = [pq.read_table(tmp_path / f"{n}.parquet")["id"].to_pylist()[0] for n in (1, 2)]
    assert repr([row["id"] for row in source]) == repr(own)


def test_small_integers_of_csv_and_json_make_doubles_with_floats(tmp_path: Path) -> None:
    for ending in (".csv", ".jsonl"):
        write(tmp_path / ending / f"1{ending}", [1, 2], pa.int64())
        write(tmp_path / ending / f"2{ending}", [0.5, None], pa.float64())
        source = penstock.open(tmp_path / ending)
        assert source.schema.field("id").type == pa.float64()
        assert source.arrow()["id"].to_pylist() == [1.0, 2.0, 0.5, None]
        assert pa.table(source)["id"].to_pylist() == [1.0, 2.0, 0.5, None]
        assert repr([row["id"] for row in source]) == "[1, 2, 0.5, None]"


def test_an_integer_behind_the_records_of_the_schema_is_not_rounded(tmp_path: Path) -> None:
    values = [k / 2 for k in range(3000)]
    values[1234] = BIG
    write(tmp_path / "a.jsonl", values, pa.float64())
    source = penstock.open(tmp_path)
    if source.schema.field("id").type == pa.float64():
        columns = source.materialize({"id": "float64"})
        for read in (source.read, columns.read):
            assert read([1, 2], ["id"])["id"].to_pylist() == [0.5, 1.0]
            with pytest.raises(SchemaMismatchError, match="'id' holds integers and floats"):
                read([1, 1234], ["id"])
    assert np.asarray(source.where(f"id == {BIG}").ids).tolist() == [1234]
    with pytest.raises(
        SchemaMismatchError, match=rf"\(0\.0 in .*a\.jsonl and {BIG} in .*a\.jsonl\)"
    ):
        source.arrow()


def test_records_in_memory_are_as_those_of_json() -> None:
    source = ListSource([{"id": BIG}, {"id": 0.5}])
    with pytest.raises(SchemaMismatchError, match="'id' holds integers and floats"):
        source.arrow()
    assert [row["id"] for row in source.where(f"id == {BIG}")] == [BIG]
    assert source.read([0], {"id": "int64"})["id"].to_pylist() == [BIG]


def test_an_index_of_csv_that_does_not_say_which_columns_are_large_is_read_with_care(
    tmp_path: Path,
) -> None:
    write(tmp_path / "d" / "1.csv", [1], pa.int64())
    write(tmp_path / "d" / "2.csv", [0.5], pa.float64())
    penstock.open(tmp_path / "d")
    place = tmp_path / "d" / "index" / "meta.json"
    meta = json.loads(place.read_text())
    for file in meta["files"]:
        del file["facts"]["large"]
    place.write_text(json.dumps(meta))
    source = penstock.open(tmp_path / "d", refresh="never")
    assert [row["id"] for row in source] == [1, 0.5]
    with pytest.raises(SchemaMismatchError, match=r"is int64 in .*1\.csv and double in .*2\.csv"):
        source.arrow()


def test_values_of_folders_and_of_columns_are_their_own(tmp_path: Path) -> None:
    (tmp_path / "year=2024").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "year=2024" / "1.parquet")
    pq.write_table(pa.table({"a": [2], "year": [0.5]}), tmp_path / "2.parquet")
    source = penstock.open(tmp_path)
    assert {repr(row["year"]) for row in source} == {"2024", "0.5"}
    assert [row["a"] for row in source.where("year == 2024")] == [1]


def test_decimals_are_compared_as_they_are_written(tmp_path: Path) -> None:
    values = [Decimal("9007199254740993.25"), Decimal(BIG), Decimal("0.1"), None]
    write(tmp_path / "a.parquet", values, pa.decimal128(20, 2))
    source = penstock.open(tmp_path)
    for expression, rows in {
        f"id == {BIG}": [1],
        f"id == {BIG - 1}": [],
        f"id > {BIG}": [0],
        "id == 0.1": [2],
        "id <= 0.105": [2],
        "id < 1e300": [0, 1, 2],
        "id > 1e300": [],
        f"id != {BIG}": [0, 2],
    }.items():
        assert np.asarray(source.where(expression).ids).tolist() == rows, expression


def test_inputs_of_predictions_are_written_although_no_type_holds_them(tmp_path: Path) -> None:
    source = folder(tmp_path / "d", ".parquet")
    records = Observations(
        2, lambda: [[row] for row in source[[0, 4]]], lambda: source.arrow([0, 4])
    )
    assert records.arrow()["id"].to_pylist() == [str(BIG), "0.5"]


def test_blocks_of_remote_files_keep_their_numbers(
    s3_server: S3Server, bucket: str, tmp_path: Path
) -> None:
    folder(tmp_path / "d", ".parquet")
    for name in ("1.parquet", "2.parquet"):
        s3_server.put(bucket, f"d/{name}", (tmp_path / "d" / name).read_bytes())
    source = penstock.open(f"s3://{bucket}/d", storage_options=s3_server.storage_options)
    for _ in range(2):  # From the bucket, then from the disk.
        blocks = source.by_blocks()
        assert repr([row["id"] for row in blocks]) == repr([*WHOLE, *FRACTIONS])


NUMBERS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()),
    *(pa.uint64(), pa.float32(), pa.float64(), pa.decimal128(10, 2), pa.decimal128(38, 0)),
]
EDGES = [0, 1, -1, 127, 2**24 + 1, 2**31 - 1, 2**53, BIG, -BIG, 2**63 - 1, 2**64 - 1, 0.5, 2.0**53]


def values_of_type(random_: random.Random, type_: pa.DataType) -> list[Any]:
    drawn = [random_.choice(EDGES), random_.randint(-(2**64), 2**64), random_.uniform(-9, 9), None]
    values = []
    for value in drawn:
        try:
            made = (
                Decimal(str(value)) if pa.types.is_decimal(type_) and value is not None else value
            )
            values.append(pa.array([made], type_)[0].as_py())
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            values.append(pa.array([3], pa.int8()).cast(type_)[0].as_py())
    return values


@given(st.sampled_from(NUMBERS), st.sampled_from(NUMBERS), st.integers(0, 10**6))
def test_the_type_of_two_holds_every_number_of_both(
    one: pa.DataType, other: pa.DataType, seed: int
) -> None:
    whole = exact_type(one, other)
    assert whole == exact_type(other, one)
    for type_ in (one, other) if whole is not None else ():
        for value in values_of_type(random.Random(seed), type_):
            held = pa.array([value], type_).cast(whole)[0].as_py()
            assert held == value


@formats
@pytest.mark.parametrize("seed", range(rounds(3, 60)))
def test_random_files_are_read_as_python_has_their_values(
    tmp_path: Path, ending: str, seed: int
) -> None:
    random_ = random.Random(f"{ending} {seed}")
    kinds = {
        ".parquet": NUMBERS,
        ".arrow": NUMBERS,
        ".feather": NUMBERS,
        ".orc": [
            pa.int8(),
            pa.int32(),
            pa.int64(),
            pa.float32(),
            pa.float64(),
            pa.decimal128(38, 0),
        ],
    }.get(ending, [pa.int64(), pa.float64()])
    expected: list[Any] = []
    for number in range(3):
        type_ = random_.choice(kinds)
        values = values_of_type(random_, type_)
        if ending == ".csv" and all(value is None or float(value).is_integer() for value in values):
            values[-1] = 0.5 if pa.types.is_floating(type_) else None
        write(tmp_path / "d" / f"{number}{ending}", values, type_)
        expected += values
    source = penstock.open(tmp_path / "d")
    assert repr([row["id"] for row in source]) == repr(expected)
    for row, value in enumerate(expected):
        exact = isinstance(value, int) or (
            value is not None and value == int(value) and abs(value) < 2**53
        )
        fits = value is None or (exact and -(2**63) <= value < 2**63)
        try:
            got = source.read([row], {"id": "int64"})["id"].to_pylist()[0]
        except SchemaMismatchError:
            assert not fits or (isinstance(value, Decimal)), value
        else:
            assert got == value, (got, value)
        if isinstance(value, int):
            rows = np.asarray(source.where(f"id == {value}").ids).tolist()
            assert rows == [
                at for at, one in enumerate(expected) if one is not None and one == value
            ]
    try:
        column = source.arrow(fields=["id"])["id"].to_pylist()
    except SchemaMismatchError as why:
        assert "no type holds" in str(why)  # noqa: PT017 (either is right)
    else:
        assert [None if one is None else Decimal(one) for one in column] == [
            None if one is None else Decimal(one) for one in expected
        ]
    assert not math.isnan(sum(value or 0 for value in map(float, filter(None, expected))))


@pytest.mark.parametrize("ending", [".arrow", ".parquet"])
def test_a_file_that_claims_numbers_of_several_types_is_read_or_refused(
    tmp_path: Path, ending: str
) -> None:
    claims = {b"ARROW:extension:name": b"penstock.numbers", b"ARROW:extension:metadata": b""}
    for name, array in {
        "whole": pa.array([{"a": 1, "b": 0.5}, {"a": None, "b": None}, None]),
        "no-struct": pa.array([1, 2, 3]),
        "texts": pa.array([{"a": "x"}] * 3),
    }.items():
        schema = pa.schema([pa.field("id", array.type, metadata=claims)])
        table = pa.Table.from_arrays([array], schema=schema)
        path = tmp_path / f"{name}{ending}"
        if ending == ".parquet":
            pq.write_table(table, path)
        else:
            table_files.write(path, table)
    assert penstock.open(tmp_path / f"whole{ending}")[:] == [{"id": 1}, {"id": None}, {"id": None}]
    for name in ("no-struct", "texts"):
        with pytest.raises(CorruptFileError, match=r"penstock\.numbers of"):
            penstock.open(tmp_path / f"{name}{ending}")
