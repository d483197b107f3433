"""ORC: types, compressions, names."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import orc

import penstock
from penstock.errors import CorruptFileError, PenstockError, UnsupportedFileError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.fault_proxy import FaultProxy
    from tests.servers.s3_server import S3Server


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("packing", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
def test_values_of_every_type_come_as_they_were_written(tmp_path: Path, packing: str) -> None:
    count = 20_000
    table = pa.table(
        {
            "id": range(count),
            "text": [f"{n * 7919 % count:09}" if n % 3 else None for n in range(count)],
            "word": ["ab"[n % 2] for n in range(count)],
            "flag": [n % 5 == 0 for n in range(count)],
            "tags": [[n] * (n % 3) for n in range(count)],
            "map": pa.array([[("k", n)] for n in range(count)], pa.map_("string", "int32")),
            "user": [{"age": n % 90, "home": {"city": "Köln"}} for n in range(count)],
            "sum": [Decimal(n) / 4 for n in range(count)],
            "when": [datetime(2024, 1, 1, 2, 3, 4, n, UTC) for n in range(count)],
            "bytes": [bytes([n % 256]) for n in range(count)],
        }
    )
    path = tmp_path / "a.orc"
    orc.write_table(
        table, path, compression=packing, stripe_size=100_000, dictionary_key_size_threshold=0.5
    )
    rows = penstock.open(path)
    ids = [19_999, 0, *range(9_000, 9_020)]
    assert rows[ids] == table.take(ids).to_pylist()
    few = table.select(["tags", "id"]).take(ids)
    assert rows.read(ids, ["tags", "id"]).to_pylist() == few.to_pylist()


def test_a_name_with_a_dot_is_not_taken_for_a_path(tmp_path: Path) -> None:
    orc.write_table(pa.table({"a": [{"b": 1}], "a.b": ["x"]}), tmp_path / "a.orc")
    rows = penstock.open(tmp_path / "a.orc")
    assert rows[0] == {"a": {"b": 1}, "a.b": "x"}
    assert rows.read([0], {"a.b": "string"}).to_pydict() == {"a.b": ["x"]}


def test_few_columns_of_a_wide_remote_stripe_are_read_by_themselves(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy, tmp_path: Path
) -> None:
    count, width = 30_000, 30
    columns = {f"c{at}": [f"{n * (at + 7919):012}" for n in range(count)] for at in range(width)}
    orc.write_table(pa.table(columns), tmp_path / "a.orc", compression="uncompressed")
    data = (tmp_path / "a.orc").read_bytes()
    s3_server.put(bucket, "a.orc", data)
    rows = penstock.open(f"s3://{bucket}/a.orc", storage_options=fault_proxy.storage_options)
    fault_proxy.clear()
    assert rows.read([29_000], ["c3"])["c3"].to_pylist() == [columns["c3"][29_000]]
    assert sum(request.sent for request in fault_proxy.requests) < len(data) // 2


def test_a_postscript_that_claims_more_than_the_file_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    orc.write_table(pa.table({"a": [1]}), path)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"\xff" if len(data) < 255 else data[-200:-1] + b"\xff")
    with pytest.raises(CorruptFileError, match=r"no whole ORC file: its postscript claims"):
        penstock.open(path)


def test_moments_that_arrow_has_no_nanoseconds_for_are_an_error(tmp_path: Path) -> None:
    table = pa.table({"w": pa.array([datetime(9999, 12, 31)], pa.timestamp("us"))})  # noqa: DTZ001
    orc.write_table(table, tmp_path / "a.orc")
    with pytest.raises(PenstockError, match="out of range"):
        _ = penstock.open(tmp_path / "a.orc")[0]


def test_a_time_beyond_nanoseconds_is_named_by_field_and_type(tmp_path: Path) -> None:
    never = pa.array([datetime(9999, 12, 31)], pa.timestamp("s"))  # noqa: DTZ001 (as ORC has it)
    orc.write_table(pa.table({"n": [1], "x": never}), tmp_path / "a.orc")
    rows = penstock.open(tmp_path / "a.orc")
    assert rows.read([0], ["n"])["n"].to_pylist() == [1]
    named = r"field 'x' is timestamp\[ns\], and it holds a value outside of that: .*253402214400s"
    with pytest.raises(UnsupportedFileError, match=named):
        rows[0]


def test_a_time_zone_that_this_machine_lacks_is_named(tmp_path: Path) -> None:
    table = pa.table({"n": [1], "x": pa.array([0], pa.timestamp("s"))})
    path = tmp_path / "a.orc"
    orc.write_table(table, path, compression="uncompressed")
    path.write_bytes(path.read_bytes().replace(b"GMT", b"XYZ"))
    with pytest.raises(UnsupportedFileError, match=r"field 'x' is timestamp.*XYZ does not exist"):
        penstock.open(path)[0]


def test_records_that_are_no_structs_are_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    orc.write_table(pa.table({"x": [1, 2]}), path, compression="uncompressed")
    struct_of_x, list_of_x = b"\x08\x0c\x12\x01\x01", b"\x08\x0a\x12\x01\x01"
    path.write_bytes(path.read_bytes().replace(struct_of_x, list_of_x))
    with pytest.raises(UnsupportedFileError, match="Only ORC files with a top-level struct"):
        penstock.open(path)
