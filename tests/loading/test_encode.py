"""What may be given as `encode`, what comes of it, and what is said of what cannot work."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import penstock
from penstock import DataLoader
from penstock.batch import Batch, BatchPosition, FieldEncoder, SimpleEncoder
from penstock.errors import MalformedLineError, OptionError, SchemaMismatchError
from penstock.index import create_default_jsonl_indexer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.datasets import Source
    from tests.servers.s3_server import S3Server

WORKERS = (0, "auto", 2)
RECORDS: list[dict[str, Any]] = [
    {"price": n / 4, "tags": [n], "c": "abc"[n % 3], "user": {"age": n}} for n in range(12)
]


def write(path: Path, lines: list[dict[str, Any] | str]) -> Source:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return penstock.open(path, progress=False)


def parquet(folder: Path) -> Source:
    pq.write_table(pa.Table.from_pylist(RECORDS), folder / "a.parquet")
    return penstock.open(folder / "a.parquet")


def comma(folder: Path) -> Source:
    text = "price,c\n" + "".join(f"{one['price']},{one['c']}\n" for one in RECORDS)
    (folder / "a.csv").write_text(text, encoding="utf-8")
    return penstock.open(folder / "a.csv", progress=False)


CERTAIN: dict[str, Callable[[Path], Source]] = {
    "parquet": parquet,
    "csv": comma,
    "list": lambda _: penstock.open(RECORDS),
    "table": lambda _: penstock.open(pa.Table.from_pylist(RECORDS)),
    "view": lambda _: penstock.open(RECORDS).take([3, 4]),
    "sum": lambda folder: parquet(folder) + penstock.open(RECORDS),
}


class TestMisspelt:
    @pytest.mark.parametrize("kind", ["float32", "int64", "list<int64>", "string", "category"])
    @pytest.mark.parametrize("source", CERTAIN)
    def test_is_refused_with_the_closest_names_where_the_schema_is_known(
        self, source: str, kind: str, tmp_path: Path
    ) -> None:
        opened = CERTAIN[source](tmp_path)
        with pytest.raises(OptionError, match=r"no field 'pirce' .*did you mean 'price'\?"):
            DataLoader(opened, {"price": "float32", "pirce": kind}, batch_size=4)
        assert len(DataLoader(opened, {"price": "float32"}, batch_size=4)) == -(-len(opened) // 4)

    @pytest.mark.parametrize("path", ["user.agee", "usr.age", "user[].age", "tags[].x"])
    @pytest.mark.parametrize("source", ["parquet", "list", "table"])
    def test_paths_are_looked_for_too(self, source: str, path: str, tmp_path: Path) -> None:
        opened = CERTAIN[source](tmp_path)
        with pytest.raises(OptionError, match="there is no field"):
            DataLoader(opened, {path: "float32"}, batch_size=4)
        (batch,) = DataLoader(opened, {"user.age": "int64"}, batch_size=12)
        assert batch["user.age"].tolist() == list(range(12))

    @pytest.mark.parametrize("path", ["user.agee", "tags[].nam"])
    def test_null_and_empty_lists_of_some_records_hide_no_path(
        self, path: str, tmp_path: Path
    ) -> None:
        records = [{"user": None, "tags": []}, {"user": {"age": 1}, "tags": [{"name": "x"}]}]
        for opened in (records, write(tmp_path / "a.jsonl", records)):
            with pytest.raises(OptionError, match=f"{path.partition('[')[0][:4]}.*did you mean"):
                DataLoader(opened, {path: "list<int64>"}, batch_size=2)

    def test_what_may_be_inside_of_null_or_of_empty_lists_is_not_refused(self) -> None:
        records = [{"user": None, "items": []}, {"user": None, "items": None}]
        types = {"user.age": "float32", "items[].id": "list<int64>"}
        (batch,) = DataLoader(records, types, batch_size=2)
        assert batch["items[].id"].tolist() == [[], []]
        table = pa.table({"user": pa.nulls(2), "items": [[], None]})
        assert len(next(iter(DataLoader(table, types, batch_size=2)))) == 2

    def test_a_field_of_a_late_record_of_a_list_is_there(self) -> None:
        records = [{"a": 1}] * 2000 + [{"a": 1, "late": 2.0}]
        batches = list(DataLoader(records, {"late": "float32"}, batch_size=1000))
        assert batches[-1]["late"].tolist() == [2.0]

    @pytest.mark.parametrize("kind", ["float32", "int64", "list<int64>", "category", "json"])
    def test_is_refused_where_only_some_lines_were_looked_at(
        self, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        source = write(tmp_path / "a.jsonl", ['{"price": ', *RECORDS])
        with pytest.raises(OptionError, match=r"'pirce': did you mean 'price'\?") as failure:
            DataLoader(source, {"pirce": kind, "price": "float32"}, batch_size=4)
        # The remedy works: the field may be missing in all records, and is.
        assert failure.value.remedy.endswith(f"{{'pirce': '{kind}?'}}")
        types = {"pirce": f"{kind}?", "price": "float32", "user.age": "int64 = 0"}
        loader = DataLoader(source, types, batch_size=4, on_error="mask", materialize=False)
        (told,) = [one for one in caplog.messages if "pirce" in one]
        assert told.startswith("no record that was looked at has a field 'pirce': did you mean 'pr")
        assert len(list(loader)) == 4

    @pytest.mark.parametrize("text", ["string", "text", "binary", "int64[:5]", "float32[3]"])
    @pytest.mark.parametrize("source", CERTAIN)
    def test_a_sign_allows_it_in_every_source(self, source: str, text: str, tmp_path: Path) -> None:
        (batch, *_) = DataLoader(CERTAIN[source](tmp_path), {"pirce": f"{text}?"}, batch_size=2)
        assert len(batch["pirce"]) == 2

    def test_a_default_allows_it(self, tmp_path: Path) -> None:
        source = write(tmp_path / "a.jsonl", [*RECORDS])
        (batch,) = DataLoader(source, {"gone": "int64 = -1", "no": 'string = "-"'}, batch_size=12)
        assert batch["gone"].tolist() == [-1] * 12
        assert batch["no"] == ["-"] * 12

    def test_a_field_that_only_the_profile_knows_is_there(self, tmp_path: Path) -> None:
        write(tmp_path / "a.jsonl", [*RECORDS * 300, {"late": 1}, *RECORDS * 300])
        create_default_jsonl_indexer(tmp_path, profile=True)()
        source = penstock.open(tmp_path)
        assert "late" not in source.schema.names
        loader = DataLoader(source, {"late": "float32"}, batch_size=3601, materialize=False)
        assert next(iter(loader))["late"][-1] == 1

    @pytest.mark.parametrize("workers", WORKERS)
    def test_of_remote_lines_is_refused_with_the_first_batch(
        self, s3_server: S3Server, bucket: str, caplog: pytest.LogCaptureFixture, workers: Any
    ) -> None:
        text = "".join(json.dumps(one) + "\n" for one in RECORDS)
        s3_server.put(bucket, "set/a.jsonl", text.encode())
        source = penstock.open(f"s3://{bucket}/set", storage_options=s3_server.storage_options)
        types = {"pirce": "float32", "price": "float32"}
        loader = DataLoader(source, types, batch_size=4, num_workers=workers)
        with pytest.raises(OptionError, match=r"'pirce': did you mean 'price'\?"):
            next(iter(loader))
        types["pirce"] = "float32?"
        assert len(list(DataLoader(source, types, batch_size=4, num_workers=0))) == 3
        (told,) = [one for one in caplog.messages if "price" in one]
        assert told.startswith("no record that was looked at has a field 'pirce': did you mean 'pr")

    @pytest.mark.parametrize("workers", WORKERS)
    def test_the_error_about_its_null_says_that_there_is_no_such_field(
        self, tmp_path: Path, workers: Any
    ) -> None:
        # Arrow types have no sign for a field that may be missing: the loader only warns.
        source = write(tmp_path / "a.jsonl", [*RECORDS])
        loader = DataLoader(source, NeedsValues("pirce"), batch_size=4, num_workers=workers)
        with pytest.raises(SchemaMismatchError, match=r"'pirce' is null.*did you mean 'price'"):
            next(iter(loader))

    @pytest.mark.parametrize("fields", [{"pirce": pa.float32()}, ["pirce"]], ids=["types", "names"])
    def test_the_fields_of_callables_and_encoders_are_looked_for(self, fields: Any) -> None:
        def call(columns: Any) -> Any:
            return {"n": columns.num_rows}

        call.fields = fields  # type: ignore[attr-defined]
        with pytest.raises(OptionError, match="did you mean 'price'"):
            DataLoader(RECORDS, call, batch_size=4)
        with pytest.raises(OptionError, match="did you mean 'price'"):
            DataLoader(RECORDS, Doubling("pirce"), batch_size=4)
        with pytest.raises(OptionError, match="did you mean 'price'"):
            DataLoader(RECORDS, {"pirce": "float32"}, batch_size=4, output="arrow")


class NeedsValues:
    """An encoder that has no place for null."""

    def __init__(self, name: str) -> None:
        self.fields = {name: pa.float32()}

    def encode(self, columns: pa.RecordBatch, where: BatchPosition) -> Any:
        (name,) = self.fields
        if columns[name].null_count:
            record = int(where.ids[0])
            raise SchemaMismatchError(f"{name!r} is null", record=record, field=name)
        return Batch({})


class TestCategories:
    def test_have_the_same_codes_in_all_views_of_a_source(self, tmp_path: Path) -> None:
        whole = write(tmp_path / "a.jsonl", [*RECORDS])
        train, val = whole.split(train=0.5, val=0.5)
        views = [train, val, whole, whole.take([11, 0]), whole.where("c != 'a'"), val + train]
        for view in views:
            for batch in DataLoader(view, {"c": "category"}, batch_size=5):
                assert batch["c"].vocabulary == ["a", "b", "c"]
                expected = ["abc".index(view[number]["c"]) for number in batch.ids.tolist()]
                assert batch["c"].codes.tolist() == expected

    def test_have_the_codes_that_they_are_given(self) -> None:
        encoder = FieldEncoder({"c": "category", "price": "float32"}, {"c": ["c", "b"]})
        (batch,) = DataLoader(RECORDS, encoder, batch_size=12)
        assert batch["c"].vocabulary == ["c", "b"]
        assert batch["c"].codes.tolist() == [-1, 1, 0] * 4

    def test_without_vocabularies_an_encoder_gets_those_of_the_source(self) -> None:
        (batch,) = DataLoader(RECORDS, FieldEncoder({"c": "category"}), batch_size=12)
        assert batch["c"].vocabulary == ["a", "b", "c"]

    @pytest.mark.parametrize("bad", ['{"c": ', '{"c": 5}', '{"c": ["a"]}'])
    @pytest.mark.parametrize(("workers", "way"), [(0, True), ("auto", False), (2, False)])
    def test_are_masked_or_skipped_where_they_cannot_be_read(
        self, tmp_path: Path, bad: str, workers: Any, way: Any
    ) -> None:
        source = write(tmp_path / "a.jsonl", [*RECORDS[:5], bad, *RECORDS[5:]])
        types = {"c": "category"}
        options: dict[str, Any] = {"batch_size": 13, "num_workers": workers, "materialize": way}
        (batch,) = DataLoader(source, types, on_error="mask", **options)
        assert batch.valid.tolist() == [number != 5 for number in range(13)]
        assert batch["c"].vocabulary == ["a", "b", "c"]
        (batch,) = DataLoader(source, types, skip=[5], **options)
        assert batch["c"].codes.tolist() == [0, 1, 2] * 4
        with pytest.raises((MalformedLineError, SchemaMismatchError), match=r"skip=\[5\]"):
            list(DataLoader(source, types, **options))


class Told(Batch):
    """A batch of somebody's own."""

    def __init__(self, fields: Any, note: str, valid: Any = None) -> None:
        super().__init__(fields, valid=valid)
        self.note = note


class Doubling:
    """An encoder as its protocol says."""

    def __init__(self, name: str = "price", batch: Any = Batch) -> None:
        self.fields = {name: pa.float32()}
        self._batch = batch

    def encode(self, columns: pa.RecordBatch, where: BatchPosition) -> Any:
        (values,) = (column.to_numpy(zero_copy_only=False) for column in columns.columns)
        bad = np.flatnonzero(values > 100)
        if len(bad):
            record = int(where.ids[bad[0]])
            raise SchemaMismatchError(f"record {record}: too dear", record=record, field="twice")
        return self._batch({"twice": torch.tensor(values * 2)})


def told(fields: Any) -> Told:
    """Return a batch whose second row does not count."""
    return Told(fields, "mine", valid=torch.arange(len(fields["twice"])) != 1)


class Tokenizer:
    """A callable that happens to have a method `encode`."""

    def encode(self, text: str) -> list[int]:
        return [ord(sign) for sign in text]

    def __call__(self, columns: pa.RecordBatch) -> Any:
        return {"c": torch.tensor([self.encode(text) for text in columns["c"].to_pylist()])}


class TestEncoders:
    @pytest.mark.parametrize(
        ("workers", "way"), [(0, False), ("auto", False), (2, False), (0, True)]
    )
    def test_field_types_as_an_object_are_what_they_are_as_a_dict(
        self, tmp_path: Path, way: Any, workers: Any
    ) -> None:
        source = write(tmp_path / "a.jsonl", [*RECORDS, {"price": "dear"}, {"price": 1}])
        encoder = FieldEncoder({"price": "float32"})
        options: dict[str, Any] = {"batch_size": 14, "num_workers": workers, "materialize": way}
        (batch,) = DataLoader(source, encoder, on_error="mask", **options)
        assert batch.valid.tolist() == [number != 12 for number in range(14)]
        with pytest.raises(SchemaMismatchError, match=r"skip=\[12\].*on_error='mask'"):
            list(DataLoader(source, encoder, **options))

    @pytest.mark.parametrize("workers", WORKERS)
    def test_an_encoder_has_a_mask_and_remedies_too(self, workers: Any) -> None:
        records = [*RECORDS[:3], {"price": 500.0}]
        encoder = Doubling()
        assert isinstance(encoder, SimpleEncoder)
        (batch,) = DataLoader(records, encoder, batch_size=4, num_workers=workers, on_error="mask")
        assert batch.valid.tolist() == [True, True, True, False]
        assert batch["twice"][:3].tolist() == [0.0, 0.5, 1.0]
        with pytest.raises(SchemaMismatchError, match=r"record 3: too dear. .*skip=\[3\]"):
            list(DataLoader(records, encoder, batch_size=4, num_workers=workers))

    @pytest.mark.parametrize("workers", WORKERS)
    @pytest.mark.parametrize("device", [None, "cpu"])
    def test_a_batch_of_ones_own_class_stays_what_it_is(self, workers: Any, device: Any) -> None:
        batches = list(
            DataLoader(
                RECORDS,
                Doubling(batch=told),
                batch_size=4,
                rank=1,
                world_size=2,
                num_workers=workers,
                prefetch_to=device,
            )
        )
        assert [type(batch) for batch in batches] == [Told, Told]
        assert [batch.note for batch in batches] == ["mine"] * 2
        assert [batch.ids.tolist() for batch in batches] == [[4, 5, 6, 7], [10, 11]]
        assert batches[1].valid.tolist() == [True, False]

    def test_what_is_not_valid_by_either_does_not_count(self) -> None:
        records = [*RECORDS[:2], {"price": 500.0}, RECORDS[3]]
        loader = DataLoader(records, Doubling(batch=told), batch_size=4, on_error="mask")
        (batch,) = loader
        assert batch.valid.tolist() == [True, False, False, True]

    def test_the_very_object_is_handed_out(self) -> None:
        made: list[Any] = []

        def encode(columns: pa.RecordBatch) -> Any:
            made.append(Told({"n": torch.ones(columns.num_rows)}, "mine"))
            return made[-1]

        batches = list(DataLoader(RECORDS, encode, batch_size=4, num_workers=0))
        assert all(one is other for one, other in zip(batches, made, strict=True))
        assert batches[1].ids.tolist() == [4, 5, 6, 7]

    @pytest.mark.parametrize("workers", WORKERS)
    def test_what_has_a_method_encode_and_no_fields_is_called(self, workers: Any) -> None:
        batches = list(DataLoader(RECORDS, Tokenizer(), batch_size=6, num_workers=workers))
        assert batches[0]["c"].tolist() == [[97], [98], [99]] * 2

    @pytest.mark.parametrize("encode", [5, object()])
    def test_what_is_neither_is_refused(self, encode: Any) -> None:
        with pytest.raises(OptionError, match="expected field types"):
            DataLoader(RECORDS, encode, batch_size=4)


class TestCallables:
    @pytest.mark.parametrize("workers", WORKERS)
    def test_what_cannot_say_which_rows_count_is_refused_where_some_do_not(
        self, workers: Any
    ) -> None:
        def encode(columns: pa.RecordBatch) -> Any:
            return columns.num_rows

        def loader(**options: Any) -> DataLoader:
            options |= {"rank": 1, "world_size": 2, "num_workers": workers}
            return DataLoader(RECORDS[:11], encode, batch_size=4, **options)

        run = iter(loader())
        assert next(run) == 4
        with pytest.raises(OptionError, match=r"int, .*of 2 rows.*Return a dict.*drop_last"):
            next(run)
        assert list(loader(drop_last=True)) == [4]

    def test_arrays_become_tensors(self) -> None:
        def encode(columns: pa.RecordBatch) -> Any:
            rows = columns.num_rows
            return {
                "read only": columns["price"].to_numpy(),
                "big end": np.arange(rows, dtype=">i4"),
                "flags": np.zeros((rows, 2), bool),
                "texts": np.array(["a"] * rows),
                "one": np.float32(1),
                "none": np.array(5),
                "list": [1],
            }

        (batch,) = DataLoader(RECORDS, encode, batch_size=12)
        assert batch["read only"].tolist() == [one["price"] for one in RECORDS]
        assert batch["big end"].dtype == torch.int32
        assert batch["big end"].tolist() == list(range(12))
        assert batch["flags"].shape == (12, 2)
        assert batch["texts"].tolist() == ["a"] * 12
        assert int(batch["none"]) == 5

    @pytest.mark.parametrize("make", [np.zeros, torch.zeros], ids=["array", "tensor"])
    def test_another_number_of_rows_is_refused_unless_it_is_meant(self, make: Any) -> None:
        loader = DataLoader(RECORDS, lambda _: {"x": make(5)}, batch_size=4)
        with pytest.raises(OptionError, match="5 rows for field 'x', and the batch has 4 records"):
            next(iter(loader))
        (batch,) = DataLoader(RECORDS, lambda _: Batch({"x": make(5)}), batch_size=12)
        assert len(batch["x"]) == 5
        assert len(batch) == 12

    def test_rows_of_arrow_are_as_many_as_records(self) -> None:
        loader = DataLoader(RECORDS, lambda columns: columns.slice(1), batch_size=4)
        with pytest.raises(OptionError, match="3 rows of Arrow, and the batch has 4 records"):
            next(iter(loader))
        whole = next(iter(DataLoader(RECORDS, lambda columns: columns, batch_size=4)))
        assert whole.num_rows == 4

    @pytest.mark.parametrize("name", ["ids", "valid"])
    def test_a_batch_with_another_number_of_ids_is_refused(self, name: str) -> None:
        loader = DataLoader(RECORDS, lambda _: Batch({}, **{name: np.ones(3, bool)}), batch_size=4)
        with pytest.raises(OptionError, match=f"3 values in `{name}`, and it has 4 records"):
            next(iter(loader))

    @pytest.mark.parametrize("workers", WORKERS)
    def test_stop_iteration_ends_no_loop(self, workers: Any) -> None:
        def encode(columns: pa.RecordBatch) -> Any:
            return next(row for row in range(columns.num_rows) if row < 0)

        loader = DataLoader(RECORDS, encode, batch_size=4, num_workers=workers)
        with pytest.raises(RuntimeError, match=r"StopIteration\(\) was raised where") as caught:
            list(loader)
        assert "records 0, 1, 2, 3 (4 in all)" in "".join(caught.value.__notes__)

    @pytest.mark.parametrize("workers", WORKERS)
    def test_nor_does_that_of_a_dataset(self, workers: Any) -> None:
        loader = DataLoader(Ending(), batch_size=2, num_workers=workers)
        with pytest.raises(RuntimeError, match=r"StopIteration\('over'\)") as caught:
            list(loader)
        assert "records 2, 3 (2 in all)" in "".join(caught.value.__notes__)


class Ending:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> int:
        if number == 3:
            raise StopIteration("over")
        return number


class TestEmpty:
    @pytest.mark.parametrize(
        "encode",
        [None, {"a": "int64"}, ["a"], {"c": "category"}, ["a", "b.c"], lambda columns: columns],
        ids=["none", "types", "names", "category", "several", "callable"],
    )
    @pytest.mark.parametrize("workers", WORKERS)
    def test_no_records_give_no_batches(self, encode: Any, workers: Any) -> None:
        options: dict[str, Any] = {"batch_size": 4, "num_workers": workers, "shuffle": True}
        for source in ([], (), penstock.open([]), penstock.open([]).split(a=0.5, b=0.5)[0]):
            loader = DataLoader(source, encode, **options)
            assert len(loader) == 0
            assert list(loader) == []
            loader.load_state_dict(loader.state_dict())

    def test_an_empty_list_is_an_empty_source_and_said(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            source = penstock.open([])
        assert "empty list" in caplog.text
        assert (len(source), source.schema.names, source[:]) == (0, [], [])
        assert source.fingerprint == penstock.open(()).fingerprint

    def test_an_empty_file_gives_no_batches_of_names(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text("")
        assert list(DataLoader(tmp_path / "a.jsonl", ["a", "b.c"], batch_size=4)) == []
        table = pa.table({"a": pa.array([], pa.int64())})
        assert list(DataLoader(table, ["a"], batch_size=4)) == []
        with pytest.raises(OptionError, match="there is no field 'b'"):
            DataLoader(table, {"b": "int64"}, batch_size=4)


@pytest.mark.parametrize("kind", ["list", "table", "batch"])
@pytest.mark.parametrize("view", ["whole", "split", "where"])
def test_a_run_over_records_in_memory_goes_on_when_some_were_appended(kind: str, view: str) -> None:
    def loader(count: int) -> DataLoader:
        records = [{"n": number, "odd": number % 2} for number in range(count)]
        makers: dict[str, Any] = {
            "list": list,
            "table": pa.Table.from_pylist,
            "batch": pa.RecordBatch.from_pylist,
        }
        source = penstock.open(makers[kind](records))
        if view == "split":
            source = source.split(train=0.6, val=0.4)[0]
        if view == "where":
            source = source.where("odd == 1")
        return DataLoader(source, ["n"], batch_size=4, shuffle=True)

    whole = [batch["n"].tolist() for batch in loader(40)]
    first = loader(40)
    seen = [next(iter(first))["n"].tolist()]
    second = loader(60)
    with pytest.warns(UserWarning, match="were appended"):
        second.load_state_dict(first.state_dict())
    assert seen + [batch["n"].tolist() for batch in second] == whole
