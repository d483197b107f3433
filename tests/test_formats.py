"""Golden files: what an older release wrote stays readable, and what is pinned stays the same."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import shutil
import uuid
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.datasets import CsvRows, JsonlDataset, MdsRows, ParquetRows
from penstock.datasets.columns._folder import find_column, list_columns, publish_column
from penstock.datasets.columns._place import FileFacts
from penstock.index import (
    BuildOptions,
    CsvScanner,
    LineScanner,
    Profile,
    create_tokenize_and_index_jsonl_text_func,
    list_files,
    make_index,
    read_bad_lines,
    read_profile,
)
from penstock.jsonl import JsonlDir, JsonlFile
from penstock.jsonl._zstd import read_seek_table, seek_table
from penstock.order import BucketPlan, CostPlan, Cursor, PackingPlan
from penstock.storage import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN = Path(__file__).parent / "golden" / "jsonl-1"

RECORDS = [
    {
        "id": number,
        "text": "Ünïcödé \u2028 " * (number % 3),
        "price": number / 4,
        "big": 10 ** (number % 40),
        "none": None,
        "items": [{"sku": "a", "qty": number}, {"sku": "b", "qty": None}],
        "nested": {"deep": {"empty": {}, "list": []}},
    }
    for number in range(200)
]


@pytest.mark.parametrize("name", ["plain.jsonl", "frames.jsonl.zst", "member.jsonl.gz"])
def test_files_of_the_first_release_are_read(name: str) -> None:
    assert list(JsonlFile(GOLDEN / name).iter_records_sync()) == RECORDS


def test_directories_of_the_first_release_are_read_in_order() -> None:
    assert list(JsonlDir(GOLDEN / "shards").iter_records_sync()) == RECORDS


def test_plain_text_is_written_byte_for_byte_as_before(tmp_path: Path) -> None:
    written = tmp_path / "plain.jsonl"
    with JsonlFile(written).writer_sync() as w:
        w.write_many(RECORDS)
    assert written.read_bytes() == (GOLDEN / "plain.jsonl").read_bytes()


def test_values_that_json_has_no_type_for_are_written_as_before(tmp_path: Path) -> None:
    written = tmp_path / "values.jsonl"
    with JsonlFile(written).writer_sync() as w:
        w.write(
            {
                "moment": dt.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=dt.UTC),
                "day": dt.date(2026, 1, 2),
                "uuid": uuid.UUID(int=7),
                "decimal": Decimal("1.10"),
                "nan": float("nan"),
                "surrogate": "\ud800",
            }
        )
    assert written.read_bytes() == (
        b'{"moment":"2026-01-02T03:04:05.000678+00:00","day":"2026-01-02",'
        b'"uuid":"00000000-0000-0000-0000-000000000007","decimal":"1.10","nan":null,'
        b'"surrogate":"\\ud800"}\n'
    )


def test_frames_are_cut_where_they_were_before(tmp_path: Path) -> None:
    written = tmp_path / "frames.jsonl.zst"
    with JsonlFile(written).writer_sync(frame_bytes=4096) as w:
        w.write_many(RECORDS)
    tables = [_frames(path) for path in (written, GOLDEN / "frames.jsonl.zst")]
    assert [text for _, text in tables[0]] == [text for _, text in tables[1]]


def test_the_seek_table_is_the_public_one() -> None:
    assert seek_table([(10, 300), (20, 400)]) == bytes.fromhex(
        "5e2a4d18 19000000 0a000000 2c010000 14000000 90010000 02000000 00 b1ea928f"
    )


def test_a_file_without_records_holds_only_an_empty_table(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl.zst"
    with JsonlFile(empty).writer_sync():
        pass
    assert empty.read_bytes() == seek_table([])
    assert list(JsonlFile(empty).iter_records_sync()) == []


def _frames(path: Path) -> list[tuple[int, int]]:
    file = LocalStore().open(str(path))
    try:
        frames = read_seek_table(file)
    finally:
        file.close()
    assert frames is not None
    return [(packed, text) for packed, text in frames.tolist()]


def write_golden(directory: Path = GOLDEN) -> None:
    """Write the golden files; run once a format version, never to make a test pass."""
    directory.mkdir(parents=True)
    for name in ("plain.jsonl", "frames.jsonl.zst", "member.jsonl.gz"):
        with JsonlFile(directory / name).writer_sync(frame_bytes=4096) as w:
            w.write_many(RECORDS)
    shards = JsonlDir(directory / "shards")
    with shards.writer_sync(max_records_per_shard=60) as w:
        w.write_many(RECORDS[:120])
    with shards.writer_sync(".jsonl.zst", max_records_per_shard=60) as w:
        w.write_many(RECORDS[120:])


INDEXES = Path(__file__).parent / "golden" / "index-1"


def test_indexes_of_the_first_release_are_opened() -> None:
    source = penstock.open(INDEXES / "jsonl")
    assert list(source) == RECORDS + RECORDS
    assert source[[399, 0]] == [RECORDS[199], RECORDS[0]]
    rows = penstock.open(INDEXES / "csv")
    assert rows[:] == [
        {"id": 1, "price": 0.5, "text": "two\nlines"},
        {"id": 2, "price": None, "text": "plain"},
        {"id": 3, "price": 1.25, "text": ""},
    ]


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_indexes_are_written_byte_for_byte_as_before(kind: str, tmp_path: Path) -> None:
    for path in (INDEXES / kind).iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    source = penstock.open(tmp_path)
    before, now = INDEXES / kind / "index", tmp_path / "index"
    for path in before.iterdir():
        if path.name != "meta.json":
            assert (now / path.name).read_bytes() == path.read_bytes()
    assert _timeless(now) == _timeless(before)
    assert source.fingerprint == penstock.open(INDEXES / kind).fingerprint


def _timeless(index: Path) -> object:
    meta = json.loads((index / "meta.json").read_text())
    for file in [*meta["files"], *meta.get("empty", ())]:
        del file["modified"]
        for later in ("misquoted", "large"):
            file.get("facts", {}).pop(later, None)  # The first release did not write these,
    del meta["created"]
    meta.pop("made_by", None)  # nor this.
    return meta


CHECKED = Path(__file__).parent / "golden" / "index-checked-1"
COUNTED = Path(__file__).parent / "golden" / "profile-2"
"""Profiles of the same files that count the values of fields."""
BEYOND = Path(__file__).parent / "golden" / "profile-3"
"""Profiles of the same files that count integers beyond int64."""


@pytest.mark.parametrize(
    ("kind", "records", "lines"), [("jsonl", 60, [11, 22, 24]), ("csv", 3, [4, 6])]
)
def test_checked_indexes_of_the_first_release_are_opened(
    kind: str, records: int, lines: list[int]
) -> None:
    assert len(penstock.open(CHECKED / kind)) == records
    assert [bad.line for bad in read_bad_lines(CHECKED / kind / "index")] == lines
    profile = read_profile(CHECKED / kind / "index")
    assert profile is not None
    assert profile["records"] == records
    state = (CHECKED / kind / "index" / "profile.state").read_bytes()
    assert Profile.from_bytes(state).document() == profile


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_checked_indexes_are_written_byte_for_byte_as_before(kind: str, tmp_path: Path) -> None:
    for path in (CHECKED / kind).iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    _index_checked(tmp_path, kind)
    before, now = CHECKED / kind / "index", tmp_path / "index"
    later = {path.name: path for new in (COUNTED, BEYOND) for path in (new / kind).glob("*")}
    for path in before.iterdir():
        if path.name != "meta.json":
            expected = later.get(path.name, path).read_bytes()
            assert (now / path.name).read_bytes() == expected
    assert _timeless(now) == _timeless(before)


def _index_checked(folder: Path, kind: str) -> None:
    scanner = LineScanner() if kind == "jsonl" else CsvScanner()
    build = BuildOptions(progress=False, validate=True, profile=True, max_line_bytes=1000)
    make_index(list_files(folder), scanner, "new", build=build)


def write_checked_golden(directory: Path = CHECKED) -> None:
    """Write the golden indexes that were validated and profiled; once a format version."""
    for kind in ("jsonl", "csv"):
        (directory / kind).mkdir(parents=True)
    lines = [json.dumps(record, ensure_ascii=False) for record in RECORDS[:60]]
    lines[10:10] = ["{oops"]
    lines[20:20] = ["", "[1, 2]", " ", json.dumps({"long": "x" * 1000})]
    (directory / "jsonl" / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    rows = ["id,text,price", '1,"two', 'lines",0.5', "2,x", "3,y,", "4,a,b,c", "5,,1e3", ""]
    (directory / "csv" / "a.csv").write_text("\n".join(rows), encoding="utf-8")
    for kind in ("jsonl", "csv"):
        _index_checked(directory / kind, kind)
        for name in (".gitignore", "CACHEDIR.TAG"):
            (directory / kind / "index" / name).unlink()


COLUMNS = Path(__file__).parent / "golden" / "columns-1"
_INSTANT = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
COLUMN_VALUES = {
    "id": pa.array([7, -300, 2**40, None], pa.int64()),
    "small": pa.array([0, 200, 255, 1], pa.int64()),
    "price": pa.array([0.5, None, -1.25, 1e30], pa.float32()),
    "flag": pa.array([True, False, None, True]),
    "text": pa.array(["ä", "", None, "lines\nof text"]),
    "word": pa.array(["a word of some length", None] * 20),
    "when": pa.array([_INSTANT, None], pa.timestamp("us", "UTC")),
    "vector": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2)),
    "items[].price": pa.array([[1.5, None], [], None], pa.list_(pa.float64())),
    "items[].tags": pa.array([[["a"], None], [], None], pa.list_(pa.list_(pa.string()))),
    "user": pa.array([{"age": 42, "name": "x"}, None, {"age": None, "name": None}]),
    "a/b": pa.array([1, 2, 3], pa.int8()),
}


def test_columns_of_the_first_release_are_read() -> None:
    assert len(list_columns(COLUMNS)) == len(COLUMN_VALUES)
    for path, values in COLUMN_VALUES.items():
        column = find_column(COLUMNS, path, values.type)
        assert column is not None, path
        assert column.take(np.arange(len(values))).to_pylist() == values.to_pylist()
        assert column.bad.tolist() == ([1] if path == "price" else [])


def test_columns_in_the_cache_keep_the_names_of_the_first_release() -> None:
    assert [kind._cache_name() for kind in (JsonlDataset, CsvRows, ParquetRows, MdsRows)] == [  # noqa: SLF001
        "penstock.datasets._jsonl.JsonlDataset",
        "penstock.datasets._csv.CsvRows",
        "penstock.datasets._parquet.ParquetRows",
        "penstock.datasets._mds.MdsRows",
    ]

    class Other(JsonlDataset):
        pass

    assert Other._cache_name() == f"{__name__}.{Other.__qualname__}"  # noqa: SLF001


def test_columns_are_written_byte_for_byte_as_before(tmp_path: Path) -> None:
    write_golden_columns(tmp_path)
    files = [path.relative_to(COLUMNS) for path in COLUMNS.rglob("*") if path.is_file()]
    assert sorted(files) == sorted(
        path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()
    )
    for path in files:
        before, now = (COLUMNS / path).read_bytes(), (tmp_path / path).read_bytes()
        if path.name == "meta.json":
            before, now = (
                json.dumps({**json.loads(text), "created": 0, "arrow": ""}).encode()
                for text in (before, now)
            )
        assert now == before, path


def write_golden_columns(directory: Path = COLUMNS) -> None:
    """Write the golden columns; run by hand, once a format version."""
    for path, values in COLUMN_VALUES.items():
        publish_column(
            directory,
            pa.field(path, values.type),
            [values[: len(values) // 2], values[len(values) // 2 :]],
            fingerprint="0123456789abcdef",
            length=len(values),
            bad=np.array([1] if path == "price" else [], np.int64),
            files=[FileFacts("part-00000.jsonl", 1234, 1_700_000_000_123_456_789, '"etag"')],
        )


STATES = json.loads((GOLDEN.parent / "state-1.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", [kind for kind in STATES if kind != "block in lanes"])
def test_a_run_of_the_first_release_goes_on_with_the_same_records(
    kind: str, tmp_path: Path
) -> None:
    lines = tmp_path / "plain.jsonl"
    shutil.copy(GOLDEN / "plain.jsonl", lines)
    loader = _loader_of(kind, lines)
    loader.load_state_dict(STATES[kind]["state"])
    assert loader.state_dict() == STATES[kind]["state"]
    assert [n for batch in loader for n in batch.ids.tolist()] == STATES[kind]["rest"]
    following = [n for batch in loader for n in batch.ids.tolist()]
    assert following[:20] == STATES[kind]["next_epoch"]


def _loader_of(kind: str, lines: Path) -> penstock.DataLoader:
    """Return a loader that continues the state of its kind."""
    source = penstock.open(lines)
    if kind == "weighted":
        return penstock.DataLoader(source, batch_size=7, weights=np.arange(200) % 5)
    if kind == "mixture":
        weights = [(0, {"a": 1}), (150, {"a": 1, "b": 1})]
        sources = {"a": source, "b": source.take(range(40))}
        mix = penstock.Mixture(sources, weights, stop="all_exhausted")
        return penstock.DataLoader(mix, batch_size=7)
    if kind == "stream":
        flow = penstock.stream(["a", "b", "c", "d"], _forty, buffer=30).map(_none_to_three)
        return penstock.DataLoader(flow, batch_size=7)
    plans = {
        "cost": CostPlan("len()", 1000),
        "bucket": BucketPlan("len()", 7, 4),
        "packing": PackingPlan("len()", 1000, 2),
    }
    return penstock.DataLoader(source, batch_size=plans.get(kind, 7))


def _forty(unit: str, start: int = 0) -> Iterator[dict[str, object]]:
    yield from ({"unit": unit, "n": n} for n in range(start, 40))


def _none_to_three(record: dict[str, int]) -> list[dict[str, int]]:
    return [record] * (record["n"] % 4)


def test_a_run_in_lanes_of_the_first_release_goes_on_with_the_same_records() -> None:
    pinned = STATES["block in lanes"]
    cursor = Cursor.from_dict(pinned["state"])
    assert cursor.to_dict() == pinned["state"]
    assert [*_lanes_from(cursor)] == [pinned["next"], pinned["rest_sha256"]]
    assert [*_lanes_from(cursor.at(cursor.epoch + 1))] == [
        pinned["next_epoch"],
        pinned["next_epoch_sha256"],
    ]


def _lanes_from(cursor: Cursor) -> tuple[list[int], str]:
    """Return the next records of a run over uneven blocks, and a hash of all that are left."""
    ends = np.cumsum(400 + 37 * (np.arange(1000) % 11))
    blocks = np.array([0, *ends[ends < cursor.length], cursor.length])
    order = cursor.order(blocks)
    assert order.lanes == 64
    rest = order.positions(cursor.position, len(order))
    return rest[:70].tolist(), hashlib.sha256(rest.astype("<i8").tobytes()).hexdigest()


TOKENS = Path(__file__).parent / "golden" / "tokens-1"
LETTERS = ["abc", "", "defgh", "i" * 11, "j"]
PACKED: dict[str, dict[str, Any]] = {
    "concat": {"sample_size": 4, "keep_remainder": "pad"},
    "best_fit": {"sample_size": 8, "packing": "best_fit", "token_dtype": "uint32"},
    "documents": {},
}


def _tokenise(text: Path, folder: Path, options: dict[str, Any]) -> None:
    create_tokenize_and_index_jsonl_text_func(
        lambda text: list(text.encode()),
        0,
        input_file_paths=[text],
        output_base_path=folder,
        **options,
    )()


@pytest.mark.parametrize("packing", PACKED)
def test_tokens_are_written_byte_for_byte_as_before(packing: str, tmp_path: Path) -> None:
    _tokenise(TOKENS / "letters.jsonl", tmp_path, PACKED[packing])
    before = {path.relative_to(TOKENS / packing): path for path in _files(TOKENS / packing)}
    now = {path.relative_to(tmp_path): path for path in _files(tmp_path)}
    assert now.keys() == before.keys()
    for name, path in before.items():
        if path.name != "meta.json":
            assert now[name].read_bytes() == path.read_bytes()
    assert _timeless(tmp_path / "index") == _timeless(TOKENS / packing / "index")


def test_tokens_of_the_first_release_are_opened() -> None:
    concat, packed, documents = (penstock.open(TOKENS / name) for name in PACKED)
    stream = b"".join(text.encode() + b"\0" for text in LETTERS)
    rest = -len(stream) % 4
    assert bytes(concat[:].ravel().tolist()) == stream + bytes(rest)
    assert concat.lengths([-1]).tolist() == [4 - rest]
    assert packed[0].dtype == "uint32"
    assert sorted(bytes(packed[:].ravel().tolist()).replace(b"\0", b"")) == sorted(
        "".join(LETTERS).encode()
    )
    assert [bytes(row.tolist()).decode() for row in documents[:]] == LETTERS


TRAINED = Path(__file__).parent / "golden" / "tokens-2"
ASKED = [("ab", "c"), ("", "defgh"), ("i" * 11, ""), ("j", "k" * 9)]
TRAINED_PACKED = {
    name: {**options, "template": "{question}?{answer}"} for name, options in PACKED.items()
}


@pytest.mark.parametrize("packing", TRAINED_PACKED)
def test_trained_tokens_are_written_byte_for_byte_as_before(packing: str, tmp_path: Path) -> None:
    _tokenise(TRAINED / "answers.jsonl", tmp_path, TRAINED_PACKED[packing])
    before = {path.relative_to(TRAINED / packing): path for path in _files(TRAINED / packing)}
    now = {path.relative_to(tmp_path): path for path in _files(tmp_path)}
    assert now.keys() == before.keys()
    for name, path in before.items():
        if path.name != "meta.json":
            assert now[name].read_bytes() == path.read_bytes()
    assert _timeless(tmp_path / "index") == _timeless(TRAINED / packing / "index")


@pytest.mark.parametrize("packing", ["concat", "best_fit"])
def test_trained_tokens_of_a_release_are_opened(packing: str) -> None:
    source = penstock.open(TRAINED / packing)
    ids = range(len(source))
    tokens, trained = source[:], source.trained(ids)  # type: ignore[attr-defined]
    answers = sorted("".join(answer for _, answer in ASKED).encode() + bytes(len(ASKED)))
    assert sorted(tokens[trained].tolist()) == answers


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def write_golden_tokens(directory: Path = TOKENS) -> None:
    """Write the golden tokens; run once a format version, never to make a test pass."""
    directory.mkdir(parents=True)
    lines = "".join(json.dumps({"text": text}) + "\n" for text in LETTERS)
    (directory / "letters.jsonl").write_text(lines)
    for name, options in PACKED.items():
        _tokenise(directory / "letters.jsonl", directory / name, options)


def write_golden_answers(directory: Path = TRAINED) -> None:
    """Write the golden tokens that are not all trained; once a format version, likewise."""
    directory.mkdir(parents=True)
    pairs = [{"question": question, "answer": answer} for question, answer in ASKED]
    lines = "".join(json.dumps(pair) + "\n" for pair in pairs)
    (directory / "answers.jsonl").write_text(lines)
    for name, options in TRAINED_PACKED.items():
        _tokenise(directory / "answers.jsonl", directory / name, options)
