"""Arrow batches of files and directories; what the decoders do is tested in tests/decode."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import MalformedLineError, SchemaMismatchError
from penstock.jsonl import JsonlDir, JsonlFile, unify
from penstock.jsonl._arrow import PIECE_BYTES
from tests.jsonl.doors import COMPRESSIONS, both_doors, read, write

if TYPE_CHECKING:
    from pathlib import Path

PADDING = "x" * 1000
PIECE_ROWS = PIECE_BYTES // 1000
"""More rows than a piece of text has, where each row carries PADDING."""


def batches(source: Path, door: str = "sync", **options: object) -> list[pa.RecordBatch]:
    outcome = read(source, door, "arrow_batches", **options)
    if outcome.error is not None:
        raise outcome.error
    for batch in outcome.items:
        batch.validate(full=True)
    return outcome.items


def rows(parts: list[pa.RecordBatch]) -> list[Any]:
    return [row for part in parts for row in part.to_pylist()]


def lines(*records: object) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


@both_doors
@pytest.mark.parametrize("ending", COMPRESSIONS)
@pytest.mark.parametrize("schema", [None, "strict", pa.schema({"n": pa.int32()})])
def test_batches_have_exactly_the_size_asked_for(
    schema: pa.Schema | str | None, ending: str, door: str, tmp_path: Path
) -> None:
    path = tmp_path / f"a.jsonl{ending}"
    write(JsonlFile(path), [{"n": n} for n in range(1000)])
    for size in (1, 333, 500, 1000, 1001):
        parts = batches(path, door, batch_size=size, schema=schema)
        whole, rest = divmod(1000, size)
        assert [part.num_rows for part in parts] == [size] * whole + [rest] * bool(rest)
        assert rows(parts) == [{"n": n} for n in range(1000)]


@both_doors
def test_batches_have_65536_rows_unless_told_otherwise(door: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n":1}\n' * 150_000)
    for source in (path, tmp_path):
        assert [part.num_rows for part in batches(source, door)] == [65536, 65536, 18928]


@given(
    counts=st.lists(st.integers(0, 7), max_size=6),
    size=st.integers(1, 10),
    endings=st.lists(st.sampled_from(COMPRESSIONS), min_size=6, max_size=6),
    door=st.sampled_from(["sync", "async"]),
    schema=st.sampled_from([None, "strict", pa.schema({"n": pa.int64()})]),
)
def test_batches_span_shards(  # noqa: PLR0913, PLR0917 (drawn and passed by name)
    counts: list[int],
    size: int,
    endings: list[str],
    door: str,
    schema: pa.Schema | str | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("shards")
    values = [{"n": n} for n in range(sum(counts))]
    left = list(values)
    for number, count in enumerate(counts):
        file = JsonlFile(directory / f"shard-{number}.jsonl{endings[number]}")
        write(file, left[:count])
        del left[:count]
    parts = batches(directory, door, batch_size=size, schema=schema)
    assert rows(parts) == values
    assert [part.num_rows for part in parts[:-1]] == [size] * (len(parts) - 1)
    assert len(parts) == -(-len(values) // size)


@both_doors
def test_a_given_schema_decodes_just_those_columns(door: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines({"a": 1, "b": "x", "c": [1]}, {"b": "y", "a": 2}, {"a": None}))
    schema = pa.schema({"b": pa.string(), "a": pa.int16(), "new": pa.float64()})
    (part,) = batches(path, door, schema=schema)
    assert part.schema == schema
    assert part.to_pydict() == {"b": ["x", "y", None], "a": [1, 2, None], "new": [None] * 3}


@both_doors
def test_a_schema_without_columns_still_counts_rows(door: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(*[{"a": 1}] * 25))
    parts = batches(path, door, schema=pa.schema([]), batch_size=10)
    assert [(part.num_rows, part.num_columns) for part in parts] == [(10, 0), (10, 0), (5, 0)]


@both_doors
def test_a_value_that_does_not_fit_the_schema_is_a_bad_line(door: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines({"a": 1}, {"a": "one"}, {"a": 2}, {"a": 300}, {"a": 3}))
    schema = pa.schema({"a": pa.int8()})
    error = read(path, door, "arrow_batches", schema=schema).error
    assert isinstance(error, MalformedLineError)
    assert f"{path}, line 2:" in str(error)
    assert "'a'" in str(error)
    seen: list[tuple[int, bytes]] = []
    parts = batches(
        path, door, schema=schema, on_error=lambda number, line, _: seen.append((number, line))
    )
    assert rows(parts) == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert seen == [(2, b'{"a": "one"}'), (4, b'{"a": 300}')]


@both_doors
@pytest.mark.parametrize("schema", ["loose", "", 1, {"a": "int64"}])
def test_another_schema_is_a_value_error(schema: object, door: str, tmp_path: Path) -> None:
    method = f"iter_arrow_batches{'_sync' if door == 'sync' else ''}"
    for source in (JsonlFile(tmp_path / "a.jsonl"), JsonlDir(tmp_path)):
        with pytest.raises(ValueError, match="schema="):
            getattr(source, method)(schema=schema)


@both_doors
def test_the_schema_widens_and_no_late_field_is_dropped(
    door: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    early = {"pad": PADDING, "int": 1, "null": None, "deep": {"a": 1}, "mixed": 1}
    late = {"int": 0.5, "null": [1], "new": "field", "deep": {"b": "x"}, "mixed": "text"}
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(*[early] * PIECE_ROWS * 2, late))
    parts = batches(path, door, batch_size=500)
    assert parts[0].schema.names == ["pad", "int", "null", "deep", "mixed"]
    assert parts[-1].schema.names == ["pad", "int", "null", "deep", "mixed", "new"]
    table = unify(parts)
    assert table.num_rows == PIECE_ROWS * 2 + 1
    assert table.schema.field("int").type == pa.float64()
    assert table.schema.field("null").type == pa.list_(pa.int64())
    assert table.schema.field("new").type == pa.string()
    assert table.schema.field("mixed").type == pa.string()
    first, last = table.slice(0, 1).to_pylist()[0], table.slice(PIECE_ROWS * 2).to_pylist()[0]
    assert first["deep"] == {"a": 1, "b": None}
    assert first["mixed"] == "1"
    assert first["new"] is None
    assert last == {"pad": None, **late, "deep": {"a": None, "b": "x"}}
    warned = [entry for entry in caplog.records if "'mixed'" in entry.getMessage()]
    assert [entry.levelno for entry in warned] == [logging.WARNING]


@both_doors
def test_the_schema_widens_across_shards(door: str, tmp_path: Path) -> None:
    (tmp_path / "part-0.jsonl").write_bytes(lines({"a": 1}, {"a": 2}))
    (tmp_path / "part-1.jsonl").write_bytes(lines({"a": 0.5, "b": True}, {"a": None}))
    parts = batches(tmp_path, door, batch_size=3)
    assert [part.num_rows for part in parts] == [3, 1]
    assert unify(parts).to_pydict() == {
        "a": [1.0, 2.0, 0.5, None],
        "b": [None, None, True, None],
    }


@both_doors
def test_strict_raises_where_the_schema_would_widen_and_names_the_place(
    door: str, tmp_path: Path
) -> None:
    path = tmp_path / "part-1.jsonl"
    (tmp_path / "part-0.jsonl").write_bytes(lines(*[{"a": n} for n in range(20)]))
    path.write_bytes(b"\n" + lines({"a": 20}, {"a": 21, "b": 1}))
    outcome = read(tmp_path, door, "arrow_batches", schema="strict", batch_size=10)
    assert isinstance(outcome.error, SchemaMismatchError)
    assert isinstance(outcome.error, ValueError)
    assert f"{path}, line 3: field 'b'" in str(outcome.error)
    assert rows(outcome.items) == [{"a": n} for n in range(20)]
    path.write_bytes(lines({"a": 20}))
    assert rows(batches(tmp_path, door, schema="strict")) == [{"a": n} for n in range(21)]


@both_doors
def test_lines_that_are_no_objects_are_bad_lines(door: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":1}\nnull\n[2]\n\n"x"\n{"a":3}\n')
    for schema in (None, "strict", pa.schema({"a": pa.int64()})):
        seen: list[int] = []
        parts = batches(path, door, schema=schema, on_error=lambda n, *_, seen=seen: seen.append(n))
        assert rows(parts) == [{"a": 1}, {"a": 3}]
        assert seen == [2, 3, 5]


@both_doors
def test_strings_stay_strings_and_wide_integers_become_strings_never_floats(
    door: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.jsonl"
    row = {"t": "2020-01-01T00:00:00Z", "i": 2**53 + 1, "u": 2**64 - 1, "w": 2**64}
    path.write_bytes(lines(row, row))
    (part,) = batches(path, door)
    types = {field.name: str(field.type) for field in part.schema}
    assert types == {"t": "string", "i": "int64", "u": "uint64", "w": "string"}
    assert part.to_pylist()[1] == {**row, "w": str(2**64)}
    assert len([entry for entry in caplog.records if "'w'" in entry.getMessage()]) == 1


@both_doors
@pytest.mark.parametrize("schema", [None, "strict", pa.schema({"a": pa.int64()})])
def test_empty_files_and_blank_lines_give_no_batch(
    schema: pa.Schema | str | None, door: str, tmp_path: Path
) -> None:
    for text in (b"", b"\n \n", b"\xef\xbb\xbf"):
        (tmp_path / "a.jsonl").write_bytes(text)
        assert batches(tmp_path, door, schema=schema) == []


def test_sync_and_async_give_the_same_batches(tmp_path: Path) -> None:
    write(
        JsonlDir(tmp_path),
        ({"n": n, "pad": PADDING, f"field{n // 1500}": n / 2} for n in range(6000)),
        max_records_per_shard=1700,
        shard_extension=".jsonl.zst",
    )
    for options in ({}, {"batch_size": 700}, {"schema": pa.schema({"n": pa.int64()})}):
        one, other = (batches(tmp_path, door, **options) for door in ("sync", "async"))
        assert [part.schema for part in one] == [part.schema for part in other]
        assert one == other
        assert unify(one).num_rows == 6000


def test_unify_of_nothing_is_an_empty_table() -> None:
    assert unify([]).num_rows == 0
