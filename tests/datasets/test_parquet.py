from __future__ import annotations

import io
import os
import pickle
import threading
import weakref
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.datasets import ParquetRows, Source
from penstock.datasets._recently_used import Owner, RecentlyUsed
from penstock.datasets.tables import _files as _table_files
from penstock.errors import (
    CorruptFileError,
    ObjectNotFoundError,
    OptionError,
    SchemaMismatchError,
    StaleIndexError,
)
from tests.datasets.sample import Record, filled, sample_records
from tests.datasets.source_contract import SourceContract

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.fault_proxy import FaultProxy
    from tests.servers.s3_server import S3Server


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))


def parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    written = io.BytesIO()
    pq.write_table(table, written, **options)
    return written.getvalue()


def write(path: Path, columns: dict[str, Any] | pa.Table, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    path.write_bytes(parquet_bytes(table, **options))
    return path


class TestManyRowGroups(SourceContract):
    @pytest.fixture
    def expected(self) -> list[Record]:
        return filled(sample_records(80))

    @pytest.fixture
    def open_source(self, tmp_path: Path, expected: list[Record]) -> Callable[[], Source]:
        path = write(tmp_path / "a.parquet", pa.Table.from_pylist(expected), row_group_size=7)
        return lambda: ParquetRows(path)


class TestFilesOfOtherSchemas(SourceContract):
    @pytest.fixture
    def expected(self) -> list[Record]:
        return filled(sample_records(80))

    @pytest.fixture
    def open_source(self, tmp_path: Path, expected: list[Record]) -> Callable[[], Source]:
        first = pa.Table.from_pylist(expected[:30]).drop_columns(["late"])
        small = first.set_column(0, "id", first["id"].cast(pa.int16()))
        write(tmp_path / "d" / "part-1.parquet", small)
        second = pa.Table.from_pylist(expected[30:50])
        write(tmp_path / "d" / "part-2.parquet", second.select(second.column_names[::-1]))
        third = pa.Table.from_pylist(expected[50:])
        coded = third.set_column(2, "name", third["name"].dictionary_encode())
        write(tmp_path / "d" / "Part-10.parquet", coded, row_group_size=11)
        write(tmp_path / "d" / "part-11.parquet", third.slice(0, 0))
        return lambda: ParquetRows(tmp_path / "d")


class TestRemote(SourceContract):
    start_methods = ("forkserver", "spawn")

    @pytest.fixture
    def expected(self) -> list[Record]:
        return filled(sample_records(50))

    @pytest.fixture
    def open_source(
        self, s3_server: S3Server, bucket: str, expected: list[Record]
    ) -> Callable[[], Source]:
        table = pa.Table.from_pylist(expected)
        for name, part in {"a": table.slice(0, 30), "b": table.slice(30)}.items():
            s3_server.put(bucket, f"d/{name}.parquet", parquet_bytes(part, row_group_size=8))
        options = s3_server.storage_options
        return lambda: ParquetRows(f"s3://{bucket}/d", storage_options=options)


def test_rows_are_numbered_file_by_file_in_natural_order(tmp_path: Path) -> None:
    for number in (10, 9, 1):
        write(tmp_path / f"p{number}.parquet", {"n": [number, number + 100]})
    rows = ParquetRows(tmp_path)
    assert [row["n"] for row in rows] == [1, 101, 9, 109, 10, 110]
    assert rows.location(3) == (str(tmp_path / "p9.parquet"), 1, 0)
    assert rows.location([5, 0]).file.tolist() == [2, 0]
    listed = ParquetRows([tmp_path / "p9.parquet", tmp_path / "p1.parquet"])
    assert [row["n"] for row in listed] == [9, 109, 1, 101]
    assert len(ParquetRows(str(tmp_path / "p1*.parquet"))) == 4


def test_blocks_are_row_groups_and_empty_ones_are_none(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", {"a": range(10)}, row_group_size=4)
    write(tmp_path / "2.parquet", pa.table({"a": pa.array([], pa.int64())}))
    write(tmp_path / "3.parquet", {"a": range(3)})
    rows = ParquetRows(tmp_path)
    assert rows.blocks.tolist() == [0, 4, 8, 10, 13]
    assert [path[-9:] for path in rows.files] == ["1.parquet", "3.parquet"]


def test_files_without_rows_have_columns_all_the_same(tmp_path: Path) -> None:
    rows = ParquetRows(write(tmp_path / "a.parquet", {"a": pa.array([], pa.int32())}))
    assert (len(rows), rows[:], rows.schema) == (0, [], pa.schema({"a": pa.int32()}))
    assert rows.blocks.tolist() == [0]
    assert rows.arrow().num_rows == 0


def test_only_chosen_columns_are_there(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"a": [1], "b": ["x"], "c": [{"d": 1}]})
    rows = ParquetRows(path, columns=["c", "a"])
    assert rows[0] == {"c": {"d": 1}, "a": 1}
    assert rows.schema.names == ["c", "a"]
    assert rows.read([0], {"b": "string"}).to_pydict() == {"b": [None]}
    assert rows.fingerprint != ParquetRows(path).fingerprint
    assert pickle.loads(pickle.dumps(rows))[0] == rows[0]
    assert ParquetRows(path, columns=[])[0] == {}
    with pytest.raises(OptionError, match=r"no file has a column 'z'. They have a, b, c\."):
        ParquetRows(path, columns=["z"])
    with pytest.raises(OptionError, match="twice"):
        ParquetRows(path, columns=["a", "a"])
    with pytest.raises(OptionError, match="expected a list"):
        ParquetRows(path, columns="a")


def test_a_column_whose_name_has_a_dot_is_not_taken_for_a_path(tmp_path: Path) -> None:
    rows = ParquetRows(write(tmp_path / "a.parquet", {"a": [{"b": 1}], "a.b": ["x"]}))
    assert rows[0] == {"a": {"b": 1}, "a.b": "x"}
    assert rows.read([0], {"a.b": "string"}).to_pydict() == {"a.b": ["x"]}


def test_types_widen_over_files(tmp_path: Path) -> None:
    one = {"i": pa.array([1], pa.int32()), "f": pa.array([1], pa.int8()), "n": pa.nulls(1)}
    write(tmp_path / "1.parquet", one | {"s": [{"x": 1}]})
    two = {"f": pa.array([0.5]), "i": pa.array([2**40]), "n": ["x"]}
    write(tmp_path / "2.parquet", two | {"s": [{"y": "z", "x": 2}]})
    rows = ParquetRows(tmp_path)
    assert rows[:] == [
        {"i": 1, "f": 1.0, "n": None, "s": {"x": 1, "y": None}},
        {"i": 2**40, "f": 0.5, "n": "x", "s": {"x": 2, "y": "z"}},
    ]


def test_types_that_do_not_go_together_name_both_files_and_the_field(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", {"a": [1], "b": [1]})
    write(tmp_path / "2.parquet", {"a": [2], "b": ["x"]})
    with pytest.raises(
        SchemaMismatchError, match=r"'b' is int64 in .*1\.parquet and string in .*2\.parquet"
    ):
        ParquetRows(tmp_path)
    assert ParquetRows(tmp_path, columns=["a"])[:] == [{"a": 1}, {"a": 2}]


def test_a_value_that_does_not_fit_names_its_record_and_field(tmp_path: Path) -> None:
    rows = ParquetRows(write(tmp_path / "a.parquet", {"a": range(300)}, row_group_size=50))
    place = r"record 299 \(row 299 of .*a\.parquet\)"
    with pytest.raises(SchemaMismatchError, match=f"{place}: field 'a' holds 299.*int8"):
        rows.read([1, 299], {"a": "int8"})


def test_nested_and_unusual_types_come_as_they_were_written(tmp_path: Path) -> None:
    table = pa.table(
        {
            "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
            "deep": [[[1, None], []], None],
            "vector": pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2)),
            "money": pa.array([Decimal("1.50"), None]),
            "raw": [b"\x00\xff", b""],
            "category": pa.array(["x", None]).dictionary_encode(),
        }
    )
    rows = ParquetRows(write(tmp_path / "a.parquet", table))
    assert rows[[1, 0]] == table.to_pylist()[::-1]
    assert rows.schema.field("category").type == pa.string()


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(SchemaMismatchError, match="two columns are called 'a'"):
        ParquetRows(write(tmp_path / "a.parquet", table))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: data[:0], "too few"),
        (lambda data: data[:-10], "instead of"),
        (lambda data: data[:-8] + b"\xff\xff\xff\x7fPAR1", "claims"),
        (lambda data: data[:-100] + bytes(92) + data[-8:], "footer cannot be read"),
    ],
)
def test_a_damaged_footer_names_the_file_and_the_remedy(
    damage: Callable[[bytes], bytes], why: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.parquet", {"a": [1, 2, 3]})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CorruptFileError, match=rf"a\.parquet.*{why}"):
        ParquetRows(path)


def test_damaged_pages_name_the_file_and_the_row_group(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"a": np.random.default_rng(0).random(1000)})
    data = bytearray(path.read_bytes())
    data[4:200] = os.urandom(196)
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match=r"a\.parquet: row group 0 cannot be read"):
        _ = ParquetRows(path)[0]


def test_a_file_that_changed_since_is_told_of(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"a": range(100)}, row_group_size=10)
    rows = ParquetRows(path)
    packed = pickle.dumps(rows)
    assert rows[5] == {"a": 5}
    write(path, {"a": range(200)}, row_group_size=10)
    with pytest.raises(StaleIndexError, match=r"a\.parquet is not what it was"):
        _ = rows[50]
    with pytest.raises(StaleIndexError, match="changed since"):
        _ = pickle.loads(packed)[5]
    path.unlink()
    with pytest.raises(StaleIndexError, match=r"a\.parquet"):
        _ = rows[60]


def test_the_fingerprint_changes_with_the_data(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"a": [1, 2]})
    first = ParquetRows(path).fingerprint
    copy = tmp_path / "copy" / "a.parquet"
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    assert ParquetRows(copy).fingerprint == first
    assert ParquetRows(write(path, {"a": [1, 3]})).fingerprint != first


def test_a_path_without_parquet_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match=r"holds no \.parquet"):
        ParquetRows(tmp_path)
    with pytest.raises(ObjectNotFoundError, match=r"nothing\.parquet"):
        ParquetRows(tmp_path / "nothing.parquet")


def test_a_relative_path_survives_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.parquet", {"a": [1]})
    monkeypatch.chdir(tmp_path)
    packed = pickle.dumps(ParquetRows("a.parquet"))
    monkeypatch.chdir("/")
    assert pickle.loads(packed)[0] == {"a": 1}


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_more_files_than_are_kept_open_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_table_files, "_files", RecentlyUsed(3))
    monkeypatch.setattr(_table_files, "_columns", RecentlyUsed(1))
    monkeypatch.setattr(_table_files, "_KEPT_HEAD_BYTES", 1000)
    for number in range(20):
        write(tmp_path / f"{number}.parquet", {"a": [number]})
    before = open_files()
    rows = ParquetRows(tmp_path)
    ids = [*range(20), *range(19, -1, -1)]
    assert [row["a"] for row in rows[ids]] == ids
    assert [rows[number]["a"] for number in ids] == ids
    assert open_files() <= before + 4


def test_what_is_kept_is_bounded_and_the_newest_stays() -> None:
    kept: RecentlyUsed[str] = RecentlyUsed(10)
    owner = Owner()
    for key in "abc":
        kept.put(owner, key, key.upper(), 4)
    assert [kept.get(owner, key) for key in "abc"] == [None, "B", "C"]
    kept.get(owner, "b")
    kept.put(owner, "d", "D", 4)
    assert [kept.get(owner, key) for key in "bcd"] == ["B", None, "D"]
    kept.put(owner, "huge", "H", 1000)
    assert [kept.get(owner, key) for key in ("b", "d", "huge")] == [None, None, "H"]
    kept.put(owner, "huge", "small", 1)
    kept.put(owner, "e", "E", 9)
    assert [kept.get(owner, key) for key in ("huge", "e")] == ["small", "E"]


def test_what_is_kept_goes_with_its_owner() -> None:
    kept: RecentlyUsed[set[str]] = RecentlyUsed(10)
    first, second, value = Owner(), Owner(), {"a"}
    gone = weakref.ref(value)
    kept.put(first, "a", value, 8)
    del first, value
    assert gone() is None
    for key in "ab":
        kept.put(second, key, {key}, 4)
    assert [kept.get(second, key) for key in "ab"] == [{"a"}, {"b"}]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_while_a_thread_holds_the_cache_does_not_hang(tmp_path: Path) -> None:
    rows = ParquetRows(write(tmp_path / "a.parquet", {"a": range(10)}))
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with _table_files._columns._lock, _table_files._files._lock:  # noqa: SLF001
            taken.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    child = os.fork()
    if not child:
        os._exit(0 if rows[3] == {"a": 3} else 1)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_a_row_group_costs_one_request(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy
) -> None:
    columns = {
        "a": range(1000),
        "b": [str(n) for n in range(1000)],
        "c": [[n] for n in range(1000)],
    }
    s3_server.put(bucket, "a.parquet", parquet_bytes(pa.table(columns), row_group_size=100))
    rows = ParquetRows(f"s3://{bucket}/a.parquet", storage_options=fault_proxy.storage_options)
    opening = fault_proxy.count("GET", "a.parquet")
    assert opening == 1
    fault_proxy.clear()
    assert rows[150] == {"a": 150, "b": "150", "c": [150]}
    assert fault_proxy.count() == 1
    assert rows[100:200] == [{"a": n, "b": str(n), "c": [n]} for n in range(100, 200)]
    assert fault_proxy.count() == 1
    assert rows.read([950, 50], ["b"])["b"].to_pylist() == ["950", "50"]
    assert fault_proxy.count() == 3


def test_an_object_that_was_replaced_is_told_of(s3_server: S3Server, bucket: str) -> None:
    s3_server.put(bucket, "a.parquet", parquet_bytes(pa.table({"a": [1, 2]})))
    rows = ParquetRows(f"s3://{bucket}/a.parquet", storage_options=s3_server.storage_options)
    s3_server.put(bucket, "a.parquet", parquet_bytes(pa.table({"a": [3, 4]})))
    with pytest.raises(StaleIndexError, match=r"a\.parquet is not what it was"):
        _ = rows[0]
