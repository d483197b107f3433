"""Fields that were decoded once are those that are decoded anew, for every record and type."""

from __future__ import annotations

import json
import logging
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.datasets import (
    JsonlDataset,
    Source,
    columns_of,
    drop_columns_of,
    estimate_columns,
    list_columns_of,
    typed_schema,
)
from penstock.datasets.columns._materialized import Materialized
from penstock.errors import MalformedLineError, OptionError, SchemaMismatchError
from penstock.index import create_default_jsonl_indexer
from tests.datasets.materialize_samples import (
    FIELDS,
    FORMATS,
    WHOLE,
    fields_of,
    lines,
    opened,
    record,
    records,
    same,
    write,
)
from tests.rounds import rounds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

scalars: dict[str, tuple[str | pa.DataType, st.SearchStrategy[Any]]] = {
    "int": ("int64", st.integers(-(2**63), 2**63 - 1)),
    "small": ("int8", st.integers(-128, 127) | st.sampled_from([2.0, -1.0])),
    "huge": ("uint64", st.integers(0, 2**64 - 1)),
    "float": ("float64", st.floats() | st.integers(-(2**60), 2**60)),
    "half": ("float32", st.floats(width=32)),
    "bool": ("bool", st.booleans()),
    "text": ("string", st.text(st.characters(exclude_categories=["Cs"]), max_size=8)),
    "bytes": ("binary", st.text(st.characters(exclude_categories=["Cs"]), max_size=4)),
    "when": ("timestamp[us]", st.integers(0, 2**50) | st.just("2024-02-29T12:34:56.789")),
    "zoned": ("timestamp[ms, UTC]", st.just("2024-02-29T12:34:56Z") | st.none()),
    "day": ("date32", st.just("1999-12-31") | st.integers(0, 20_000)),
    "exact": (pa.decimal128(12, 2), st.sampled_from(["1.25", "-3", "0.5"])),
    "ints": ("list<int64>", st.lists(st.integers(-9, 9), max_size=4)),
    "texts": ("list<string>", st.lists(st.none() | st.sampled_from(["", "a", "ü"]), max_size=3)),
    "nested": ("list<list<float32>>", st.lists(st.none() | st.lists(st.floats(width=32)))),
    "pair": (pa.list_(pa.int8(), 2), st.lists(st.integers(0, 9), min_size=2, max_size=2)),
    "object": (
        pa.struct({"a": pa.int8(), "b": pa.list_(pa.string())}),
        st.fixed_dictionaries({}, optional={"a": st.integers(0, 9), "b": st.just(["x"])}),
    ),
}
items = st.lists(
    st.none()
    | st.fixed_dictionaries({}, optional={"price": st.floats(0, 9), "id": st.integers(0)}),
    max_size=3,
)
users = st.fixed_dictionaries({}, optional={"age": st.integers(0, 99), "name": st.text("ab")})
others = st.sampled_from([None, "no", -1, 2**70, 1.5, [], {}, [1, "x"], True])


def known(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return strategy | st.none()


@st.composite
def sources(draw: st.DrawFn) -> tuple[list[dict[str, Any]], dict[str, Any], list[int]]:
    """Draw records, fields with types, and numbers; now and then a value does not fit."""
    chosen = draw(st.lists(st.sampled_from(sorted(scalars)), min_size=1, max_size=5, unique=True))
    values = {name: known(scalars[name][1]) for name in chosen}
    values |= {"items": known(items), "user": known(users), "user.age": st.none() | st.integers(5)}
    if draw(st.integers(0, 3)) == 0:
        odd = draw(st.sampled_from(chosen))
        values[odd] = values[odd] | others
    found = draw(st.lists(st.fixed_dictionaries({}, optional=values), min_size=1, max_size=12))
    fields: dict[str, Any] = {name: scalars[name][0] for name in chosen}
    paths = {
        "items[].price": "list<float32>",
        "items[].id": "list<uint8>",
        "user.age": "int64",
        "user.name": "string",
        "nowhere": "int8",
        "items": pa.list_(pa.struct({"price": pa.float64()})),
    }
    fields |= {path: paths[path] for path in draw(st.sets(st.sampled_from(sorted(paths))))}
    return found, fields, draw(st.lists(st.integers(0, len(found) - 1), max_size=20))


def outcome(read: Callable[[], pa.RecordBatch]) -> Any:
    """Return what was read, or the error that says why not."""
    try:
        return read()
    except (MalformedLineError, SchemaMismatchError) as why:
        return type(why), str(why)


@settings(max_examples=rounds(25, 1500), suppress_health_check=[HealthCheck.data_too_large])
@given(sources())
def test_gathered_is_what_decoding_gives_errors_included(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: tuple[list[dict[str, Any]], dict[str, Any], list[int]],
) -> None:
    found, fields, ids = drawn
    folder = tmp_path_factory.mktemp("data")
    (folder / "a.jsonl").write_text(lines(found))
    source = penstock.open(folder)
    every = np.arange(len(source))
    if isinstance(outcome(lambda: source.read(every, fields)), tuple):
        with pytest.raises((MalformedLineError, SchemaMismatchError), match=r", line \d+, "):
            source.materialize(fields)
    else:
        source.materialize(fields)
    columns = source.materialize(fields, on_error="mask")
    for some in (ids, [], every, every[::-1], *([n] for n in every)):
        for asked in (fields, dict(reversed(fields.items()))):
            gathered = outcome(lambda: columns.read(some, asked))  # noqa: B023
            plain = outcome(lambda: source.read(some, asked))  # noqa: B023
            if isinstance(plain, tuple):
                # Of several bad values another may be met first.
                assert isinstance(gathered, tuple)
                assert len(some) > 1 or gathered[0] == plain[0]
            else:
                assert same(gathered, plain)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_is_materialised(kind: str, tmp_path: Path, own_cache: Path) -> None:
    source = opened(tmp_path / "data", kind)
    fields = fields_of(kind)
    every = source.read(np.arange(300), fields)
    columns = source.materialize(fields)
    ids = np.random.default_rng(3).integers(0, 300, 500)
    assert same(columns.read(ids, fields), every.take(pa.array(ids)))
    # Beside the index, where there is one.
    root = own_cache / "columns" if kind == "parquet" else tmp_path / "data" / "index" / "columns"
    found = [path.parent for path in root.rglob("meta.json")]
    assert len(found) == len(fields)
    marks = {mark.name for mark in found[0].parent.iterdir() if mark.is_file()}
    assert {".gitignore", "CACHEDIR.TAG"} <= marks
    assert isinstance(columns_of(source, typed_schema(fields)), Materialized)


def test_it_is_the_same_source_in_everything_else(tmp_path: Path) -> None:
    source = opened(tmp_path, "jsonl")
    columns = source.materialize(FIELDS)
    assert columns.fingerprint == source.fingerprint
    assert columns.was(source.fingerprint, 300)
    assert (columns.blocks == source.blocks).all()
    assert columns.files == source.files
    assert columns.location(299) == source.location(299)
    assert columns.raw(7) == source.raw(7)
    assert columns[[5, -1]] == source[[5, -1]] == [record(5), record(299)]
    assert columns.schema == source.schema
    assert columns.by_blocks() is columns
    assert columns.arrow().equals(source.arrow())


def test_other_fields_come_from_the_source_in_the_order_asked(tmp_path: Path) -> None:
    source = opened(tmp_path, "jsonl")
    columns = source.materialize({"id": "int64", "tags": "list<int64>"})
    for asked in (
        {"name": "string", "tags": "list<int64>", "user.age": "int8", "id": "int64"},
        {"id": "int8"} | {"tags": "list<int16>"},
        ["tags", "price", "id"],
        ["tags", "id"],
        pa.schema([("id", pa.int64()), ("flag", pa.bool_())], {"about": "it"}),
        {},
    ):
        assert same(columns.read([9, 3, 3], asked), source.read([9, 3, 3], asked))
    for wrong in ("id", ["nowhere"], ["id", "id"], {"id": "int65"}, [1], {"id": []}):
        with pytest.raises(OptionError) as plain:
            source.read([1], wrong)  # type: ignore[arg-type]
        with pytest.raises(OptionError) as raised:
            columns.read([1], wrong)  # type: ignore[arg-type]
        assert str(raised.value) == str(plain.value)


def test_names_alone_have_the_types_of_the_schema(tmp_path: Path) -> None:
    source = opened(tmp_path, "jsonl")
    columns = source.materialize(["id", "price", "user.age", "items[].price"])
    types = {meta.path: meta.type for meta, *_ in list_columns_of(source)}
    assert types == {
        "id": "int64", "price": "float64", "user.age": "int64", "items[].price": "list<float64>",
    }  # fmt: skip
    ids = [280, 3, 3]
    asked = ["items[].price", "id"]
    assert same(columns.read(ids, asked), source.read(ids, asked))
    with pytest.raises(OptionError, match="did you mean 'price'"):
        source.materialize(["pirce"])


def test_a_field_that_is_wider_in_late_records_is_read_by_name_as_ever(tmp_path: Path) -> None:
    late = [{"n": k} for k in range(3000)]
    late[1234] = {"n": 0.5}
    (tmp_path / "a.jsonl").write_text(lines(late))
    source = penstock.open(tmp_path)
    columns = source.materialize({"n": "int64"}, on_error="mask")
    for ids in ([1, 2], [1233, 1234]):
        assert same(columns.read(ids, ["n"]), source.read(ids, ["n"]))


def test_null_where_there_may_be_none_is_the_error_of_decoding(tmp_path: Path) -> None:
    source = opened(tmp_path, "jsonl")
    schema = pa.schema([pa.field("maybe", pa.int32(), nullable=False), ("id", pa.int64())])
    columns = source.materialize(schema)
    assert same(columns.read([1, 2], schema), source.read([1, 2], schema))
    assert outcome(lambda: columns.read([1, 5], schema)) == outcome(
        lambda: source.read([1, 5], schema)
    )
    with pytest.raises(SchemaMismatchError):
        columns.read([1, 5], schema)


def test_a_second_call_adds_fields_and_decodes_only_those(tmp_path: Path) -> None:
    source = opened(tmp_path, "jsonl")
    first = source.materialize({"id": "int64"})
    created = {meta.path: meta.created for meta, *_ in list_columns_of(source)}
    # To decode "id" again would fail now.
    both = first.materialize({"name": "string"})
    assert isinstance(both, Materialized)
    assert {spec.path for spec in both.specs} == {"id", "name"}
    again = {meta.path: meta.created for meta, *_ in list_columns_of(source)}
    assert again["id"] == created["id"]
    assert same(both.read([4], {"name": "string", "id": "int64"}),
                source.read([4], {"name": "string", "id": "int64"}))  # fmt: skip
    wider = both.materialize({"id": "int16"})
    assert isinstance(wider, Materialized)
    assert len(wider.specs) == 3
    assert same(wider.read([4], {"id": "int16"}), source.read([4], {"id": "int16"}))


def views(source: Source) -> dict[str, Source]:
    train, rest = source.split(train=0.7, rest=0.3)
    return {
        "taken": source.take([9, 3, 3, 250]),
        "part": train,
        "matching": source.where("id < 100"),
        "view of a view": rest.take([2, 1]),
        "concatenated": source.take([5, 1]) + rest,
    }


@pytest.mark.parametrize("what", ["taken", "part", "matching", "view of a view", "concatenated"])
def test_a_view_is_the_same_view_over_columns(what: str, tmp_path: Path) -> None:
    source = opened(tmp_path, "jsonl")
    view = views(source)[what]
    columns = view.materialize(WHOLE)
    assert type(columns) is type(view)
    assert columns.fingerprint == view.fingerprint
    ids = np.arange(len(view))[::-1]
    assert same(columns.read(ids, WHOLE), view.read(ids, WHOLE))
    assert columns[:] == view[:]
    copy = pickle.loads(pickle.dumps(columns))
    assert same(copy.read(ids, WHOLE), view.read(ids, WHOLE))
    # Columns have all records: they serve every other view, too.
    assert columns_of(source, typed_schema(WHOLE)) is not None
    assert len({column.folder for column in list_columns_of(view)}) == 1


def test_sources_put_together_are_read_from_columns_of_their_own(tmp_path: Path) -> None:
    one, other = opened(tmp_path / "a", "jsonl"), opened(tmp_path / "b", "parquet", 40)
    view = (one + other).materialize(WHOLE)
    ids = [310, 2, 339, 299, 2]
    assert same(view.read(ids, WHOLE), (one + other).read(ids, WHOLE))
    assert same(view.read([], WHOLE), (one + other).read([], WHOLE))
    for source in (one, other):
        assert columns_of(source, typed_schema(WHOLE)) is not None
    with pytest.raises(OptionError, match="come from 2"):
        (one + other).materialize(WHOLE, path=tmp_path / "c")


def test_a_name_with_a_dot_is_a_path_in_one_source_only(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines([{"user.age": 1, "user": {"age": 2}}]))
    (tmp_path / "b.jsonl").write_text(lines([{"user": {"age": 3}}]))
    both = penstock.open(tmp_path / "a.jsonl") + penstock.open(tmp_path / "b.jsonl")
    fields = {"user.age": "int8"}
    assert same(both.materialize(fields).read([0, 1], fields), both.read([0, 1], fields))


def test_columns_of_a_name_with_a_dot_are_what_each_record_has(tmp_path: Path) -> None:
    some = [{"user.age": 1, "user": "x"}, {"user": {"age": 2}}, {"user.age": None, "user": "y"}]
    (tmp_path / "a.jsonl").write_text(lines([*some, {}] * 50))
    source = penstock.open(tmp_path)
    fields = {"user.age": "int8"}
    every = np.arange(200)
    columns = source.materialize(fields)
    assert source.read(every, fields)["user.age"].to_pylist() == [1, 2, None, None] * 50
    assert same(columns.read(every, fields), source.read(every, fields))


@pytest.mark.parametrize("what", ["list", "table"])
def test_records_in_memory_have_columns_in_the_cache(what: str, own_cache: Path) -> None:
    some = records(0, 50)
    source = penstock.open(some if what == "list" else pa.Table.from_pylist(some))
    columns = source.materialize(WHOLE)
    assert same(columns.read([9, 3], WHOLE), source.read([9, 3], WHOLE))
    assert len(list((own_cache / "columns").iterdir())) == 1
    again = penstock.open(some if what == "list" else pa.Table.from_pylist(some))
    assert columns_of(again, typed_schema(WHOLE)) is not None
    other = penstock.open(some[:-1])
    assert columns_of(other, typed_schema(WHOLE)) is None


def test_what_nobody_knows_to_be_unchanged_is_refused() -> None:
    class Squares:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, number: int) -> dict[str, int]:
            return {"n": number**2}

    with pytest.raises(OptionError, match="a map-style dataset does not say"):
        penstock.open(Squares()).materialize({"n": "int64"})


def test_sources_without_records_or_fields_are_themselves(tmp_path: Path) -> None:
    empty = penstock.open(pa.table({"id": pa.array([], pa.int64())}))
    assert same(empty.materialize({"id": "int8"}).read([], {"id": "int8"}),
                empty.read([], {"id": "int8"}))  # fmt: skip
    source = opened(tmp_path, "jsonl")
    assert source.materialize({}).read([1], {}).num_rows == 1
    assert not (tmp_path / "index" / "columns").exists()


def test_options_that_cannot_work_are_told(tmp_path: Path) -> None:
    source = opened(tmp_path, "jsonl")
    with pytest.raises(OptionError, match="on_error='ignore'"):
        source.materialize(FIELDS, on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="cannot be kept as a column"):
        source.materialize({"name": pa.dictionary(pa.int8(), pa.string())})
    with pytest.raises(OptionError, match="workers"):
        source.materialize(FIELDS, workers=-1)


def test_a_misspelt_field_is_told_and_null(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = opened(tmp_path, "jsonl")
    with caplog.at_level(logging.WARNING, "penstock.datasets"):
        columns = source.materialize({"pirce": "float32"})
    assert "did you mean 'price'?" in caplog.text
    assert columns.read([0], {"pirce": "float32"}).to_pydict() == {"pirce": [None]}


def test_another_encoding_has_columns_of_its_own(tmp_path: Path, own_cache: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes('{"name": "é"}\n'.encode("latin-1"))
    create_default_jsonl_indexer(tmp_path)()
    latin, hungarian = (
        JsonlDataset.create_from_index_on_filesystem(tmp_path, text_encoding=name)
        for name in ("latin-1", "cp437")
    )
    for source in (latin, hungarian, latin):
        columns = source.materialize(["name"])
        assert columns.read([0], ["name"]).to_pydict() == {"name": [source[0]["name"]]}
    assert latin[0] != hungarian[0]
    assert len(list((own_cache / "columns").iterdir())) == 2


def test_columns_lie_where_one_says(tmp_path: Path) -> None:
    source = opened(tmp_path / "data", "jsonl")
    place = tmp_path / "here" / "columns"
    columns = source.materialize(WHOLE, path=place)
    assert same(columns.read([8], WHOLE), source.read([8], WHOLE))
    assert not (tmp_path / "data" / "index" / "columns").exists()
    assert {column.folder for column in list_columns_of(source, place)} == {str(place)}
    assert columns_of(source, typed_schema(WHOLE)) is None
    assert columns_of(source, typed_schema(WHOLE), place) is not None


def test_columns_are_listed_and_dropped(tmp_path: Path) -> None:
    source = opened(tmp_path, "jsonl")
    assert list_columns_of(source) == drop_columns_of(source) == []
    columns = source.materialize(WHOLE)
    listed = list_columns_of(source)
    assert {column.meta.path for column in listed} == set(WHOLE)
    assert not any(column.stale for column in listed)
    assert {meta.path for meta in drop_columns_of(source, ["id", "items[].price"])} == {
        "id", "items[].price",
    }  # fmt: skip
    assert {column.meta.path for column in list_columns_of(source)} == set(WHOLE) - {
        "id", "items[].price",
    }  # fmt: skip
    # Whoever uses one keeps it.
    assert same(columns.read([8, 9], WHOLE), source.read([8, 9], WHOLE))
    drop_columns_of(columns)
    assert list_columns_of(source) == []


def test_an_estimate_comes_near_and_costs_nothing_for_what_is_there(tmp_path: Path) -> None:
    source = opened(tmp_path, "jsonl", 3000)
    cost = estimate_columns(source, typed_schema(WHOLE))
    assert cost.records == 3000
    assert cost.seconds > 0
    assert cost.folder == str(tmp_path / "index" / "columns")
    source.materialize(WHOLE)
    used = sum(column.meta.bytes for column in list_columns_of(source))
    assert used / 3 < cost.bytes < used * 3
    assert estimate_columns(source, typed_schema(WHOLE)).records == 0


def test_a_bar_of_ones_own_is_told_of_every_record(tmp_path: Path) -> None:
    class View:
        total = 0

        def add(self, count: int) -> None:
            self.total += count

    source = opened(tmp_path, "jsonl")
    view = View()
    source.materialize(FIELDS, progress=view)
    assert view.total == 300


def test_lists_of_one_path_share_their_offsets(tmp_path: Path) -> None:
    source = opened(tmp_path, "jsonl")
    fields = {"items[].price": "list<float32>", "items[].id": "list<int8>"}
    source.materialize(fields)
    offsets = [path.name for path in (tmp_path / "index" / "columns").glob("*-offsets-*")]
    assert len(offsets) == 1


def test_equal_sizes_and_ends_do_not_hide_a_change_in_between(tmp_path: Path) -> None:
    some = [{"id": n, "text": "x" * 60} for n in range(2000)]
    write(tmp_path, "jsonl", "a", [{**record(0), **one} for one in some])
    source = penstock.open(tmp_path)
    source.materialize({"id": "int64"})
    path = tmp_path / "a.jsonl"
    path.write_text(path.read_text().replace('"id": 1000,', '"id": 9999,', 1))
    again = penstock.open(tmp_path)
    assert again.fingerprint == source.fingerprint
    assert json.loads(again.raw(1000))["id"] == 9999
    assert columns_of(again, typed_schema({"id": "int64"})) is None
    columns = again.materialize({"id": "int64"})
    assert columns.read([1000], {"id": "int64"}).to_pydict() == {"id": [9999]}
    assert columns_of(again, typed_schema({"id": "int64"})) is not None


def test_a_file_that_is_being_appended_to_keeps_its_columns(tmp_path: Path) -> None:
    source = opened(tmp_path, "jsonl")
    source.materialize(FIELDS)
    with (tmp_path / "part-00001.jsonl").open("a") as file:
        file.write(lines(records(300, 310)))
    columns = columns_of(source, typed_schema(FIELDS))
    assert columns is not None
    assert same(columns.read([299, 3], FIELDS), source.read([299, 3], FIELDS))
