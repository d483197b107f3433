"""What a loader decides about columns, what it says about that, and what it does if it cannot."""

from __future__ import annotations

import json
import logging
import shlex
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock import DataLoader
from penstock.cli._typed_fields import parse_fields
from penstock.datasets import CsvRows, drop_columns_of, list_columns_of, typed_schema
from penstock.errors import BadRecordsError, OptionError, SchemaMismatchError, StorageError
from penstock.loading._column_choice import command_for
from penstock.order import Order
from tests.cli.commands import succeed
from tests.loading.samples import FLAT_TYPES, TYPES, MapStyle, flat, make, record, write_jsonl
from tests.unprivileged import as_nobody, folder_for_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.datasets import Source

IN_CALLER = "the caller's own thread: to gather columns takes less time than to hand a batch over"
IN_THREAD = "1 thread of this process: the next batches are made while one is used"


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "a.jsonl", 100)


def decided(loader: DataLoader) -> tuple[str, str]:
    decisions = loader.explain()
    assert isinstance(decisions, dict)
    return decisions["columns"], decisions["workers"]


class TestToldWhy:
    def test_a_column_that_vanished_before_the_first_batch_is_not_said_to_be_gathered(
        self, lines: Path
    ) -> None:
        source = penstock.open(lines)
        fields = {"n": "int64", "x": "float32"}
        source.materialize(fields)
        loader, begun = (DataLoader(source, fields, batch_size=10) for _ in range(2))
        assert decided(loader)[0] == "gathered; they were there"
        next(iter(begun))
        drop_columns_of(source, ["x"])
        told = decided(loader)[0]
        assert told.startswith("gathered; they were there; but some fields are decoded anew")
        assert told.endswith("(x)")
        drop_columns_of(source)
        assert decided(loader)[0].startswith("decoded anew for each batch: columns are gone")
        assert decided(begun)[0] == "gathered; they were there"  # What is mapped stays.

    @pytest.mark.parametrize(("columns", "records"), [(2_000, 20), (101, 999), (1_001, 1_000)])
    def test_very_many_columns_are_not_made_unasked(
        self, columns: int, records: int, tmp_path: Path
    ) -> None:
        path, fields = tmp_path / "a.jsonl", [f"f{number}" for number in range(columns)]
        lines = [json.dumps(dict.fromkeys(fields, row)) for row in range(records)]
        path.write_text("\n".join(lines))
        loader = DataLoader(path, dict.fromkeys(fields, "int64"), batch_size=10)
        told = (
            f"decoded anew for each batch: {columns:,} columns of {records:,} records are more "
            "files than they are worth. To make them: materialize=True"
        )
        assert decided(loader) == (told, IN_THREAD)
        run = iter(loader)
        assert [next(run)[fields[-1]].tolist() for _ in "ab"] == [[*range(10)], [*range(10, 20)]]
        assert decided(loader) == (told, IN_THREAD)
        assert list_columns_of(loader.source) == []

    def test_they_are_made_with_the_first_batch_and_then_there(self, lines: Path) -> None:
        loader = DataLoader(lines, TYPES, batch_size=10, shuffle=True)
        columns, workers = decided(loader)
        assert columns.startswith("made with the first batch: about 0.")
        assert columns.endswith("s once, and 0 MB")
        assert workers == IN_CALLER
        assert list_columns_of(loader.source) == []
        first = flat(loader)
        columns, workers = decided(loader)
        assert columns.startswith("gathered; they were made in ")
        assert workers == IN_CALLER
        assert {column.meta.path for column in list_columns_of(loader.source)} == {*TYPES}
        other = DataLoader(lines, TYPES, batch_size=10, shuffle=True)
        assert decided(other) == ("gathered; they were there", IN_CALLER)
        assert flat(other) == first

    def test_of_other_fields_or_types_they_are_others(self, lines: Path) -> None:
        list(DataLoader(lines, {"n": "int64"}, batch_size=10))
        for types in ({"n": "int32"}, {"n": "int64", "x": "float32"}):
            columns, _ = decided(DataLoader(lines, types, batch_size=10))
            assert columns.startswith("made with the first batch")
        columns, _ = decided(DataLoader(lines, {"n": "int64 = -1"}, batch_size=10))
        assert columns == "gathered; they were there"  # Null is another matter than the type.

    def test_the_source_has_them(self, lines: Path, tmp_path: Path) -> None:
        source = penstock.open(lines)
        given = source.materialize(TYPES, path=tmp_path / "elsewhere")
        for view in (given, given.split(a=0.5, b=0.5)[1], given + given.take([3])):
            for materialize in ("auto", True, False):
                loader = DataLoader(view, TYPES, batch_size=9, materialize=materialize)
                assert decided(loader) == ("gathered; the source has them", IN_CALLER)
        expected = [batch["tags"].values.tolist() for batch in plain(source, TYPES)]
        found = DataLoader(given, TYPES, batch_size=9, shuffle=True, seed=1)
        assert [batch["tags"].values.tolist() for batch in found] == expected
        assert list_columns_of(source) == []  # Nothing was made beside the index.
        columns, _ = decided(DataLoader(given, {**TYPES, "text": "string"}, batch_size=9))
        assert columns.startswith("made with the first batch")

    def test_nobody_wants_them(self, lines: Path) -> None:
        loader = DataLoader(lines, TYPES, batch_size=10, materialize=False)
        assert decided(loader) == ("decoded anew for each batch: materialize=False", IN_THREAD)
        list(loader)
        assert list_columns_of(loader.source) == []
        list(DataLoader(lines, TYPES, batch_size=10))
        again = DataLoader(lines, TYPES, batch_size=10, materialize=False)
        assert decided(again)[0] == "decoded anew for each batch: materialize=False"

    @pytest.mark.parametrize("kind", ["memory", "table", "map-style"])
    def test_records_in_memory_need_none(self, kind: str, tmp_path: Path, own_cache: Path) -> None:
        loader = DataLoader(make(kind, tmp_path, 50), FLAT_TYPES, batch_size=10)
        expected = "decoded anew for each batch: the records are in memory"
        assert decided(loader) == (expected, IN_CALLER if kind == "table" else IN_THREAD)
        list(loader)
        assert not (own_cache / "columns").exists()

    @pytest.mark.parametrize("encode", [None, len, "arrow"], ids=str)
    def test_nobody_named_fields_with_types(self, encode: Any, lines: Path) -> None:
        options: dict[str, Any] = {"output": "arrow"} if encode == "arrow" else {"encode": encode}
        loader = DataLoader(lines, batch_size=10, **options)
        told = "none: batches are records as they are, or all their fields"
        assert decided(loader) == (told, IN_THREAD)
        with pytest.raises(OptionError, match="materialize=True needs to know the fields"):
            DataLoader(lines, batch_size=10, materialize=True, **options)

    def test_names_have_the_types_of_the_schema(self, lines: Path) -> None:
        loader = DataLoader(lines, ["n", "tags"], batch_size=10)
        list(loader)
        assert decided(loader)[0].startswith("gathered")

    def test_whoever_asks_for_them_gets_them_also_of_memory(self, own_cache: Path) -> None:
        records = [record(number) for number in range(50)]
        loader = DataLoader(records, TYPES, batch_size=10, materialize=True, shuffle=True)
        assert decided(loader) == ("made with the first batch: materialize=True", IN_CALLER)
        numbers = [number for batch in loader for number in batch["n"].tolist()]
        assert numbers == Order(50).positions(0, 50).tolist()
        assert (own_cache / "columns").exists()
        loader = DataLoader(MapStyle(records), FLAT_TYPES, batch_size=10, materialize=True)
        with pytest.raises(OptionError, match="map-style"):
            next(iter(loader))

    @pytest.mark.parametrize(("workers", "told"), [(0, "num_workers=0"), (2, "num_workers=2; ")])
    def test_who_makes_batches_is_decided_by_whoever_says_so(
        self, workers: int, told: str, lines: Path
    ) -> None:
        loader = DataLoader(lines, TYPES, batch_size=10, num_workers=workers)
        assert told in decided(loader)[1]
        assert len(list(loader)) == 10
        assert told in decided(loader)[1]

    def test_blocks_are_not_kept_for_what_is_gathered(self, tmp_path: Path) -> None:
        loader = DataLoader(make("zst", tmp_path, 50), TYPES, batch_size=10, shuffle=True)
        assert loader.explain()["blocks"] == "read as they are needed"
        list(loader)
        assert loader.explain()["blocks"] == "read as they are needed"


def plain(source: Source, types: dict[str, str]) -> DataLoader:
    return DataLoader(source, types, batch_size=9, shuffle=True, seed=1, materialize=False)


# What is too much to be done unasked. Rows that are all alike take nearly no room in a Parquet
# file, and a link to it none at all.

ROWS, TEXT = 10_000, "x" * 10_000


def much(folder: Path, total: int) -> Source:
    """Return a source whose texts have so many bytes in all."""
    folder.mkdir(parents=True)
    path = folder.parent / f"{folder.name}.file"
    columns = {"n": pa.array(np.zeros(ROWS, np.int64)), "text": [TEXT] * ROWS}
    pq.write_table(pa.table(columns), path, row_group_size=125)
    for number in range(-(-total // (len(TEXT) * ROWS))):
        (folder / f"{number}.parquet").symlink_to(path)
    return penstock.open(folder)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """Texts that would take more than a minute to write."""
    return much(tmp_path_factory.mktemp("long") / "data", 30 * 10**9)


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for columns where little is free; a minute would fill a tenth of it."""
    places = [tmp_path, *(place for place in [Path("/dev/shm")] if place.is_dir())]
    place = min(places, key=lambda one: shutil.disk_usage(one).free)
    if shutil.disk_usage(place).free > 150 * 10**9:
        pytest.skip("a tenth of the free disk takes more than a minute to write")
    folder = place / f"penstock-test-{tmp_path.parent.name}-{tmp_path.name}"
    monkeypatch.setenv("PENSTOCK_CACHE", str(folder))
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


class TestTooMuch:
    def test_what_takes_long_is_decoded_and_the_command_is_told(
        self, long: Source, caplog: pytest.LogCaptureFixture
    ) -> None:
        loader = DataLoader(long, {"text": "string"}, batch_size=4, shuffle=True)
        with caplog.at_level(logging.INFO, "penstock.loading"):
            columns, workers = decided(loader)
        place = long.files[0].rpartition("/")[0]
        command = f"penstock materialize {place} text:string"
        assert columns.startswith("decoded anew for each batch: columns take about ")
        assert columns.endswith(f" MB, more than 60 s. To make them: {command}")
        assert workers == IN_THREAD
        (told,) = [one for one in caplog.records if "penstock materialize" in one.getMessage()]
        assert told.levelno == logging.INFO
        assert told.getMessage().endswith(command)
        run = iter(loader)
        assert next(run)["text"] == [TEXT] * 4
        run.close()  # type: ignore[attr-defined]
        assert list_columns_of(long) == []

    def test_what_takes_much_room_is_decoded_and_the_command_is_told(
        self, small_disk: Path, tmp_path: Path
    ) -> None:
        source = much(tmp_path / "wide", int(0.12 * shutil.disk_usage(small_disk).free))
        loader = DataLoader(source, {"text": "string"}, batch_size=4)
        columns, workers = decided(loader)
        command = f"penstock materialize {tmp_path / 'wide'} text:string"
        assert columns.endswith(f" MB, more than 10% of the free disk. To make them: {command}")
        assert workers == IN_THREAD
        run = iter(loader)
        assert next(run)["text"] == [TEXT] * 4
        run.close()  # type: ignore[attr-defined]
        assert list_columns_of(source) == []

    def test_gzip_among_it_is_not_shuffled_unasked(self, long: Source, tmp_path: Path) -> None:
        source = make("gz", tmp_path, 10) + long
        types = {"n": "int64", "text": "string"}
        loader = DataLoader(source, types, batch_size=4, shuffle=True)
        told = r"a\.jsonl\.gz is .*gzip.*more than 60 s\. Make them: materialize=True, or once for"
        for look in (loader.explain, partial(next, iter(loader))):
            with pytest.raises(OptionError, match=told) as raised:
                look()
        commands = str(raised.value).partition("once for all: ")[2]
        assert commands.split(" && ") == [
            f"penstock materialize {path} n:int64,text:string"
            for path in (tmp_path / "a.jsonl.gz", long.files[0].rpartition("/")[0])
        ]
        assert loader.state_dict()["position"] == 0
        in_order = DataLoader(source, types, batch_size=4)
        assert next(iter(in_order))["n"].tolist() == [0, 1, 2, 3]


class TestTheCommand:
    @pytest.mark.parametrize(
        "kind", ["jsonl", "gz", "zst", "csv", "csv-files", "parquet", "parquet-files", "split"]
    )
    def test_makes_the_columns_that_the_loader_finds(self, kind: str, tmp_path: Path) -> None:
        self.check(make(kind, tmp_path, 20))

    @pytest.mark.parametrize("kind", ["jsonl", "zst", "csv", "csv-files", "parquet"])
    def test_names_the_folder_that_was_opened(self, kind: str, tmp_path: Path) -> None:
        below = tmp_path / "my data" / "all of it"
        below.mkdir(parents=True)
        make(kind, below, 20)
        self.check(penstock.open(tmp_path / "my data"))

    def check(self, source: Source) -> None:
        """Do what the command says, and look for the columns."""
        schema = pa.schema({"n": pa.int64(), "x": pa.float32()})
        program, verb, path, fields = shlex.split(command_for(source, schema))
        assert (program, verb) == ("penstock", "materialize")
        assert fields == "n:int64,x:float32"
        assert "2 columns" in succeed(verb, path, fields)
        loader = DataLoader(source, FLAT_TYPES, batch_size=4)
        assert decided(loader)[0] == "gathered; they were there"

    def test_spells_every_type_as_it_is_read(self, lines: Path) -> None:
        schema = pa.schema(
            {
                "tags": pa.list_(pa.int16(), 3),
                "user.when": pa.timestamp("us", "UTC"),
                "items[].at": pa.list_(pa.list_(pa.list_(pa.float32(), 2))),
                "text": pa.large_string(),
            }
        )
        *_, path, fields = shlex.split(command_for(penstock.open(lines), schema))
        assert fields == (
            "tags:int16[3],user.when:timestamp[us, tz=UTC],items[].at:list<list<float32[2]>>,"
            "text:large_string"
        )
        assert path == str(lines)
        assert typed_schema(parse_fields(fields)) == schema
        exact = pa.schema({"x": pa.decimal128(9, 2)})
        assert command_for(penstock.open(lines), exact) == "source.materialize(encode.fields)"

    def test_of_several_sources_has_one_for_each(self, tmp_path: Path) -> None:
        source = make("joined", tmp_path, 20)
        text = command_for(source + source, pa.schema({"n": pa.int64()}))
        assert text.split(" && ") == [
            f"penstock materialize {tmp_path / name} n:int64" for name in ("a.jsonl", "b.jsonl")
        ]

    @pytest.mark.parametrize("what", ["list", "pattern", "index", "dialect", "name", "memory"])
    def test_is_python_where_no_command_would_find_them(self, what: str, tmp_path: Path) -> None:
        paths = [str(write_jsonl(tmp_path / f"{name}.jsonl", 3)) for name in "ab"]
        (tmp_path / "odd.csv").write_text("n;x\n1;2\n")
        sources = {
            "list": lambda: penstock.open(paths),
            "pattern": lambda: penstock.open(str(tmp_path / "*.jsonl")),
            "index": lambda: penstock.open(paths[0], index=tmp_path / "elsewhere"),
            "dialect": lambda: CsvRows(tmp_path / "odd.csv", delimiter=","),
            "name": lambda: penstock.open(paths[0]),
            "memory": lambda: penstock.open([{"n": 1}]) + penstock.open(paths[0]),
        }
        name = "n:m" if what == "name" else "n"
        text = command_for(sources[what](), pa.schema({name: pa.list_(pa.int8())}))
        assert text == f"source.materialize({{'{name}': 'list<int8>'}})"


class TestCannotBeMade:
    """Columns that nobody asked for are never the reason that a run fails."""

    def test_more_records_are_bad_than_are_set_aside(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        texts = [json.dumps({"n": n if n < 450 else "many"}) for n in range(600)]
        path = tmp_path / "a.jsonl"
        path.write_text("\n".join(texts) + "\n")
        options: dict[str, Any] = {"batch_size": 50}
        loader = DataLoader(path, {"n": "int64"}, **options)
        batches = []
        with pytest.raises(SchemaMismatchError, match="record 450"):
            batches += iter(loader)
        assert len(batches) == 9
        columns, workers = decided(loader)
        assert columns.startswith("decoded anew for each batch: columns cannot be made. 101 rec")
        assert workers == IN_THREAD
        (told,) = [one for one in caplog.messages if "columns cannot be made" in one]
        assert "materialize=False does not try" in told
        assert list_columns_of(loader.source) == []
        asked = DataLoader(path, {"n": "int64"}, materialize=True, **options)
        with pytest.raises(BadRecordsError, match="at most 100 are set aside"):
            next(iter(asked))
        assert asked.state_dict()["position"] == 0

    def test_a_type_that_no_column_has(self, lines: Path) -> None:
        def encode(columns: pa.RecordBatch) -> list[Any]:
            return columns["n"].to_pylist()

        encode.fields = {"n": pa.map_(pa.string(), pa.int8())}  # type: ignore[attr-defined]
        lines.write_text('{"n": {"a": 1}}\n{"n": null}\n')
        loader = DataLoader(lines, encode, batch_size=2)
        assert list(loader) == [[[("a", 1)], None]]
        assert "columns cannot be made. field 'n': values of type map" in decided(loader)[0]
        with pytest.raises(OptionError, match="cannot be kept as a column"):
            next(iter(DataLoader(lines, encode, batch_size=2, materialize=True)))

    def test_files_together_with_what_nobody_knows_to_be_unchanged(self, lines: Path) -> None:
        source = penstock.open(lines) + penstock.open(MapStyle([record(100)]))
        loader = DataLoader(source, FLAT_TYPES, batch_size=101)
        assert flat(loader) == list(range(101))
        assert "columns cannot be made. " in decided(loader)[0]

    def test_a_folder_that_may_not_be_written_to(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with folder_for_all() as folder:
            monkeypatch.setenv("PENSTOCK_CACHE", str(folder / "cache"))
            source = penstock.open(write_jsonl(folder / "a.jsonl", 20))
            (folder / "cache").chmod(0o755)
            list(DataLoader(source, FLAT_TYPES, batch_size=7, materialize=False))  # Imports.
            numbers, columns, told = as_nobody(partial(run_unprivileged, source))
        assert numbers == list(range(20))
        assert columns.startswith("decoded anew for each batch: columns cannot be made. cannot wri")
        assert "PENSTOCK_CACHE" in told


def run_unprivileged(source: Source) -> tuple[list[int], str, str]:
    loader = DataLoader(source, FLAT_TYPES, batch_size=7)
    numbers = flat(loader)
    asked = DataLoader(source, FLAT_TYPES, batch_size=7, materialize=True)
    with pytest.raises(StorageError) as raised:
        next(iter(asked))
    return numbers, decided(loader)[0], str(raised.value)
