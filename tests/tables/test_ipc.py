"""Arrow IPC: types, maps, compressed and forged batches."""

from __future__ import annotations

import re
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import penstock
from penstock.errors import CorruptFileError, SchemaMismatchError, UnsupportedFileError
from penstock.storage import LocalStore
from penstock.tables import _ipc, head_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))


NEW = {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}
forms = pytest.mark.parametrize("form", NEW)


def write(path: Path, table: pa.Table, rows: int = 10, form: str = "file", **options: Any) -> Path:
    made = pa.ipc.IpcWriteOptions(**options)
    with NEW[form](str(path), table.schema, options=made) as file:
        file.write_table(table, rows)
    return path


@forms
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_values_of_every_type_come_as_they_were_written(
    tmp_path: Path, compression: str | None, form: str
) -> None:
    words = pa.array(["x", None, "y", "x"])
    table = pa.table(
        {
            "id": pa.array(range(4), pa.uint8()),
            "map": pa.array([[("k", 1)], None, [], [("a", None)]], pa.map_("string", "int64")),
            "deep": pa.array([[[1, None], []], None, [], [None]]),
            "vector": pa.array([[1, 2], [3, 4], None, [5, 6]], pa.list_(pa.float32(), 2)),
            "large": pa.array([["x"], None, [], ["y"]], pa.large_list(pa.large_string())),
            "view": words.cast(pa.string_view()),
            "bytes": pa.array([b"\x00\xff", b"", None, b"a"], pa.binary_view()),
            "word": words.dictionary_encode(),
            "words": pa.array([["x"], None, [], ["y"]], pa.list_(pa.dictionary("int8", "string"))),
            "money": pa.array([Decimal("1.50"), None, Decimal(0), Decimal("-2.25")]),
            "when": pa.array([0, None, 2, 3], pa.timestamp("us", "Europe/Berlin")),
            "span": pa.array([0, None, 2, 3], pa.duration("s")),
            "half": pa.array(np.array([0, 0.5, 1, 2], np.float16)),
            "none": pa.nulls(4),
            "user": [{"a": 1}, None, {"a": None}, {"a": 2}],
        }
    )
    path = write(tmp_path / "a.arrow", table, 3, form, compression=compression)
    rows = penstock.open(path)
    assert rows[[3, 0, 1, 2]] == [table.to_pylist()[n] for n in (3, 0, 1, 2)]
    for name in table.column_names:
        assert rows.read([2, 3], [name])[name].to_pylist() == table[name].to_pylist()[2:]


@forms
def test_dictionaries_may_grow_from_batch_to_batch(tmp_path: Path, form: str) -> None:
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    schema = pa.schema({"word": pa.dictionary(pa.int32(), pa.string())})
    with NEW[form](str(tmp_path / "a.arrow"), schema, options=options) as file:
        for some in (["a"], ["a", "b"], ["a", "b", "c"]):
            codes = pa.array(range(len(some)), pa.int32())
            words = pa.DictionaryArray.from_arrays(codes, some)
            file.write_batch(pa.record_batch([words], ["word"]))
    rows = penstock.open(tmp_path / "a.arrow")
    assert [row["word"] for row in rows] == ["a", "a", "b", "a", "b", "c"]


def test_a_stream_may_replace_a_dictionary(tmp_path: Path) -> None:
    schema = pa.schema({"word": pa.dictionary(pa.int32(), pa.string())})
    with pa.ipc.new_stream(str(tmp_path / "a.arrow"), schema) as stream:
        for some in (["a", "b"], ["c"], ["d", "e"]):
            codes = pa.array(range(len(some)), pa.int32())
            words = pa.DictionaryArray.from_arrays(codes, some)
            stream.write_batch(pa.record_batch([words], ["word"]))
    rows = penstock.open(tmp_path / "a.arrow")
    assert [row["word"] for row in rows[[4, 3, 2, 1, 0]]] == ["e", "d", "c", "b", "a"]


def test_a_stream_without_its_end_has_the_batches_that_are_whole(tmp_path: Path) -> None:
    data = write(tmp_path / "whole.arrow", pa.table({"n": range(25)}), 10, "stream").read_bytes()
    end = data.rindex(b"\xff\xff\xff\xff")
    (tmp_path / "open.arrow").write_bytes(data[:end])
    assert [row["n"] for row in penstock.open(tmp_path / "open.arrow")] == [*range(25)]
    (tmp_path / "unnamed").write_bytes(data)
    assert len(penstock.open(tmp_path / "unnamed")) == 25
    (tmp_path / "cut.arrow").write_bytes(data[: end - 8])
    with pytest.raises(CorruptFileError, match="it ends in the message at byte"):
        penstock.open(tmp_path / "cut.arrow")
    (tmp_path / "schema.arrow").write_bytes(data[: data.index(b"\xff\xff\xff\xff", 8)])
    assert len(penstock.open(tmp_path / "schema.arrow")) == 0


def test_a_message_of_a_stream_whose_kind_is_unknown_is_refused_with_its_records(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "a.arrow", pa.table({"n": range(25)}), 10, "stream")
    data = path.read_bytes()
    second = [at for at in range(len(data)) if data.startswith(b"\xff\xff\xff\xff", at)][2]
    kind = data.index(bytes([3, 4, 0]), second)  # a record batch, in metadata of version 5
    path.write_bytes(data[:kind] + bytes([3 ^ 16]) + data[kind + 1 :])
    with pytest.raises(OSError, match="Header-type"):
        pa.ipc.open_stream(path).read_all()
    with pytest.raises(CorruptFileError, match=f"message at byte {second:,} holds neither records"):
        penstock.open(path)


def test_a_folder_of_datasets_opens_as_it_was_saved(tmp_path: Path) -> None:
    """`save_to_disk` of Hugging Face's datasets writes streams, and two descriptions."""
    for number in range(2):
        name = f"data-{number:05}-of-00002.arrow"
        write(tmp_path / name, pa.table({"n": range(5 * number, 5 * number + 5)}), 3, "stream")
    for name in ("dataset_info.json", "state.json"):
        (tmp_path / name).write_text("{}")
    assert [row["n"] for row in penstock.open(tmp_path)] == [*range(10)]


def test_a_plain_local_file_is_mapped_and_handed_out_as_a_copy(tmp_path: Path) -> None:
    table = pa.table({"n": range(1_000_000)})
    path = write(tmp_path / "a.arrow", table, 500_000)
    rows = penstock.open(path)
    before = pa.total_allocated_bytes()
    assert rows[700_001] == {"n": 700_001}
    assert pa.total_allocated_bytes() < before + 100_000
    some = rows.read(range(500_000, 500_004), ["n"])
    path.write_bytes(b"")  # To touch the map would end the process.
    assert some["n"].to_pylist() == [500_000, 500_001, 500_002, 500_003]


@pytest.mark.parametrize("kind", ["union", "runs"])
def test_columns_whose_rows_cannot_be_taken_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    numbers, codes = pa.array([1, 2, 3]), pa.array([0, 0, 0], pa.int8())
    column = pa.UnionArray.from_sparse(codes, [numbers])
    if kind == "runs":
        column = pa.RunEndEncodedArray.from_arrays([1, 3], ["a", "b"])
    table = pa.table({"id": [1, 2, 3], "odd": column})
    with pytest.raises(SchemaMismatchError, match=r"a\.arrow: field 'odd' is .*not read here"):
        penstock.open(write(tmp_path / "a.arrow", table))


def _first_batch(path: Path) -> tuple[int, bytes]:
    """Return where the metadata of the first batch lies, and what they are."""
    file = LocalStore().open(str(path))
    head = head_of(_ipc.read_ipc, "Arrow IPC", file)
    assert isinstance(head, _ipc.IpcHead)
    start, size, _ = head.batches[0]
    return start, file.read_at(start, size)


def _forge(path: Path, old: int, new: int, count: int = 1) -> None:
    """Put a number in the place of another in the metadata of the first batch."""
    start, metadata = _first_batch(path)
    assert metadata.count(struct.pack("<q", old)) >= count
    forged = metadata.replace(struct.pack("<q", old), struct.pack("<q", new), count)
    data = path.read_bytes()
    path.write_bytes(data[:start] + forged + data[start + len(metadata) :])


def test_a_batch_that_claims_other_rows_than_its_columns_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrow", pa.table({"n": range(7919)}), 7919)
    _forge(path, 7919, 0)
    with pytest.raises(CorruptFileError, match=r"no whole Arrow IPC file.*its first column"):
        penstock.open(path)


def test_a_batch_without_rows_that_has_too_few_columns_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrow", pa.table({"n": range(7919), "m": range(7919)}), 7919)
    _forge(path, 7919, 0, 3)
    data, nodes = path.read_bytes(), bytes(32)
    assert data.count(struct.pack("<I", 2) + nodes) == 1
    path.write_bytes(data.replace(struct.pack("<I", 2) + nodes, struct.pack("<I", 1) + nodes))
    with pytest.raises(CorruptFileError, match="it has 1 of 2 columns"):
        penstock.open(path)


def test_a_batch_that_claims_more_rows_than_fit_is_refused_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrow", pa.table({"n": range(7919)}), 7919)
    _forge(path, 7919, 1 << 50, 2)
    with pytest.raises(CorruptFileError, match=r"claims record batches of 1,125,899,906,842,624"):
        penstock.open(path)


def test_buffers_that_lie_outside_or_claim_too_much_are_refused_before_they_are_read(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "a.arrow", pa.table({"n": range(7919), "m": range(7919)}), 7919)
    _forge(path, 7919 * 8, 1 << 40)
    with pytest.raises(CorruptFileError, match=r"record batch 0 cannot be read: a buffer lies"):
        _ = penstock.open(path)[0]
    packed = write(tmp_path / "b.arrow", pa.table({"n": range(7919)}), 7919, compression="zstd")
    data = packed.read_bytes()
    old, new = struct.pack("<q", 7919 * 8), struct.pack("<q", 1 << 40)
    assert data.count(old) == 1
    packed.write_bytes(data.replace(old, new))
    with pytest.raises(CorruptFileError, match=r"buffers of record batch 0, which take 1,099,511"):
        _ = penstock.open(packed)[0]


def test_a_dictionary_that_claims_too_much_is_refused_before_it_is_read(tmp_path: Path) -> None:
    column = pa.array(range(1009)).dictionary_encode()
    path = write(tmp_path / "a.arrow", pa.table({"n": column}), 1009, compression="zstd")
    data, size = path.read_bytes(), struct.pack("<q", 1009 * 8)
    assert data.count(size) == 1
    path.write_bytes(data.replace(size, struct.pack("<q", 1 << 50)))
    with pytest.raises(CorruptFileError, match=r"buffers of dictionary 0, which take 1,125,899"):
        penstock.open(path)


def test_damaged_offsets_are_found_before_values_are_taken(tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrow", pa.table({"s": ["ab", "cd", "ef"]}))
    data = path.read_bytes()
    offsets = np.array([0, 2, 4, 6], np.int32).tobytes()
    assert data.count(offsets) == 1
    path.write_bytes(data.replace(offsets, np.array([0, 2, 1 << 30, 6], np.int32).tobytes()))
    with pytest.raises(CorruptFileError, match=r"record batch 0 cannot be read: .*offset"):
        _ = penstock.open(path)[1]


def test_tables_of_flatbuffers_point_nowhere_else() -> None:
    with pytest.raises(ValueError, match="point to byte"):
        _ipc.FlatTable(b"\xff\xff\xff\xff")
    with pytest.raises(ValueError, match="point to byte"):
        _ipc.FlatTable(b"\x04\0\0\0\xff\xff\0\0").place(1)


def test_categories_of_polars_are_read_as_texts(tmp_path: Path) -> None:
    kinds = {"c": pl.Categorical, "e": pl.Enum(["x", "y"]), "l": pl.List(pl.Categorical)}
    frame = pl.DataFrame(
        {"c": ["a", "b", None], "e": ["y", "x", "y"], "l": [["a"], [], None]}, schema=kinds
    )
    frame.write_ipc(tmp_path / "a.arrow")
    rows = penstock.open(tmp_path / "a.arrow")
    assert rows[[2, 0, 1]] == frame[[2, 0, 1]].to_dicts()
    fields = {"c": "category", "l": "list<string>"}
    (batch,) = penstock.DataLoader(rows, fields, batch_size=3)
    assert batch["l"] == [["a"], [], []]


@pytest.mark.parametrize(
    ("type_", "data", "said"),
    [
        (pa.date64(), struct.pack("<2q", 0, 1), "does not represent a whole number of days"),
        (pa.decimal128(3, 2), struct.pack("<4q", 1, 0, 99_999, 0), "does not fit in precision"),
        (pa.time32("s"), struct.pack("<2i", 0, 86_400), "is not within the acceptable range"),
    ],
    ids=str,
)
def test_a_value_outside_of_its_type_is_named_by_field_and_type(
    tmp_path: Path, type_: pa.DataType, data: bytes, said: str
) -> None:
    odd = pa.Array.from_buffers(type_, 2, [None, pa.py_buffer(data)])
    rows = penstock.open(write(tmp_path / "a.arrow", pa.table({"n": [1, 2], "x": odd})))
    assert rows.read([1], ["n"])["n"].to_pylist() == [2]
    named = rf"field 'x' is {re.escape(str(type_))}, and it holds a value outside of that: .*{said}"
    with pytest.raises(UnsupportedFileError, match=named):
        rows[0]


@forms
@pytest.mark.parametrize(("unit", "name"), [(0, "month_interval"), (1, "day_time_interval")])
def test_a_type_that_pyarrow_does_not_know_is_named_with_its_field(
    tmp_path: Path, form: str, unit: int, name: str
) -> None:
    schema = pa.schema({"n": pa.int64(), "x": pa.month_day_nano_interval()})
    with NEW[form](str(tmp_path / "a.arrow"), schema):
        pass
    # The table of FlatBuffers that has the unit: its fields, where they are, room, 2.
    before = struct.pack("<3HiH", 6, 8, 6, 6, 0)
    data = (tmp_path / "a.arrow").read_bytes()
    assert before + bytes([2]) in data
    (tmp_path / "a.arrow").write_bytes(data.replace(before + bytes([2]), before + bytes([unit])))
    with pytest.raises(SchemaMismatchError, match=rf"field 'x' is {name}, which is not read here"):
        penstock.open(tmp_path / "a.arrow")
