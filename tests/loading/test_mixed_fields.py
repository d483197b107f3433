"""Fields whose values share no type: `text` and `json`, from the error that names them to a batch.

Every remedy is applied: the advice of errors leads somewhere.
"""

from __future__ import annotations

import gzip
import json
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock import DataLoader
from penstock.errors import OptionError, SchemaMismatchError
from penstock.index import create_default_jsonl_indexer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.datasets import Source
    from tests.servers.s3_server import S3Server

WORKERS = (0, "auto", 2)
RECORDS: list[dict[str, Any]] = [
    {"n": 0, "x": 1, "wide": 2**70, "messages": [{"role": "user", "content": "hi"}]},
    {"n": 1, "x": "one", "wide": -(2**70), "messages": {"a": None, "b": [1, "é"]}},
    {"n": 2, "x": None, "wide": 3, "messages": None},
    {"n": 3, "wide": 2**64},
    {"n": 4, "x": True, "wide": None, "messages": "as it is"},
    {"n": 5, "x": 0.5, "wide": 0, "messages": 12},
]
TEXTS = ["1", "one", None, None, "true", "0.5"]
WIDE = [None if one.get("wide") is None else str(one["wide"]) for one in RECORDS]
MESSAGES = [one.get("messages") for one in RECORDS]
TYPES = {"n": "int64", "x": "text", "wide": "text", "messages": "json"}


def lines(records: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def plain(folder: Path) -> Source:
    (folder / "a.jsonl").write_bytes(lines(RECORDS))
    return penstock.open(folder / "a.jsonl", progress=False)


def zipped(folder: Path) -> Source:
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines(RECORDS)))
    return penstock.open(folder / "a.jsonl.gz", progress=False)


def both(folder: Path) -> Source:
    return plain(folder).take([0, 1, 2]) + penstock.open(RECORDS).take([3, 4, 5])


SOURCES: dict[str, Callable[[Path], Source]] = {
    "lines": plain,
    "gzip": zipped,
    "list": lambda _: penstock.open(RECORDS),
    "sum of views": both,
}


@pytest.mark.parametrize("materialize", [False, True])
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("source", SOURCES)
def test_a_batch_holds_them_beside_typed_fields(
    source: str, workers: Any, materialize: Any, tmp_path: Path
) -> None:
    loader = DataLoader(
        SOURCES[source](tmp_path), TYPES, batch_size=6, num_workers=workers, materialize=materialize
    )
    for _ in range(2):
        (batch,) = loader
        assert batch["n"].tolist() == [0, 1, 2, 3, 4, 5]
        assert batch["x"] == TEXTS
        assert batch["wide"] == WIDE
        assert batch["messages"] == MESSAGES


def test_remote_lines_hold_them(s3_server: S3Server, bucket: str) -> None:
    s3_server.put(bucket, "set/a.jsonl", lines(RECORDS))
    source = penstock.open(f"s3://{bucket}/set", storage_options=s3_server.storage_options)
    (batch,) = DataLoader(source, TYPES, batch_size=6)
    assert (batch["x"], batch["messages"]) == (TEXTS, MESSAGES)


@pytest.mark.parametrize("source", SOURCES)
def test_arrow_has_strings_and_json_text(source: str, tmp_path: Path) -> None:
    opened = SOURCES[source](tmp_path)
    columns = opened.read(range(6), {"x": "text", "messages": "json", "m": "list<json>"})
    assert columns.schema.types == [pa.string(), pa.string(), pa.list_(pa.string())]
    assert columns["x"].to_pylist() == TEXTS
    texts = columns["messages"].to_pylist()
    assert [None if text is None else json.loads(text) for text in texts] == MESSAGES
    assert opened.arrow(fields={"x": "text"})["x"].to_pylist() == TEXTS
    (batch,) = DataLoader(opened, {"messages": "json"}, batch_size=6, output="arrow")
    assert batch["messages"].to_pylist() == texts
    kept = opened.materialize({"messages": "json"})
    assert kept.read(range(6), {"messages": "json"})["messages"].to_pylist() == texts


def test_a_batch_of_them_is_a_table(tmp_path: Path) -> None:
    (batch,) = DataLoader(plain(tmp_path), TYPES, batch_size=6)
    texts = pa.table(batch)["messages"].to_pylist()
    assert [None if text is None else json.loads(text) for text in texts] == MESSAGES
    assert batch.as_tensordict()["n"].tolist() == list(range(6))


def test_paths_and_lists_hold_them(tmp_path: Path) -> None:
    records = [{"a": [{"b": 1}, {"b": "x"}], "c": {"d": {"e": []}}}, {"a": None}, {"c": {"d": 3}}]
    (tmp_path / "a.jsonl").write_bytes(lines(records))
    types = {"a[].b": "list<text>", "c.d": "json", "a": "list<json>"}
    for materialize in (False, True):
        source = penstock.open(tmp_path / "a.jsonl", progress=False)
        (batch,) = DataLoader(source, types, batch_size=3, materialize=materialize)
        assert batch["a[].b"] == [["1", "x"], [], []]
        assert batch["c.d"] == [{"e": []}, None, 3]
        assert batch["a"] == [[{"b": 1}, {"b": "x"}], [], []]


@pytest.mark.parametrize("type_", ["list<list<text>>", "list<list<json>>"])
@pytest.mark.parametrize("name", ["a", "a[].b"])
@pytest.mark.parametrize("materialize", [False, True])
def test_a_batch_may_have_no_list_of_them_at_all(
    tmp_path: Path, name: str, type_: str, *, materialize: bool
) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines([{"a": None}, {}]))
    source = penstock.open(tmp_path / "a.jsonl", progress=False)
    (batch,) = DataLoader(source, {name: f"{type_}?"}, batch_size=2, materialize=materialize)
    assert batch[name] == [[], []]


def test_what_only_python_reads_is_read(tmp_path: Path) -> None:
    text = '{"x": NaN, "y": "\\\\ud800", "z": 1e999}\n{"x": -0, "y": [Infinity], "z": 1.0}\n'
    (tmp_path / "a.jsonl").write_text(text.replace("\\\\", "\\"))
    source = penstock.open(tmp_path / "a.jsonl", progress=False)
    (batch,) = DataLoader(source, {"x": "text", "y": "json", "z": "json"}, batch_size=2)
    assert batch["x"] == ["NaN", "0"]
    assert batch["y"] == ["\ud800", [float("inf")]]
    assert batch["z"] == [float("inf"), 1.0]
    with pytest.raises(SchemaMismatchError, match="lone surrogate"):
        source.read([0], {"y": "text"})


def test_csv_has_the_text_of_a_cell_and_the_value_of_its_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,code,note\n1,007,"a ""b"""\n,x1,\n')
    source = penstock.open(tmp_path / "a.csv", progress=False)
    types = {"id": "json", "code": "text", "note": "json"}
    (batch,) = DataLoader(source, types, batch_size=2)
    assert batch["id"] == [1, None]
    assert batch["code"] == ["007", "x1"]
    assert batch["note"] == ['a "b"', None]
    assert [one["note"] for one in source] == batch["note"]
    kept = source.materialize(types).read([1, 0], types)
    assert kept["id"].to_pylist() == [None, "1"]
    assert source.read([0], {"gone": "json"})["gone"].to_pylist() == [None]


def test_parquet_has_objects_and_values_that_json_does_not_have(tmp_path: Path) -> None:
    table = pa.table(
        {
            "turns": [[{"role": "user", "text": "é"}], []],
            "price": [Decimal("1.50"), None],
            "day": [date(2024, 2, 3), None],
            "at": [datetime(2024, 2, 3, 4), None],  # noqa: DTZ001 (without a zone)
            "raw": [b"text", b"\xff"],
            "n": [2**60, None],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    source = penstock.open(tmp_path / "a.parquet")
    (batch,) = DataLoader(
        source, {"turns": "json", "price": "text", "day": "text", "n": "json"}, batch_size=2
    )
    assert batch["turns"] == [[{"role": "user", "text": "é"}], []]
    assert batch["price"] == ["1.50", None]
    assert batch["day"] == ["2024-02-03", None]
    assert batch["n"] == [2**60, None]
    assert source.read([0], {"at": "json"})["at"].to_pylist() == ['"2024-02-03T04:00:00"']
    with pytest.raises(SchemaMismatchError, match="need the type binary") as failure:
        source.read([0, 1], {"raw": "text"})
    assert failure.value.record == 1  # type: ignore[attr-defined]
    assert source.read([0, 1], {"raw": "binary"})["raw"].to_pylist() == [b"text", b"\xff"]


@pytest.mark.parametrize(
    "asked", ["string", "int64", "float32", "bool", "list<int64>", "int64[:3]"]
)
@pytest.mark.parametrize("field", ["x", "wide", "messages"])
def test_the_remedy_of_a_value_that_does_not_fit_works(
    field: str, asked: str, tmp_path: Path
) -> None:
    source = plain(tmp_path)
    for failing in (
        lambda: source.read(range(6), {field: asked}),
        lambda: source.materialize({field: asked}),
        lambda: list(DataLoader(source, {field: asked}, batch_size=6, materialize=False)),
    ):
        if (field, asked) == ("wide", "float32"):
            continue
        with pytest.raises(SchemaMismatchError, match=r"text holds every .*json every value"):
            failing()
    named = "json" if field == "messages" else "text"
    (batch,) = DataLoader(source, {field: named}, batch_size=6)
    assert batch[field] == {"x": TEXTS, "wide": WIDE, "messages": MESSAGES}[field]


def test_text_refuses_lists_and_objects_and_names_json(tmp_path: Path) -> None:
    with pytest.raises(SchemaMismatchError, match=r"does not fit text.*json every value"):
        plain(tmp_path).read(range(6), {"messages": "text"})


@pytest.mark.parametrize("is_profiled", [True, False])
def test_names_alone_lead_to_a_batch(tmp_path: Path, is_profiled: bool) -> None:  # noqa: FBT001
    plain(tmp_path)
    if is_profiled:
        create_default_jsonl_indexer(tmp_path, profile=True)()
    source = penstock.open(tmp_path if is_profiled else tmp_path / "a.jsonl", progress=False)
    if is_profiled:
        (batch,) = DataLoader(source, ["x", "wide", "messages"], batch_size=6)
        x, wide = ([one.get(name) for one in RECORDS] for name in ("x", "wide"))
        assert (batch["x"], batch["wide"], batch["messages"]) == (x, wide, MESSAGES)
        return
    with pytest.raises(SchemaMismatchError, match="text holds every"):
        next(iter(DataLoader(source, ["x"], batch_size=6, materialize=False)))


def test_no_warning_names_mixed_fields_that_are_not_read_as_strings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.jsonl").write_bytes(
        lines([{"u": {"m": 1}, "x": 1}, {"u": {"m": "a"}, "x": "b"}])
    )
    source = penstock.open(tmp_path / "a.jsonl")
    (batch,) = DataLoader(source, {"u.m": "json"}, batch_size=2)
    assert (batch["u.m"], caplog.text) == ([1, "a"], "")
    source.arrow()
    assert "field 'x' holds integers and strings and becomes a string" in caplog.text


def test_what_has_no_type_in_a_profile_can_be_json(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines([{"x": None, "y": []}, {"y": []}]))
    create_default_jsonl_indexer(tmp_path, profile=True)()
    source = penstock.open(tmp_path)
    with pytest.raises(OptionError, match=r"\{'y': 'json'\}"):
        DataLoader(source, ["y"], batch_size=2)
    (batch,) = DataLoader(source, {"y": "json", "x": "json"}, batch_size=2)
    assert (batch["y"], batch["x"]) == ([[], []], [None, None])


def test_objects_asked_for_by_name_can_be_json() -> None:
    source = penstock.open([{"user": {"age": 3}}])
    with pytest.raises(OptionError, match=r"'user.age', or ask for \{'user': 'json'\}"):
        DataLoader(source, ["user"], batch_size=1)
    assert next(iter(DataLoader(source, {"user": "json"}, batch_size=1)))["user"] == [{"age": 3}]


@pytest.mark.parametrize("workers", WORKERS)
def test_a_bad_record_is_masked_beside_them(tmp_path: Path, workers: Any) -> None:
    records = [{**record, "n": "no" if record["n"] < 3 else 1} for record in RECORDS]
    (tmp_path / "a.jsonl").write_bytes(lines(records))
    source = penstock.open(tmp_path / "a.jsonl", progress=False)
    loader = DataLoader(source, TYPES, batch_size=3, on_error="mask", num_workers=workers)
    first, second = loader
    assert first.valid.tolist() == [False] * 3  # Not one row of it was read.
    assert second["messages"] == MESSAGES[3:]


def test_sources_of_different_types_are_told_what_holds_both() -> None:
    source = penstock.open(pa.table({"a": [1]})) + penstock.open(pa.table({"a": ["x"]}))
    with pytest.raises(SchemaMismatchError, match=r"fields=\{'a': 'json'\}"):
        source.arrow()
    assert source.arrow(fields={"a": "json"})["a"].to_pylist() == ["1", '"x"']
    assert source.arrow(fields={"a": "text"})["a"].to_pylist() == ["1", "x"]
