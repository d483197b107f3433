"""A schema reads every source, in every type that a column has, and streams."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.schema import (
    Array,
    Category,
    DateParts,
    Number,
    Schema,
    Set,
    Vector,
    check_batch,
    fit_vocabulary,
    where,
)
from tests.schema.both_paths import assert_equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RECORDS: list[dict[str, Any]] = [
    {
        "id": number,
        "k": f"w{number * 3 % 7}",
        "s": [f"t{number % 3}"] * (number % 2),
        "v": [number, 1.5],
        "at": "2024-03-01T07:30",
        "ev": [{"n": number + item, "c": f"c{item}"} for item in range(number % 4)],
    }
    for number in range(40)
]


def schema() -> Schema:
    return Schema(
        Number("id", p_mask=0.3),
        Category("k", p_unavailable=0.1),
        Set("s", max_vocab_size=5),
        Vector("v", n_dim=2),
        DateParts("at", dateparts=["hour_of_day"]),
        Array(Number("n"), Category("c"), name="ev", max_length=2),
    )


def run(source: Any, own: Schema | None = None, **options: Any) -> list[Any]:
    return list(penstock.DataLoader(source, own or schema(), batch_size=8, seed=1, **options))


def assert_same(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        for address in other:
            assert_equal(one[address], other[address], address)


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    return run(RECORDS)


def as_jsonl(path: Path) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))


@pytest.fixture(scope="module")
def jsonl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("queries") / "a.jsonl"
    as_jsonl(path)
    return path


def as_array(path: Path) -> None:
    path.write_text(json.dumps(RECORDS))


def as_parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(RECORDS), path, row_group_size=7)


def as_feather(path: Path) -> None:
    pyarrow.feather.write_feather(pa.Table.from_pylist(RECORDS), path, compression="uncompressed")


def as_orc(path: Path) -> None:
    pyarrow.orc.write_table(pa.Table.from_pylist(RECORDS), path)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.jsonl", as_jsonl),
        ("a.json", as_array),
        ("a.parquet", as_parquet),
        ("a.feather", as_feather),
        ("a.orc", as_orc),
    ],
)
@pytest.mark.parametrize("materialize", [False, True])
def test_files_of_every_format_give_the_same_batches(
    name: str, write: Any, *, materialize: bool, tmp_path: Path, expected: list[Any]
) -> None:
    path = tmp_path / name
    write(path)
    source = penstock.open(str(path))
    if materialize and source.no_columns:
        pytest.skip(source.no_columns)
    assert_same(run(source, materialize=materialize), expected)


def test_flat_records_come_from_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,k\n" + "".join(f"{one['id']},{one['k']}\n" for one in RECORDS))
    own = schema()
    own.delete(~where("name").is_in(["id", "k", "record"]))
    assert_same(
        run(str(path), own),
        run([{key: one[key] for key in ("id", "k")} for one in RECORDS], own.for_split("train")),
    )


@pytest.mark.parametrize(
    "made",
    [
        pl.DataFrame,
        lambda table: table.to_pandas(),
        lambda table: penstock.open(table).take(range(40)),
        lambda table: penstock.open(table).where("id >= 0"),
        lambda _: penstock.open(RECORDS).map(dict),
        lambda table: penstock.open(RECORDS[:15]) + penstock.open(table[15:]),
    ],
    ids=["polars", "pandas", "taken", "searched", "mapped", "added"],
)
def test_frames_and_views_give_the_same_batches(made: Any, expected: list[Any]) -> None:
    assert_same(run(made(pa.Table.from_pylist(RECORDS))), expected)


def test_a_mixture_gives_the_records_of_its_sources() -> None:
    lists = penstock.open([{**one, "other": "a text"} for one in RECORDS[:20]])
    table = penstock.open(pa.table({**as_columns(RECORDS[20:]), "other": [1.5] * 20}))
    mixture = penstock.Mixture({"a": lists, "b": table}, weights={"a": 1, "b": 1})
    own = schema()
    seen = set()
    for batch in run(mixture, own):
        check_batch(own, batch, "train")
        items = batch["record/ev/n"]
        for row, number in enumerate(batch["record/id"].targets["content"][:, 0].int().tolist()):
            seen.add(number)
            numbers = [one["n"] for one in RECORDS[number]["ev"]][:2]
            assert items.content[row, 0, : len(numbers)].tolist() == numbers
            assert (items.state[row, 0] == 0).sum() == len(numbers)
    assert {number < 20 for number in seen} == {True, False}


def as_columns(records: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: [one[name] for one in records] for name in records[0]}


def as_type(table: pa.Table, **types: pa.DataType) -> pa.Table:
    for name, type_ in types.items():
        column = pa.chunked_array([pa.array(table[name].to_pylist(), type_)])
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


ITEM = pa.struct({"n": pa.int64(), "c": pa.string()})


@pytest.mark.parametrize(
    "types",
    [
        {"k": pa.large_string(), "s": pa.large_list(pa.string()), "ev": pa.large_list(ITEM)},
        {"k": pa.dictionary(pa.int8(), pa.string()), "v": pa.list_(pa.float64(), 2)},
        {"k": pa.string_view(), "s": pa.list_view(pa.string()), "ev": pa.list_view(ITEM)},
        {"id": pa.int8(), "v": pa.list_(pa.float32()), "s": pa.list_(pa.string_view())},
        {
            "id": pa.float32(),
            "ev": pa.list_(pa.struct({"n": pa.float64(), "c": pa.large_string()})),
        },
        {"id": pa.decimal128(10, 2)},
    ],
)
def test_columns_of_every_type_give_the_same_batches(
    types: dict[str, pa.DataType], expected: list[Any]
) -> None:
    table = as_type(pa.Table.from_pylist(RECORDS), **types)
    assert_same(run(table), expected)
    assert_same(run(pa.concat_tables([table[:11], table[11:]])), expected)


@pytest.mark.parametrize("path", ["rows", "columnar"])
@pytest.mark.parametrize("as_file", [True, False])
def test_a_map_is_a_list_of_keys_and_values(path: str, *, as_file: bool, tmp_path: Path) -> None:
    items = [[("a", 1), ("b", None)], None, []]
    table = pa.table({"m": pa.array(items, pa.map_(pa.string(), pa.int64()))})
    pq.write_table(table, tmp_path / "map.parquet")
    source: Any = str(tmp_path / "map.parquet") if as_file else table
    fields = Array(
        Category("key", max_vocab_size=4, p_unavailable=0), Number("value"), name="m", max_length=3
    )
    own = Schema(fields)
    own.path = path
    (batch,) = penstock.DataLoader(source, own, batch_size=3)
    assert batch["record/m/key"].state.tolist() == [[[0, 0, 2]], [[2, 2, 2]], [[2, 2, 2]]]
    assert batch["record/m/value"].state.tolist() == [[[0, 1, 2]], [[2, 2, 2]], [[2, 2, 2]]]
    assert batch["record/m/value"].content[0].tolist() == [[1, 0, 0]]


MIXED: list[dict[str, Any]] = [
    {"x": 1, "k": 1, "ev": [{"n": 1}]},
    {"x": "2", "k": "1", "ev": [{"n": "3"}, {"n": True}]},
    {"x": 2**70, "k": True, "ev": None},
    {"x": False, "k": 1.0},
    {"x": None, "k": 2.5, "ev": []},
]


@pytest.mark.parametrize("as_file", [True, False])
def test_fields_that_mix_types_are_read_record_by_record(*, as_file: bool, tmp_path: Path) -> None:
    own = Schema(
        Number("x"),
        Category("k", max_vocab_size=4, p_unavailable=0),
        Array(Number("n"), name="ev", max_length=2),
    )
    source: Any = MIXED
    if as_file:
        source = str(tmp_path / "mixed.jsonl")
        (tmp_path / "mixed.jsonl").write_text("".join(json.dumps(one) + "\n" for one in MIXED))
    with pytest.warns(UserWarning, match="record/k: the vocabulary holds"):
        (batch,) = penstock.DataLoader(source, own, batch_size=5)
    assert batch["record/x"].content[:, 0].tolist() == [1, 2, 2.0**70, 0, 0]
    assert batch["record/x"].state[:, 0].tolist() == [0, 0, 0, 0, 1]
    assert batch["record/k"].content[:, 0].tolist() == [0, 1, 2, 0, 3]
    assert batch["record/ev/n"].content[1].tolist() == [[3, 1]]


OF_WHOLE_RECORDS = [
    "[*].[length(keys(@))] | [0]",
    "[*].to_string(@)",
    "max_by(@, &id).k",
    "map(&id, @)",
    "[*].merge(@, {id: k}) | [0].id",
    "to_array(@)[0].id",
    "[*].[@] | [0][0].k",
    "[*].* | [0][0]",
]
OF_FIELDS = [
    "[*].not_null(none, id)",
    "[*].{x: id, y: k} | [0].y",
    "[*].sort_by(ev, &n)[0].c | [0]",
    "[*].ev[?n > `2`].c | [0][0]",
    "[?id > `6`].k",
    "[::-1].id",
    "[*].id || [*].k",
    "[*].[id == `3`] | [0]",
    "[*] | [0] | k",
    "[*].s[] | [0:1]",
]


@pytest.mark.parametrize("query", [*OF_WHOLE_RECORDS, *OF_FIELDS])
def test_general_queries_see_all_that_they_ask_of_a_record(query: str, jsonl: Path) -> None:
    def schema() -> Schema:
        return Schema(Category("x", query=query, p_unavailable=0), Number("id"))

    own = schema()
    expected = own.encode(RECORDS[:8], "train")["record/x"]
    assert own.state_dict()["vocabularies"]["record/x"]
    names = own.hyperparameters.queries["record/x"].names  # type: ignore[index]
    assert (names is None) == (query in OF_WHOLE_RECORDS)
    table = pa.Table.from_pylist(RECORDS)
    for source in (RECORDS, str(jsonl), table, penstock.stream(range(5), units)):
        first = next(iter(penstock.DataLoader(source, schema(), batch_size=8, num_workers=0)))
        assert_equal(first["record/x"], expected, query)
    learnt = schema()
    fit_vocabulary(learnt, RECORDS[:8], order="first")
    assert learnt.state_dict()["vocabularies"] == own.state_dict()["vocabularies"]


def units(unit: int, start: int) -> Iterator[Any]:
    records = RECORDS[unit * 8 + start : unit * 8 + 8]
    return iter([pa.RecordBatch.from_pylist(records)] if unit % 2 and records else records)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_teaches_labels_in_the_order_of_its_records(
    workers: int, expected: list[Any]
) -> None:
    stream = penstock.stream(range(5), units)
    own = schema()
    found = run(stream, own, num_workers=workers)
    for one, other in zip(found, expected, strict=True):
        # Records of a stream have other numbers, so that chance falls otherwise.
        assert one["record/ev/n"].content.tolist() == other["record/ev/n"].content.tolist()
    plain = schema()
    run(RECORDS, plain)
    assert own.state_dict()["vocabularies"] == plain.state_dict()["vocabularies"]


def test_a_loader_says_which_leaves_are_read_record_by_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = Schema(Number("x", query="[*].ev[?n > `1`].n | [0] | [@]"), Number("id"))
    with caplog.at_level("INFO", "penstock.schema"):
        loader = penstock.DataLoader(RECORDS, own, batch_size=4)
    assert "read record by record: record/x" in caplog.text
    assert "read record by record: record/x" in str(loader.explain())
    own.path = "rows"
    assert "record/x, record/id" in str(penstock.DataLoader(RECORDS, own, batch_size=4).explain())
