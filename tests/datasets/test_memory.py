"""Tables, frames, lists of dicts and map-style datasets as sources."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import pickle
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from penstock.datasets._memory import ListSource, MapStyleSource, in_memory
from penstock.datasets._table_source import TableSource
from penstock.errors import OptionError, SchemaMismatchError
from tests.datasets.sample import Record, filled, sample_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.datasets import Source


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        (pa.table({"a": [1]}), TableSource),
        (pa.record_batch({"a": [1]}), TableSource),
        (pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int8()}), []), TableSource),
        (pl.DataFrame({"a": [1]}), TableSource),
        (pd.DataFrame({"a": [1]}), TableSource),
        ([{"a": 1}], ListSource),
        ([], ListSource),
        ((), ListSource),
        (({"a": 1}, types.MappingProxyType({"a": 2})), ListSource),
        ([1, 2], MapStyleSource),
        (np.arange(6).reshape(3, 2), MapStyleSource),
        (collections.UserList([1, 2]), MapStyleSource),
    ],
)
def test_what_is_in_memory_becomes_the_fitting_source(what: object, kind: type) -> None:
    assert type(in_memory(what)) is kind


@pytest.mark.parametrize(
    "what",
    [
        "logs/*.jsonl",
        b"logs",
        Path("logs"),
        ["a.jsonl", "b.jsonl"],
        [{"a": 1}, "b.jsonl"],
        {"a": [1, 2]},
        iter([{"a": 1}]),
        None,
        7,
        list,
        pl.LazyFrame({"a": [1]}),
    ],
)
def test_what_is_not_in_memory_is_left_to_others(what: object) -> None:
    assert in_memory(what) is None


def test_a_source_stays_itself() -> None:
    source = ListSource([{"a": 1}])
    assert in_memory(source) is source


def test_a_list_gives_back_the_very_records_and_its_length_is_taken_once() -> None:
    records = [{"a": 1}, {"a": 2}]
    source = ListSource(records)
    records.append({"a": 3})
    assert len(source) == 2
    assert source[1] is records[1]


def test_equal_records_have_equal_fingerprints_and_others_have_not() -> None:
    sample = sample_records(20)
    prints = [
        ListSource(rows).fingerprint
        for rows in (sample, sample[:19], sample[::-1], [*sample[:19], {**sample[19], "id": -1}])
    ]
    assert len(set(prints)) == 4
    assert ListSource(sample_records(20)).fingerprint == prints[0]
    shuffled = [dict(reversed(record.items())) for record in sample]
    assert ListSource(shuffled).fingerprint == prints[0]


def odd_records() -> list[Record]:
    """Return records with values that JSON does not have."""
    return [
        {"when": dt.datetime(2024, 1, 2, 3, tzinfo=dt.UTC), "raw": b"\0\xff"},
        {"amount": decimal.Decimal("1.10"), "wide": 10**30, "kinds": {"a", "b", "c"}},
        {"array": np.arange(5000), "scalar": np.float32(0.5), "half": "\ud800", 3: None},
        {"object": object(), "nan": float("nan"), "day": dt.date(2024, 1, 2)},
    ]


def test_the_fingerprint_of_any_values_is_the_same_in_another_process() -> None:
    program = (
        "from tests.datasets.test_memory import odd_records\n"
        "from penstock.datasets._memory import ListSource\n"
        "print(ListSource(odd_records()).fingerprint)"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert told == {ListSource(odd_records()).fingerprint}


def test_the_fingerprint_sees_every_element_of_an_array() -> None:
    other = np.arange(5000)
    other[2500] = 0
    one, two = ({"v": np.arange(5000), "raw": b"x"}, {"v": other, "raw": b"x"})
    assert ListSource([one]).fingerprint != ListSource([two]).fingerprint


def test_the_fingerprint_of_a_table_is_that_of_its_values() -> None:
    table = pa.Table.from_pylist(filled(sample_records(60)))
    known = TableSource(table).fingerprint
    cut = pa.concat_tables([table.slice(0, 7), table.slice(7, 30), table.slice(37)])
    padded = pa.concat_tables([table.slice(3, 5), table]).combine_chunks().slice(5)
    told = table.replace_schema_metadata({"made": "elsewhere"})
    for same in (cut, padded, told, pickle.loads(pickle.dumps(table))):
        assert TableSource(same).fingerprint == known
    for other in (table.slice(1), table.take(list(range(59, -1, -1))), table.drop_columns(["id"])):
        assert TableSource(other).fingerprint != known
    renamed = table.rename_columns([f"{name}_" for name in table.schema.names])
    assert TableSource(renamed).fingerprint != known


def test_values_that_json_does_not_have_become_what_arrow_has_for_them() -> None:
    moment = dt.datetime(2024, 1, 2, 3, 4, 5)  # noqa: DTZ001 (Arrow knows both)
    rows = [
        {"when": moment, "raw": b"\0\xff", "amount": decimal.Decimal("1.10")},
        {"when": None, "array": np.array([1, 2]), "n": np.int8(3), "t": (1, 2)},
    ]
    source = ListSource(rows)
    schema = source.schema
    assert schema.field("when").type == pa.timestamp("us")
    assert schema.field("raw").type == pa.binary()
    assert schema.field("amount").type == pa.decimal128(3, 2)
    assert schema.field("array").type == schema.field("t").type == pa.list_(pa.int64())
    batch = source.read([1, 0], {"when": "timestamp[ns]", "array": "list<int8>", "n": "float32"})
    assert batch["when"].to_pylist()[1] == pd.Timestamp(moment)
    assert batch["array"].to_pylist() == [[1, 2], None]
    assert batch["n"].to_pylist() == [3.0, None]
    assert source.read([0], {"amount": "float64"})["amount"].to_pylist() == [1.1]


BIG = [{"id": i, "v": {"n": [i]}} for i in range(300)]


@pytest.mark.parametrize("kind", [ListSource, lambda rows: TableSource(pa.Table.from_pylist(rows))])
@pytest.mark.parametrize(
    ("fields", "record", "path", "value"),
    [
        ({"id": "int8"}, 128, "id", "128"),
        ({"id": "string"}, 299, "id", "299"),
        ({"id": "bool"}, 299, "id", "299"),
        ({"id": "list<int64>"}, 299, "id", "299"),
        ({"v.n": "list<uint8>"}, 256, "v.n[]", "256"),
        ({"v": pa.struct({"n": pa.list_(pa.int8())})}, 128, "v.n[]", "128"),
        ({"v.n": "int64"}, 299, "v.n", r"\[299\]"),
    ],
)
def test_a_value_that_does_not_fit_names_record_field_and_value(
    kind: Callable[[list[Record]], Source],
    fields: dict[str, Any],
    record: int,
    path: str,
    value: str,
) -> None:
    source = kind(BIG)
    ids = [299, *range(299)] if record == 299 else [0, *range(100, 300)]
    claim = rf"record {record}: field '{re.escape(path)}' holds {value}, which does not fit"
    with pytest.raises(SchemaMismatchError, match=claim) as raised:
        source.read(ids, fields)
    assert raised.value.record == record


def test_strings_are_never_parsed_as_numbers() -> None:
    for source in (ListSource([{"a": "1"}]), TableSource(pa.table({"a": ["1"]}))):
        for type_ in ("int64", "float64", "bool"):
            with pytest.raises(SchemaMismatchError, match="'1'"):
                source.read([0], {"a": type_})


def test_records_that_are_no_dicts_have_no_columns() -> None:
    source = MapStyleSource([(1, 2), (3, 4)])
    assert source[[1, 0]] == [(3, 4), (1, 2)]
    for ask in (lambda: source.schema, lambda: source.read([1], {"a": "int8"}), source.arrow):
        with pytest.raises(SchemaMismatchError, match=r"record \d is a tuple"):
            ask()


def test_a_map_style_dataset_is_asked_for_many_records_at_once() -> None:
    asked: list[list[int]] = []

    class Batched:
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> int:
            raise AssertionError("one by one")

        def __getitems__(self, indices: list[int]) -> tuple[int, ...]:
            asked.append(indices)
            return tuple(indices)

    source = MapStyleSource(Batched())
    assert source[[5, -1]] == [5, 99]
    assert source[7] == 7
    assert asked == [[5, 99], [7]]
    assert all(type(i) is int for i in asked[0])


def test_a_map_style_fingerprint_stands_for_type_and_length() -> None:
    one, two = MapStyleSource([1, 2]), MapStyleSource([3, 4])
    assert one.fingerprint == two.fingerprint != MapStyleSource([1]).fingerprint
    assert one.fingerprint != MapStyleSource((1, 2)).fingerprint


def test_a_pandas_index_is_a_column_if_it_has_a_name() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3, 4]})
    assert TableSource(frame.iloc[[3, 0]])[:] == [{"a": 4}, {"a": 1}]
    named = frame.set_index(pd.Index(list("wxyz"), name="key"))
    assert TableSource(named)[1] == {"a": 2, "key": "x"}


def test_polars_views_categories_and_lists_can_be_taken() -> None:
    frame = pl.DataFrame(
        {
            "text": ["a", None, "long enough not to be stored in the view itself"],
            "kind": pl.Series(["u", "v", "u"], dtype=pl.Categorical),
            "words": [["x"], [], None],
            "fixed": pl.Series([[1, 2]] * 3, dtype=pl.Array(pl.Int64, 2)),
        }
    )
    assert TableSource(frame)[[2, 0, 1]] == [frame.row(i, named=True) for i in (2, 0, 1)]
    batch = TableSource(frame).read([2, 1], {"kind": "string", "text": "binary"})
    assert batch["kind"].to_pylist() == ["u", "v"]


@pytest.mark.parametrize("view", [pa.list_view, pa.large_list_view])
def test_slices_of_list_views_keep_their_values(view: Any) -> None:
    item = pa.struct({"n": view(pa.string_view()), "x": pa.int8()})
    values = [None, None, [{"n": ["a", None], "x": 1}, None], [], [{"n": None}, {"n": []}]]
    for type_ in (view(item), pa.struct({"v": view(item)})):
        rows = [{"v": one} for one in values] if pa.types.is_struct(type_) else values
        whole = pa.table({"c": pa.array(rows, type_)})
        for start in range(len(rows)):
            for table in (whole[start:], pa.concat_tables([whole[start:], whole[:start]])):
                assert TableSource(table)[:] == table.to_pylist()


def test_a_reader_is_read_to_its_end() -> None:
    batches = [pa.record_batch({"a": [1]}), pa.record_batch({"a": [2, 3]})]
    source = TableSource(pa.RecordBatchReader.from_batches(batches[0].schema, iter(batches)))
    assert source[:] == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert source.blocks.tolist() == [0, 1, 3]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (pa.chunked_array([[1]]), "ChunkedArray gives no Arrow table"),
        (pa.Table.from_arrays([pa.array([1])] * 2, ["a", "a"]), "'a' more than once"),
        (7, "not int"),
    ],
)
def test_what_is_no_table_of_records_is_refused(what: object, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        TableSource(what)


def test_an_empty_source_is_a_source() -> None:
    for source in (ListSource([]), TableSource(pa.table({"a": pa.array([], pa.int8())}))):
        assert len(source) == 0
        assert source[:] == list(source) == source.head() == []
        assert source.blocks.tolist() == [0]
        assert source.fingerprint
        assert source.read([], {"a": "int8"}).num_rows == 0
        with pytest.raises(IndexError, match="there are 0"):
            source[0]


TYPES = pa.Table.from_pylist(filled(sample_records(12))).schema


@pytest.mark.parametrize(
    "kind", [ListSource, lambda rows: TableSource(pa.Table.from_pylist(rows, TYPES))]
)
def test_what_is_in_memory_was_every_shorter_one_of_the_same_records(
    kind: Callable[[list[Record]], Source],
) -> None:
    sample = filled(sample_records(12))
    later = kind(sample)
    for length in range(1, 13):
        before = kind(sample[:length])
        assert later.was(before.fingerprint, length)
        assert not later.was(before.fingerprint, length - 1)
        assert not before.was(later.fingerprint, 12) or length == 12
        changed = kind([*sample[: length - 1], {**sample[length - 1], "id": -1}])
        assert not later.was(changed.fingerprint, length)
        assert later.take([0]).was(before.take([0]).fingerprint, 1)
    assert not later.was(later.fingerprint, -1)
    assert not later.was(later.fingerprint, 13)


def test_a_table_of_several_batches_of_hashing_was_shorter() -> None:
    table = pa.table({"id": range(140_000)})
    for length in (1, 65_535, 65_536, 65_537, 131_072, 131_073, 140_000):
        before = TableSource(table.slice(0, length))
        assert TableSource(table).was(before.fingerprint, length)


def test_lists_of_nothing_but_nulls_are_kept_in_a_slice_of_a_table() -> None:
    table = pa.table({"words": pa.array([[None, None], [None]], pa.list_(pa.null()))})
    source = TableSource(table.slice(0, 1))
    assert source[0] == {"words": [None, None]}
