"""Parquet files that are damaged, encrypted, forged or odd: right values, or an error of ours."""

from __future__ import annotations

import io
import pickle
import uuid
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import penstock
from penstock.datasets import ParquetRows
from penstock.errors import CorruptFileError, SchemaMismatchError, UnsupportedFileError
from penstock.storage import LocalStore
from penstock.tables import TableHead
from tests.cli.commands import document, invoke
from tests.datasets import parquet_programs
from tests.datasets.parquet_forging import forged, with_bare_group
from tests.faults.child import run
from tests.rounds import rounds

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.s3_server import S3Server

MANY = 512 << 20


class Kms(pe.KmsClient):  # type: ignore[misc] (pyarrow has no types)
    """Keeps keys in the file that they are for."""

    def __init__(self, _config: pe.KmsConnectionConfig) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, _master: str) -> str:
        return key.hex()

    def unwrap_key(self, wrapped: str, _master: str) -> bytes:
        return bytes.fromhex(wrapped)


def encrypted(table: pa.Table, columns: list[str]) -> bytes:
    config = pe.EncryptionConfiguration(
        footer_key="footer", column_keys={"column": columns}, plaintext_footer=True
    )
    properties = pe.CryptoFactory(Kms).file_encryption_properties(pe.KmsConnectionConfig(), config)
    written = io.BytesIO()
    with pq.ParquetWriter(written, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    return written.getvalue()


TABLE = pa.table({"id": [1, 2, 3], "secret": ["x", "y", "z"]})


def test_plain_columns_beside_an_encrypted_one_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(encrypted(TABLE, ["secret"]))
    records, told = run(parquet_programs.plain_column, str(path))
    assert records == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert f"{path}: row group 0 cannot be read" in told
    assert "leave the column out by columns=" in told


@pytest.mark.s3
def test_plain_columns_of_an_encrypted_object_are_read(s3_server: S3Server, bucket: str) -> None:
    s3_server.put(bucket, "a.parquet", encrypted(TABLE, ["secret"]))
    url, options = f"s3://{bucket}/a.parquet", s3_server.storage_options
    rows = ParquetRows(url, columns=["id"], storage_options=options)
    assert rows[:] == rows.by_blocks()[:] == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_an_encrypted_file_is_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(forged(rows=3)[:-4] + b"PARE")
    with pytest.raises(UnsupportedFileError, match=r"a\.parquet is encrypted.* Decrypt it first"):
        ParquetRows(path)


@pytest.mark.parametrize(
    "claims", [{"codec": 3}, {"codec": 9}, {"encoding": 4}, {"encoding": 77}],
    ids=["LZO", "later codec", "BIT_PACKED", "later encoding"],
)  # fmt: skip
def test_a_codec_or_encoding_that_pyarrow_lacks_is_not_called_damage(
    tmp_path: Path, claims: dict[str, int]
) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(forged(rows=3, **claims))
    with pytest.raises(
        UnsupportedFileError, match=r"a\.parquet: row group 0 .*not support"
    ) as told:
        ParquetRows(path)[0]
    assert told.value.remedy.startswith("Write the file again with other types, encodings or")
    checked = document("check", path, code=3)
    assert checked["findings"] == 0
    assert "does not support its contents" in checked["errors"][0]["error"]


def test_a_type_that_pyarrow_lacks_is_not_called_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pl.DataFrame({"a": [1]}, schema={"a": pl.Int128}).write_parquet(path)
    with pytest.raises(
        UnsupportedFileError, match=r"not support its contents: .*more than 64 bits"
    ):
        ParquetRows(path)


@dataclass(frozen=True, kw_only=True)
class Refusing(TableHead):
    """A file of which Arrow says that it does not read it."""

    unit: ClassVar = "row group"
    said: Exception

    def _columns(self, *_: object, **__: object) -> pa.RecordBatch:
        raise self.said


@pytest.mark.parametrize(
    "said",
    [
        pa.ArrowInvalid("offset overflow while concatenating arrays, consider casting"),
        pa.ArrowNotImplementedError("not implemented for chunked array outputs"),
    ],
)
def test_row_groups_of_2_gib_of_text_are_to_be_written_smaller(
    said: Exception, tmp_path: Path
) -> None:
    (tmp_path / "a").touch()
    rows = np.ones(4, np.int64)
    schema = pa.schema({"a": pa.string()})
    head = Refusing(
        said=said, schema=schema, unit_rows=rows, unit_bytes=rows, mark="", weight=0
    )  # fmt: skip
    file = LocalStore().open(str(tmp_path / "a"))
    with closing(file), pytest.raises(UnsupportedFileError, match=r"p 3 .* 2 GiB") as told:
        head.read(file, 3, schema, at_once=False)
    assert told.value.remedy.startswith("Write the file again with smaller row groups, or leave")


def test_an_empty_row_group_without_columns_is_nothing_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(forged(rows=3, empty_group=True))
    assert ParquetRows(path)[:] == [{"a": None}] * 3
    assert "nothing wrong" in invoke("check", path).stdout


def test_no_damaged_footer_ends_the_process_or_raises_an_error_of_arrow(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": list(range(50)),
            "text": [f"t{n % 7}" for n in range(50)],
            "lists": [[1, 2], None] * 25,
            "struct": [{"x": 1.5, "y": "q"}] * 50,
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=20, compression="zstd")
    count = rounds(400, 20_000)
    outcomes: Counter[str] = Counter()
    for first in range(0, count, 400):
        seeds = [first, first + 400]
        outcomes.update(run(parquet_programs.read_damaged, str(tmp_path / "a.parquet"), seeds))
    assert outcomes.keys() == {"read", "told"}
    assert sum(outcomes.values()) == count
    assert outcomes["told"] > count // 2


@pytest.mark.parametrize(
    "claims",
    [
        {"rows": MANY},
        {"rows": MANY, "values": 1000},
        {"rows": 1, "values": MANY, "of_lists": True},
        {"rows": 1, "values": 10, "in_page": MANY, "of_lists": True},
    ],
)
def test_a_tiny_file_that_claims_much_takes_no_memory(
    tmp_path: Path, claims: dict[str, Any]
) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(forged(**claims))
    assert path.stat().st_size < 463
    told, peak = run(parquet_programs.peak_of_reading, str(path))
    assert told.startswith(f"CorruptFileError: {path}")
    assert "536,870,912" in told
    assert peak < 1000


def test_a_page_header_that_claims_an_endless_list_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [[1, 2], [3]]}), path)
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"\x19\xf3\xff\xff\xff\xff\xff\x7f" + data[12:])
    told, peak = run(parquet_programs.peak_of_reading, str(path))
    assert told.startswith(f"CorruptFileError: {path}: row group 0 cannot be read")
    assert peak < 1000


@pytest.mark.parametrize("is_stored", [True, False], ids=["dictionary", "text"])
@pytest.mark.parametrize("shape", ["texts", "list", "struct"])
def test_one_long_text_many_times_takes_no_memory(
    tmp_path: Path,
    is_stored: bool,  # noqa: FBT001
    shape: str,
) -> None:
    path = tmp_path / "a.parquet"
    texts = pa.DictionaryArray.from_arrays(np.zeros(3000, np.int32), ["x" * 1_000_000])
    if shape == "list":
        texts = pa.ListArray.from_arrays([0, 3000], texts)
    elif shape == "struct":
        texts = pa.StructArray.from_arrays([texts], ["x"])
    table = pa.table({"a": texts})
    pq.write_table(table, path, compression="zstd", store_schema=is_stored, write_statistics=False)
    assert path.stat().st_size < 1000
    told, peak = run(parquet_programs.peak_of_reading, str(path))
    assert told.startswith(f"CorruptFileError: {path}: row group 0 repeats texts, which take 3,000")
    assert "write it with smaller row groups" in told
    assert peak < 1000


def test_a_page_that_claims_to_be_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(forged(rows=10, inflated=1 << 30))
    with pytest.raises(CorruptFileError, match=r"pages of the chunk .* take 1,073,741,824 bytes"):
        ParquetRows(path)[0]


@pytest.mark.parametrize("pages", [{}, {"max_rows_per_page": 1 << 30, "data_page_size": 1 << 30}])
def test_millions_of_equal_texts_and_nulls_are_read(tmp_path: Path, pages: dict[str, int]) -> None:
    path, rows = tmp_path / "a.parquet", 5_000_000
    texts = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["yes"])
    table = pa.table({"a": texts, "b": pa.nulls(rows, pa.string())})
    pq.write_table(table, path, rows, compression="zstd", store_schema=False, **pages)
    assert ParquetRows(path)[rows - 1] == {"a": "yes", "b": None}


def test_few_long_texts_among_many_are_read(tmp_path: Path) -> None:
    texts = [f"text {n}" for n in range(1000)] + ["long" * 25_000]
    which = np.arange(200_000) % 1000
    which[777] = 1000
    column = pa.DictionaryArray.from_arrays(which.astype(np.int32), texts).cast(pa.string())
    lists = pa.ListArray.from_arrays(np.arange(0, 200_001, 4, dtype=np.int32), column)
    lists = pa.concat_arrays([lists] * 4)
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"a": column, "b": lists, "n": range(200_000)}), path, compression="zstd"
    )
    rows = ParquetRows(path)
    for ids in (slice(770, 780), slice(194, 195), slice(199_990, 200_000)):
        assert rows.arrow(range(200_000)[ids]).column("a").equals(column[ids])
        assert rows.arrow(range(200_000)[ids]).column("b").equals(lists[ids])


def test_too_little_memory_is_no_damage(tmp_path: Path) -> None:
    path, rows = tmp_path / "a.parquet", 40_000_000
    pq.write_table(pa.table({"a": pa.nulls(rows, pa.int64())}), path, rows, compression="zstd")
    told = run(parquet_programs.with_little_memory, str(path))
    assert told.startswith(f"StorageError: {path}: there is not enough memory for the 40,000,000")


def test_what_compresses_well_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(forged(rows=1_000_000))
    assert ParquetRows(tmp_path / "a.parquet")[999_999] == {"a": None}
    (tmp_path / "b.parquet").write_bytes(forged(rows=1, values=100_000, of_lists=True))
    assert len(ParquetRows(tmp_path / "b.parquet")[0]["a"]) == 100_000


def test_fewer_rows_than_the_footer_says_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(forged(rows=1000, in_page=10))
    with pytest.raises(CorruptFileError, match=r"row group 0 .* holds 10 rows.* footer says 1,000"):
        ParquetRows(path)[5]


@pytest.mark.parametrize("rows", [-1, 1 << 62])
def test_impossible_numbers_of_rows_are_refused_at_once(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(forged(rows=rows, values=10))
    with pytest.raises(CorruptFileError, match=r"a\.parquet is no whole Parquet file: it claims"):
        ParquetRows(path)


def test_a_flipped_byte_is_found_where_pages_have_checksums(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"n": list(range(1000))})
    pq.write_table(table, path, compression="NONE", use_dictionary=False, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[data.index((777).to_bytes(8, "little"))] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        CorruptFileError, match=r"a\.parquet: row group 0 .*checksum.*page_checksums=False"
    ):
        ParquetRows(path)[0]
    options = {"page_checksums": False}
    rows = penstock.open(path, format_options=options)
    assert [row["n"] for row in pickle.loads(pickle.dumps(rows))] == [
        *range(777),
        776,
        *range(778, 1000),
    ]
    assert rows.reopens_as is None
    assert rows.column_home() != ParquetRows(path).column_home()
    assert document("show", path, "777", "--no-page-checksums") == [{"n": 776}]
    assert invoke("check", path).exit_code == 1
    assert invoke("check", path, "--no-page-checksums").exit_code == 0


def test_a_group_without_fields_is_null_as_in_pyarrow(tmp_path: Path) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": [1, 2, 3]}), sink, store_schema=False)
    path = tmp_path / "a.parquet"
    path.write_bytes(with_bare_group(sink.getvalue()))
    rows = ParquetRows(path)
    assert rows[:] == pq.read_table(path).to_pylist() == [{"bare": None, "n": n} for n in (1, 2, 3)]
    assert rows.read([2, 0], ["bare"])["bare"].to_pylist() == [None, None]


def test_old_timestamps_of_any_year_are_right(tmp_path: Path) -> None:
    moments = [datetime(9999, 12, 31), datetime(1, 1, 1), datetime(2024, 1, 2, 3, 4, 5, 678901)]  # noqa: DTZ001
    table = pa.table(
        {
            "at": pa.array([*moments, None], pa.timestamp("us")),
            "all": pa.array([moments, [], None, [None]], pa.list_(pa.timestamp("us"))),
        }
    )
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    rows = ParquetRows(path)
    assert rows[:] == table.to_pylist()
    assert rows.schema.field("at").type == pa.timestamp("us")
    assert rows.read([0], {"at": "timestamp[ms]"}).column(0).to_pylist() == moments[:1]


def test_nanoseconds_without_pandas_are_an_error_of_ours(tmp_path: Path) -> None:
    whole, odd = 1_704_067_200_123_456_000, 1_704_067_200_123_456_789
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"at": pa.array([whole, odd], pa.timestamp("ns"))}), path)
    first, told, value = run(parquet_programs.without_pandas, str(path))
    assert first == "2024-01-01 00:00:00.123456"
    assert told.startswith(f"SchemaMismatchError: record 1 (row 1 of {path}): field 'at'")
    assert value == odd


def test_text_that_is_no_utf_8_is_an_error_that_names_the_record(tmp_path: Path) -> None:
    texts = pa.array([b"fine", b"caf\xe9"]).view(pa.string())
    pq.write_table(pa.table({"id": [1, 2], "text": texts}), tmp_path / "a.parquet")
    rows = ParquetRows(tmp_path / "a.parquet")
    assert rows[0] == {"id": 1, "text": "fine"}
    place = r"record 1 \(row 1 of .*a\.parquet\): field 'text'"
    with pytest.raises(SchemaMismatchError, match=place + " holds text that is not UTF-8"):
        rows[[0, 1]]
    with pytest.raises(SchemaMismatchError, match=place):
        rows.read([1], {"text": "timestamp[s]"})
    assert len(rows.split(by="text", a=0.5, b=0.5)[0]) <= 2


@pytest.mark.parametrize("shape", ["text", "list", "struct", "map"])
def test_a_typed_field_that_is_no_utf_8_names_the_record_in_every_way_to_read(
    tmp_path: Path, shape: str
) -> None:
    texts = pa.array([b"fine", b"caf\xe9", None, b"z"]).view(pa.string())
    ends, numbers = pa.array([0, 1, 2, 3, 4]), pa.array([1, 2, 3, 4])
    column = {
        "text": texts,
        "list": pa.ListArray.from_arrays(ends, texts),
        "struct": pa.StructArray.from_arrays([texts], ["in"]),
        "map": pa.MapArray.from_arrays(ends[:3], texts[:2], numbers[:2]),
    }[shape]
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    rows = ParquetRows(tmp_path / "a.parquet")
    with pytest.raises(SchemaMismatchError, match=r"record 1: field 'text' .*binary") as told:
        rows.read([0, 1], {"text": rows.schema.field("text").type})
    assert told.value.record == 1
    assert rows.read([0], {"text": rows.schema.field("text").type}).num_rows == 1


@pytest.mark.parametrize("materialize", [True, False])
@pytest.mark.parametrize("kind", ["string", "text", "category"])
def test_a_loader_masks_the_records_whose_text_is_no_utf_8(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    materialize: bool,  # noqa: FBT001
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    texts = pa.array([b"a", b"caf\xe9", b"b"]).view(pa.string())
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    (batch,) = penstock.DataLoader(
        penstock.open(tmp_path / "a.parquet"), {"text": kind},
        batch_size=3, on_error="mask", materialize=materialize, num_workers=0,
    )  # fmt: skip
    assert batch.valid.tolist() == [True, False, True]
    assert penstock.open(tmp_path / "a.parquet").vocabulary("text") == ["a", "b"]


def test_uuids_are_uuids_and_are_compared_and_encoded_as_text(tmp_path: Path) -> None:
    ids = [uuid.UUID(int=number) for number in (5, 6, 6)]
    stored = pa.array([one.bytes for one in ids] + [None], pa.uuid())
    nested = pa.ListArray.from_arrays([0, 2, 2, 3, 4], stored)
    for is_stored in (True, False):
        path = tmp_path / f"{is_stored}.parquet"
        pq.write_table(pa.table({"id": stored, "ids": nested}), path, store_schema=is_stored)
        rows = ParquetRows(path)
        assert rows[:] == pq.read_table(path).to_pylist()
        assert rows[0] == {"id": ids[0], "ids": ids[:2]}
        assert rows.schema.field("id").type == pa.uuid()
        assert rows.read([1, 3], {"id": "string"}).column(0).to_pylist() == [str(ids[1]), None]
        assert rows.read([0], {"ids": "list<string>"}).column(0)[0].as_py() == [*map(str, ids[:2])]
        assert rows.read([1], {"id": "json"}).column(0).to_pylist() == [f'"{ids[1]}"']
        assert len(rows.where(f"id == '{ids[1]}'")) == 2
        assert rows.value_counts("id") == {str(ids[0]): 1, str(ids[1]): 2}
        parts = rows.split(by="id", a=0.5, b=0.5)
        assert sum(1 in [row["id"].int % 2 for row in part if row["id"]] for part in parts) == 1


def test_a_wide_row_group_has_every_column_in_any_order(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(3000)]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({name: [at, -at] for at, name in enumerate(names)}), path)
    rows = ParquetRows(path)
    assert rows[1] == {name: -at for at, name in enumerate(names)}
    assert rows.read([0], names[::-1]).column(0).to_pylist() == [2999]
