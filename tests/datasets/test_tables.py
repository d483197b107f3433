"""Arrow IPC, ORC and Avro: what is the same for every format that is read by units."""

from __future__ import annotations

import os
import pickle
import random
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather

import penstock
from penstock.datasets import ArrowRows, AvroRows, OrcRows, Source
from penstock.datasets.tables import _heads
from penstock.errors import (
    CorruptFileError,
    ObjectNotFoundError,
    OptionError,
    SchemaMismatchError,
    StaleIndexError,
    UnsupportedFileError,
)
from penstock.tables import _avro
from tests.datasets.sample import Record, filled, sample_records
from tests.datasets.source_contract import SourceContract
from tests.datasets.table_files import ENDINGS, file_bytes, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.servers.fault_proxy import FaultProxy
    from tests.servers.s3_server import S3Server

CLASSES = {".arrow": ArrowRows, ".feather": ArrowRows, ".orc": OrcRows, ".avro": AvroRows}
MAGIC = {".arrow": b"ARROW1", ".feather": b"ARROW1", ".orc": b"ORC", ".avro": b"Obj\x01"}
NAMES = {".arrow": "arrow", ".feather": "arrow", ".orc": "orc", ".avro": "avro"}
COUNT = 80
formats = pytest.mark.parametrize("ending", ENDINGS)


@pytest.fixture(autouse=True)
def _units_of_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_avro, "_UNIT_BYTES", 1)


@pytest.fixture
def place(tmp_path: Path, ending: str) -> Path:
    """Return a folder of two files with 80 numbers."""
    write(tmp_path / "data" / f"1{ending}", {"n": range(30), "s": [str(n) for n in range(30)]})
    some = {"n": range(30, COUNT), "s": [str(n) for n in range(30, COUNT)]}
    write(tmp_path / "data" / f"2{ending}", some)
    return tmp_path / "data"


class _TableContract(SourceContract):
    ending: str

    @pytest.fixture
    def expected(self) -> list[Record]:
        return filled(sample_records(50))

    @pytest.fixture
    def open_source(self, tmp_path: Path, expected: list[Record]) -> Callable[[], Source]:
        table = pa.Table.from_pylist(expected)
        for name, part in {"a": table.slice(0, 30), "b": table.slice(30)}.items():
            write(tmp_path / "d" / f"{name}{self.ending}", part)
        return lambda: penstock.open(tmp_path / "d")


class TestArrow(_TableContract):
    ending = ".arrow"


class TestArrowStream(_TableContract):
    ending = ".ipc"


class TestOrc(_TableContract):
    ending = ".orc"


class TestAvro(_TableContract):
    ending = ".avro"


class TestRemoteFeather(SourceContract):
    start_methods = ("forkserver", "spawn")

    @pytest.fixture
    def expected(self) -> list[Record]:
        return filled(sample_records(30))

    @pytest.fixture
    def open_source(
        self, s3_server: S3Server, bucket: str, expected: list[Record]
    ) -> Callable[[], Source]:
        s3_server.put(bucket, "d/a.feather", file_bytes(".feather", pa.Table.from_pylist(expected)))
        options = s3_server.storage_options
        return lambda: penstock.open(f"s3://{bucket}/d", storage_options=options)


@formats
def test_it_opens_by_its_name_its_first_bytes_and_its_format(place: Path, ending: str) -> None:
    first = place / f"1{ending}"
    assert first.read_bytes().startswith(MAGIC[ending])
    for what in (place, first, f"{place}/*{ending}", [place / f"2{ending}", first]):
        assert type(penstock.open(what)) is CLASSES[ending]
    unnamed = first.rename(place / "records")
    assert len(penstock.open(unnamed)) == 30
    odd = unnamed.rename(place / "records.parquet")
    assert len(penstock.open(odd, format=NAMES[ending])) == 30
    with pytest.raises(OptionError, match=r"1 of Parquet and 1 of (Arrow IPC|ORC|Avro)"):
        penstock.open(place)


@formats
def test_blocks_are_units_and_numbers_go_on_over_files(place: Path, ending: str) -> None:
    rows = penstock.open(place)
    assert [row["n"] for row in rows] == list(range(COUNT))
    assert rows.blocks.tolist() == [0, 8, 16, 24, 30, 38, 46, 54, 62, 70, 78, 80]
    assert rows.location(33) == (str(place / f"2{ending}"), 3, 0)
    assert rows[[79, 0, 31]] == [{"n": n, "s": str(n)} for n in (79, 0, 31)]
    assert bool(rows.reads_blocks) == (ending != ".arrow")


@formats
def test_types_widen_over_files_and_missing_columns_are_null(tmp_path: Path, ending: str) -> None:
    small = {"i": pa.array([1], pa.int32()), "x": [{"a": 1}]}
    write(tmp_path / f"1{ending}", small)
    write(tmp_path / f"2{ending}", {"x": [{"a": 2, "b": "y"}], "i": [2**40], "new": [0.5]})
    assert penstock.open(tmp_path)[:] == [
        {"i": 1, "x": {"a": 1, "b": None}, "new": None},
        {"i": 2**40, "x": {"a": 2, "b": "y"}, "new": 0.5},
    ]
    write(tmp_path / f"3{ending}", {"i": ["text"]})
    with pytest.raises(
        SchemaMismatchError, match=rf"'i' is int64 in .*2\{ending} and string in .*3"
    ):
        penstock.open(tmp_path)
    assert CLASSES[ending](tmp_path, columns=["new"])[1] == {"new": 0.5}


@formats
def test_a_file_without_rows_has_columns_all_the_same(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a{ending}", {"a": pa.array([], pa.int64())})
    rows = penstock.open(path)
    assert (len(rows), rows[:], rows.schema) == (0, [], pa.schema({"a": pa.int64()}))


@formats
def test_a_file_that_changed_since_is_named(place: Path, ending: str) -> None:
    rows = penstock.open(place)
    packed = pickle.dumps(rows)
    assert rows[5]["n"] == 5
    path = place / f"1{ending}"
    write(path, {"n": range(60), "s": ["x"] * 60})
    for number in (5, 25):
        if ending == ".arrow" or number == 25:  # Others keep the columns that they read.
            with pytest.raises(StaleIndexError, match=rf"1\{ending} is not what it was"):
                _ = rows[number]
    with pytest.raises(StaleIndexError, match="changed since"):
        _ = pickle.loads(packed)[5]
    os.truncate(path, 100)
    with pytest.raises(StaleIndexError, match=rf"1\{ending} is not what it was"):
        _ = rows[25]


@formats
def test_the_fingerprint_changes_with_the_data_and_appended_files_are_known(
    place: Path, ending: str
) -> None:
    before = penstock.open(place)
    assert penstock.open(place).fingerprint == before.fingerprint
    write(place / f"3{ending}", {"n": [7], "s": ["7"]})
    after = penstock.open(place)
    assert after.fingerprint != before.fingerprint
    assert after.was(before.fingerprint, len(before))
    write(place / f"3{ending}", {"n": [8], "s": ["7"]})
    assert penstock.open(place).fingerprint != after.fingerprint


@formats
def test_a_file_that_is_not_whole_is_named_with_the_remedy(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a{ending}", {"a": range(100), "b": [str(n) for n in range(100)]})
    data, noise = path.read_bytes(), random.Random(1).randbytes(200)
    halves = [data[:size] for size in (0, 3, 40, len(data) // 2, len(data) - 1)]
    for damaged in (*halves, b"\xfe" * 64, data[:-200] + noise):
        path.write_bytes(damaged)
        with pytest.raises(CorruptFileError, match=rf"a\{ending}") as raised:
            penstock.open(path)[:]
        assert "write it again" in str(raised.value).lower()


@formats
def test_a_folder_without_such_files_is_named(tmp_path: Path, ending: str) -> None:
    with pytest.raises(ObjectNotFoundError, match=rf"holds no .*\{ending}"):
        CLASSES[ending](tmp_path)


@formats
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.usefixtures("ending")
def test_a_shuffled_run_resumes_where_it_was_stopped(place: Path, workers: int) -> None:
    def loader() -> penstock.DataLoader:
        return penstock.DataLoader(
            penstock.open(place), {"n": "int64", "s": "string"}, batch_size=8, shuffle=True,
            seed=3, num_workers=workers, materialize=False,
        )  # fmt: skip

    whole = [(batch["n"].tolist(), batch["s"]) for batch in loader()]
    numbers = [n for batch, _ in whole for n in batch]
    assert sorted(numbers) == list(range(COUNT))
    assert numbers != sorted(numbers)
    assert all(texts == [str(n) for n in batch] for batch, texts in whole)
    first, seen = loader(), []
    for batch in first:
        seen.append(batch["n"].tolist())
        if len(seen) == 4:
            state = first.state_dict()
            break
    again = loader()
    again.load_state_dict(state)
    assert seen + [batch["n"].tolist() for batch in again] == [batch for batch, _ in whole]


@formats
def test_remote_files_cost_a_request_a_unit_and_open_from_the_cache(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy, ending: str
) -> None:
    texts = [f"{n:06}" * 20 for n in range(4000)]
    table = pa.table({"n": range(4000), "s": texts})
    s3_server.put(bucket, f"d/a{ending}", file_bytes(ending, table, 1000, "null"))
    url, options = f"s3://{bucket}/d", fault_proxy.storage_options
    rows = penstock.open(url, storage_options=options)
    assert type(rows) is CLASSES[ending]
    fault_proxy.clear()
    assert rows[1500] == {"n": 1500, "s": texts[1500]}
    assert fault_proxy.count() == 1
    assert rows[1100:1900:100] == [{"n": n, "s": texts[n]} for n in range(1100, 1900, 100)]
    assert fault_proxy.count() == 1
    assert rows.read([3500, 500], ["n"])["n"].to_pylist() == [3500, 500]
    assert fault_proxy.count() == 3
    fault_proxy.clear()
    assert len(penstock.open(url, storage_options=options)) == 4000
    assert fault_proxy.count("GET", f"a{ending}") == 0
    s3_server.put(bucket, "unnamed", file_bytes(ending, table.slice(0, 10)))
    assert len(penstock.open(f"s3://{bucket}/unnamed", storage_options=options)) == 10
    s3_server.put(bucket, f"d/a{ending}", file_bytes(ending, table.slice(1)))
    with pytest.raises(StaleIndexError, match=rf"a\{ending} is not what it was"):
        _ = rows[2500]


def test_remote_files_that_are_read_to_be_counted_are_counted_a_part_at_a_time(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"n": range(1000)})
    for name in "abcd":
        s3_server.put(bucket, f"d/{name}.avro", file_bytes(".avro", table, 50, "null"))
    monkeypatch.setattr(_heads, "LARGEST_UNASKED", 3000)
    monkeypatch.setattr(_heads, "_THREADS", 1)
    counted = 0
    for _ in range(4):
        try:
            rows = penstock.open(f"s3://{bucket}/d", storage_options=s3_server.storage_options)
            break
        except OptionError as refused:
            assert "open the same again" in str(refused)  # noqa: PT017 (some are refused)
            counted += 1
    assert 1 <= counted <= 3
    assert len(rows) == 4000


@formats
@pytest.mark.usefixtures("ending")
def test_views_and_columns_are_of_its_records(place: Path, tmp_path: Path) -> None:
    rows = penstock.open(place)
    train, rest = rows.split(train=0.5, rest=0.5)
    assert sorted(row["n"] for row in [*train, *rest]) == list(range(COUNT))
    assert [row["n"] for row in rows.where("n >= 70")] == list(range(70, COUNT))
    assert (rows + rows.take([3]))[-1]["n"] == 3
    held = rows.materialize({"n": "int32"}, tmp_path / "columns", progress=False)
    numbers = np.random.default_rng(1).permutation(COUNT)
    assert held.read(numbers, {"n": "int32"})["n"].to_pylist() == numbers.tolist()


def test_feather_of_version_1_is_refused_with_a_remedy(tmp_path: Path) -> None:
    table = pa.table({"a": [1]})
    with pytest.warns(DeprecationWarning, match="Feather V1"):
        feather.write_feather(table, tmp_path / "a.feather", version=1)
    with pytest.raises(UnsupportedFileError, match=r"Feather V1.*Write it again as V2"):
        penstock.open(tmp_path / "a.feather")
    (tmp_path / "a.feather").rename(tmp_path / "unnamed")
    with pytest.raises(UnsupportedFileError, match="Feather V1"):
        penstock.open(tmp_path / "unnamed")
