"""Avro: types, codecs, blocks and forged headers."""

from __future__ import annotations

import io
import json
import sys
import zlib
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest

import penstock
from penstock.errors import (
    CorruptFileError,
    MissingExtraError,
    SchemaMismatchError,
    UnsupportedFileError,
)
from penstock.storage import LocalStore
from penstock.tables import _avro, head_of

if TYPE_CHECKING:
    from pathlib import Path

SYNC = bytes(range(16))


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))


def record(**types: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": type_} for name, type_ in types.items()]
    return {"type": "record", "name": "Row", "namespace": "of.tests", "fields": fields}


def write(
    path: Path, schema: dict[str, Any], rows: list[dict[str, Any]], codec: str = "null"
) -> Path:
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows, codec, 1000, sync_marker=SYNC)
    return path


def number(value: int) -> bytes:
    """Return a number as Avro writes it."""
    value, found = value << 1 ^ value >> 63, b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def by_hand(schema: Any, *blocks: tuple[int, bytes], codec: str = "null") -> bytes:
    """Return a file of blocks: the number of records that each claims, and its bytes."""
    entries = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}
    parts = [b"Obj\x01", number(len(entries))]
    for name, value in entries.items():
        parts += [number(len(name)), name.encode(), number(len(value)), value]
    parts += [number(0), SYNC]
    for count, data in blocks:
        parts += [number(count), number(len(data)), data, SYNC]
    return b"".join(parts)


def logical(type_: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": name, **more}


def test_types_of_avro_are_types_of_arrow(tmp_path: Path) -> None:
    money = logical("bytes", "decimal", precision=9, scale=2)
    schema = record(
        small="int",
        text=["null", "string"],
        last=["string", "null"],
        number=["null", "int", "double"],
        word={"type": "enum", "name": "Word", "symbols": ["a", "b"]},
        again="Word",
        raw={"type": "fixed", "name": "Three", "size": 3},
        day=logical("int", "date"),
        clock=["null", logical("long", "time-micros")],
        when=["null", logical("long", "timestamp-millis")],
        local=logical("long", "local-timestamp-micros"),
        exact=logical("long", "timestamp-nanos"),
        key=logical("string", "uuid"),
        money=["null", money],
        prices={"type": "array", "items": money},
        counts={"type": "map", "values": "long"},
        inner=[
            "null",
            {"type": "record", "name": "In", "fields": [{"name": "a", "type": "float"}]},
        ],
        nothing="null",
    )
    key = UUID(int=7)
    row = {
        "small": 1, "text": "x", "last": None, "number": 2, "word": "b", "again": "a",
        "raw": b"abc", "day": date(2024, 2, 29), "clock": time(1, 2, 3, 4),
        "when": datetime(2024, 1, 2, 3, 4, 5, 6000, UTC),
        "local": datetime.fromisoformat("2024-01-02"),
        "exact": 1_700_000_000_123_456_000, "key": str(key), "money": Decimal("1.25"),
        "prices": [Decimal("0.50"), Decimal(-1)], "counts": {"k": 1}, "inner": {"a": 0.5},
        "nothing": None,
    }  # fmt: skip
    empty = dict.fromkeys(("text", "last", "number", "clock", "when", "money", "inner"))
    other = row | empty | {"prices": [], "counts": {}}
    rows = penstock.open(write(tmp_path / "a.avro", schema, [row, other]))
    found = rows[0]
    assert found.pop("exact").isoformat().startswith("2023-11-14T22:13:20.123456")
    shown = {name: value for name, value in row.items() if name != "exact"}
    assert found == shown | {"number": 2.0, "counts": [("k", 1)]}
    assert {name: rows[1][name] for name in empty} == empty
    types = {field.name: field.type for field in rows.schema}
    assert types["when"] == pa.timestamp("ms", "UTC")
    assert types["money"] == pa.decimal128(9, 2)
    assert types["number"] == pa.float64()
    assert types["raw"] == pa.binary(3)
    assert types["counts"] == pa.map_(pa.string(), pa.int64())


def test_moments_beyond_those_of_python_are_kept_in_arrow(tmp_path: Path) -> None:
    schema = record(when=logical("long", "timestamp-millis"))
    path = tmp_path / "a.avro"
    path.write_bytes(by_hand(schema, (1, number(10**15))))
    rows = penstock.open(path)
    assert rows.arrow([0])["when"].cast(pa.int64()).to_pylist() == [10**15]


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard", "bzip2", "xz", "snappy"])
def test_blocks_of_every_codec_are_read_in_any_order(
    tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_avro, "_UNIT_BYTES", 1)
    schema, path = record(n="long", s="string"), tmp_path / "a.avro"
    rows = [{"n": n, "s": f"{n}" * 10} for n in range(500)]
    write(path, schema, rows, "null" if codec == "snappy" else codec)
    if codec == "snappy":  # fastavro has no library for it here; pyarrow has.
        blocks = []
        for some in (rows[:200], rows[200:]):
            text = io.BytesIO()
            for one in some:
                fastavro.schemaless_writer(text, schema, one)
            packed = pa.Codec("snappy").compress(text.getvalue(), asbytes=True)
            check = zlib.crc32(text.getvalue()).to_bytes(4, "big")
            blocks.append((len(some), packed + check))
        path.write_bytes(by_hand(schema, *blocks, codec="snappy"))
    source = penstock.open(path)
    assert len(source.blocks) > 2
    assert source[:] == rows
    assert source[[499, 3, 250]] == [rows[499], rows[3], rows[250]]
    data = bytearray(path.read_bytes())
    data[data.index(SYNC) + 60] ^= 0x10  # In the first block.
    path.write_bytes(data)
    damaged = penstock.open(path)
    if codec not in ("null", "deflate"):  # The others have checksums.
        with pytest.raises(CorruptFileError, match=r"a\.avro: block \d+ cannot be read"):
            damaged[:]


def test_small_blocks_are_read_together(tmp_path: Path) -> None:
    rows = [{"n": n, "s": "x" * 100} for n in range(6000)]
    path = write(tmp_path / "a.avro", record(n="long", s="string"), rows)
    source = penstock.open(path)
    assert path.read_bytes().count(SYNC) > 500
    assert 8 <= len(source.blocks) - 1 <= 12
    assert source[[5999, 0]] == [rows[5999], rows[0]]


def test_large_blocks_are_jumped_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_avro, "_LARGE_BLOCK", 1000)
    monkeypatch.setattr(_avro, "_WINDOW", 2000)
    schema, path = record(s="string"), tmp_path / "a.avro"
    text = number(50_000) + b"x" * 50_000
    path.write_bytes(by_hand(schema, *[(1, text)] * 20, (0, b"")))
    read = []

    class Counted:
        def __init__(self) -> None:
            self._file = LocalStore().open(str(path))
            self.path, self.size = self._file.path, self._file.size
            self.close = self._file.close
            self.read_ranges = self._file.read_ranges

        def read_at(self, start: int, length: int) -> bytes:
            read.append(length)
            return self._file.read_at(start, length)

    head = head_of(_avro.read_avro, "Avro", Counted())
    assert head.unit_rows.sum() == 20
    assert sum(read) < _avro._HEADER_BYTES + 10_000  # noqa: SLF001
    assert penstock.open(path)[19] == {"s": "x" * 50_000}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "array", "items": "int"}, "have no fields"),
        (record(), "have no fields"),
        (record(a=["null", "string", "long"]), "field 'a' holds string or long, and no type"),
        (record(a={"type": "array", "items": "null"}), "'a' is a list of nothing but nulls"),
        (record(a=["null", "Row"]), "inside of themselves"),
    ],
)
def test_types_that_arrow_does_not_have_are_refused_by_name(
    tmp_path: Path, schema: Any, why: str
) -> None:
    (tmp_path / "a.avro").write_bytes(by_hand(schema))
    with pytest.raises(SchemaMismatchError, match=rf"a\.avro: .*{why}"):
        penstock.open(tmp_path / "a.avro")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"Obj\x01" + number(1 << 40), "header does not end"),
        (b"Obj\x01" + b"\xff" * 20, "endless number"),
        (by_hand({"type": "what"}), "its schema cannot be used"),
        (by_hand("[" * 9000), "its schema cannot be used"),
        (by_hand(record(a="int"), (1 << 40, b"\x02")), "claims blocks of"),
        (by_hand(record(a="int")) + number(1) + number(1 << 50), "claims 1 record in 1,125,899"),
        (by_hand(record(a="int"), (1, b"\x02"))[:-1] + b"\xff", "no sync marker"),
        (by_hand(record(a="int"), (1, b"\x02"))[:-18], "ends in the block"),
    ],
)
def test_a_forged_header_or_block_is_refused_when_it_is_opened(
    tmp_path: Path, data: bytes, why: str
) -> None:
    (tmp_path / "a.avro").write_bytes(data)
    with pytest.raises(CorruptFileError, match=why):
        penstock.open(tmp_path / "a.avro")


def test_a_codec_that_is_not_read_is_not_called_damage(tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(by_hand(record(a="int"), codec="lz4"))
    with pytest.raises(UnsupportedFileError, match=r"compressed with 'lz4', .*Write it again"):
        penstock.open(tmp_path / "a.avro")


@pytest.mark.parametrize("kinds", [["long", "double"], ["null", "int", "float"]])
def test_integers_and_floats_of_a_union_stay_what_they_are(
    tmp_path: Path, kinds: list[str]
) -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": kinds}]}
    schema = record(
        a=kinds,
        items={"type": "array", "items": kinds},
        by_name={"type": "map", "values": kinds},
        inner=["null", inner],
    )
    values = [0.5, 3, -1, *([None] if "null" in kinds else []), *([2**53 + 1] * ("long" in kinds))]
    rows = [
        {
            "a": v,
            "items": values[at:],
            "by_name": {"v": v, "w": 1},
            "inner": {"x": v} if at % 2 else None,
        }
        for at, v in enumerate(values)
    ]
    source = penstock.open(write(tmp_path / "a.avro", schema, rows))
    expected = [row | {"by_name": [*row["by_name"].items()]} for row in rows]
    assert repr(source[:]) == repr(expected)
    whole = [at for at, v in enumerate(values) if isinstance(v, int)]
    assert source.read(whole, {"a": "int64"})["a"].to_pylist() == [values[at] for at in whole]
    assert [row["a"] for row in source.where("a == 3")] == [3]
    if "long" in kinds:
        assert [row["a"] for row in source.where(f"a == {2**53 + 1}")] == [2**53 + 1]
        with pytest.raises(SchemaMismatchError, match=r"'a' is int64 and .* in .*a\.avro"):
            source.arrow()
    else:
        assert source.arrow(fields=["a"])["a"].to_pylist() == values


@pytest.mark.parametrize(
    ("schema", "block", "codec"),
    [
        (record(a="int"), (2, b"\x02"), "null"),
        (record(a="int"), (1, b"\x02\x02"), "null"),
        (record(a="string"), (1, number(1 << 40) + b"x"), "null"),
        (record(a="string"), (1, number(1) + b"\xff"), "null"),
        (record(a={"type": "array", "items": "int"}), (1, number(1 << 40) + b"\x02"), "null"),
        (record(a="null"), (1_000_000, b""), "null"),
        (record(a="int"), (1, b"\xff" * 9), "deflate"),
    ],
)
def test_a_forged_block_is_refused_when_it_is_read(
    tmp_path: Path, schema: Any, block: tuple[int, bytes], codec: str
) -> None:
    (tmp_path / "a.avro").write_bytes(by_hand(schema, block, codec=codec))
    rows = penstock.open(tmp_path / "a.avro")
    with pytest.raises(CorruptFileError, match=r"a\.avro: block 0 cannot be read"):
        _ = rows[0]


@pytest.mark.parametrize("codec", ["deflate", "zstandard", "bzip2", "xz"])
def test_a_block_that_inflates_beyond_measure_is_refused(
    tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.tables._head._LEAST_ALLOWED", 1 << 20)
    monkeypatch.setattr("penstock.tables._head._MOST_INFLATED", 1)
    path = write(tmp_path / "a.avro", record(s="string"), [{"s": "x" * (3 << 20)}], codec)
    with pytest.raises(CorruptFileError, match=r"records in [\d,]+ bytes, which take 1,048,577"):
        _ = penstock.open(path)[0]


def test_without_fastavro_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.avro", record(a="int"), [{"a": 1}])
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'penstock\[avro\]'"):
        penstock.open(path)
