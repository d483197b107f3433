from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import penstock
from penstock.batch import Batch, Categories, Encoder, FieldEncoder, Jagged, Masked, Padded
from penstock.errors import OptionError, SchemaMismatchError
from tests.batch.encoder_contract import EncoderContract, plain, position

if TYPE_CHECKING:
    from pathlib import Path

TYPES = {
    "id": "int64",
    "flag": "bool = false",
    "price": "float32",
    "age": "uint8?",
    "vector": "float32[2]",
    "maybe": "float64[2]?",
    "recent": "int32[:3] = -1",
    "tags": "list<int64>",
    "pages": "list<list<int16 = -1>>",
    "boxes": "list<float32[2]>",
    "name": "string",
    "raw": "binary",
    "words": "list<string>",
    "country": "category",
    "when": "timestamp[us] = 0",
    "day": "date32?",
}
RECORDS: list[dict[str, Any]] = [
    {
        "id": n,
        "flag": [True, False, None][n % 3],
        "price": [0.5, None, 2.25, -1e30][n % 4],
        "age": [None, 255, 0][n % 3],
        "vector": [n, -n],
        "maybe": None if n % 2 else [n, None],
        "recent": [None, [], [1], [1, 2, 3, 4], [None, 5]][n % 5],
        "tags": [[1, 2], [], None, [2**62]][n % 4],
        "pages": [None, [[1], []], [None, [2, None, 3]], []][n % 4],
        "boxes": [[], [[1, 2]], [[1, 2], [3, 4]]][n % 3],
        "name": [None, "", "größer"][n % 3],
        "raw": ["a", None][n % 2],
        "words": [["a", None], [], None][n % 3],
        "country": ["de", "xx", None, "fr"][n % 4],
        "when": [None, "2024-02-29T12:00:00", 17][n % 3],
        "day": [None, "1970-01-03"][n % 2],
    }
    for n in range(12)
]


def read(types: dict[str, Any], records: list[dict[str, Any]]) -> Batch:
    encoder = FieldEncoder(types)
    ids = range(len(records))
    return encoder.encode(penstock.open(records).read(ids, encoder.fields), position(ids))


class TestFieldEncoder(EncoderContract):
    @pytest.fixture
    def encoder(self) -> Encoder:
        return FieldEncoder(TYPES, {"country": ["fr", "de"]})

    @pytest.fixture
    def columns(self, encoder: Encoder) -> pa.RecordBatch:
        columns = penstock.open(RECORDS).read(range(12), encoder.fields)
        assert isinstance(columns, pa.RecordBatch)
        return columns

    def test_each_type_gives_what_the_grammar_says(
        self, encoder: Encoder, columns: pa.RecordBatch
    ) -> None:
        batch = encoder.encode(columns, position(range(12)))
        kinds = {name: type(value) for name, value in batch.items()}
        assert kinds.pop("age") is kinds.pop("maybe") is kinds.pop("day") is Masked
        assert kinds.pop("tags") is kinds.pop("pages") is kinds.pop("boxes") is Jagged
        assert kinds.pop("recent") is Padded
        assert kinds.pop("country") is Categories
        assert kinds.pop("name") is kinds.pop("raw") is kinds.pop("words") is list
        assert set(kinds.values()) == {torch.Tensor}
        assert plain(batch["price"])[:4] == [0.5, "NaN", 2.25, pytest.approx(-1e30)]
        assert plain(batch["age"])[0][:3] == [0, 255, 0]
        assert plain(batch["age"])[1][:3] == [False, True, True]
        assert batch["age"].values.dtype == torch.uint8
        assert batch["vector"].shape == (12, 2)
        assert plain(batch["maybe"])[0][:3] == [[0, "NaN"], [0, 0], [2, "NaN"]]
        assert plain(batch["recent"])[0][:5] == [
            [-1] * 3,
            [-1] * 3,
            [1, -1, -1],
            [1, 2, 3],
            [-1, 5, -1],
        ]
        assert plain(batch["recent"])[1][:5] == [0, 0, 1, 3, 2]
        assert plain(batch["tags"])[:4] == [[1, 2], [], [], [2**62]]
        assert isinstance(batch["pages"].values, Jagged)
        assert plain(batch["pages"])[:3] == [[], [[1], []], [[], [2, -1, 3]]]
        assert batch["boxes"].values.shape == (12, 2)
        assert plain(batch["boxes"])[1:3] == [[[1, 2]], [[1, 2], [3, 4]]]
        assert batch["name"][:3] == [None, "", "größer"]
        assert batch["raw"][:2] == [b"a", None]
        assert batch["words"][:3] == [["a", None], [], []]
        assert batch["country"].codes.tolist()[:4] == [1, -1, -1, 0]
        assert batch["country"].vocabulary == ["fr", "de"]
        assert batch["when"].tolist()[:3] == [0, 1_709_208_000_000_000, 17]
        assert batch["day"].values.dtype == torch.int32
        assert plain(batch["day"])[0][:2] == [0, 2]

    @pytest.mark.parametrize("kind", ["jsonl", "parquet"])
    def test_records_in_files_give_the_same_batch_as_records_in_memory(
        self, encoder: Encoder, columns: pa.RecordBatch, tmp_path: Path, kind: str
    ) -> None:
        path = tmp_path / f"a.{kind}"
        if kind == "jsonl":
            path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
        else:
            pq.write_table(pa.Table.from_batches([columns]), path, row_group_size=5)
        ids = [7, 3, 3, 11, 0]
        found = encoder.encode(penstock.open(path).read(ids, encoder.fields), position(ids))
        expected = encoder.encode(penstock.open(RECORDS).read(ids, encoder.fields), position(ids))
        assert plain(found) == plain(expected)


NULLS = [
    ("int64", 1, None, r"int64\? \(values and a mask\) or int64 = -1"),
    ("uint16", 1, None, r"uint16\? \(values and a mask\) or uint16 = 0"),
    ("bool", True, None, r"bool\? \(values and a mask\) or bool = false"),
    ("date32", 1, None, r"date32\? \(values and a mask\) or date32 = -1"),
    ("list<int64>", [1], [1, None], r"ask for list<int64 = -1>"),
    ("list<list<int8>>", [[1, 2], []], [[], [None]], r"ask for list<list<int8 = -1>>"),
    ("int64[:2]", [1, 2, None], [None], r"ask for int64\[:2\] = -1"),
    ("int64[2]", [1, 2], [1, None], r"ask for int64\[2\] = -1"),
    ("int64[2]?", [1, 2], [1, None], r"ask for int64\[2\] = -1"),
    ("float32[2]", [1, 2], None, r"float32\[2\]\? .* or float32\[2\] = 0 .* or float32\[:2\]"),
    ("list<float32[2]>", [[1, 2]], [[1, 2], None], r"ask for list<float32\[2\] = 0>"),
]


@pytest.mark.parametrize(("type_", "good", "bad", "remedy"), NULLS, ids=[case[0] for case in NULLS])
def test_a_null_that_a_type_cannot_hold_names_record_field_and_remedies(
    type_: str, good: Any, bad: Any, remedy: str
) -> None:
    encoder = FieldEncoder({"ok": "int64 = 0", "n": type_})
    source = penstock.open([{"n": good}, {"n": good}, {"n": bad}, {"n": bad}])
    columns = source.read(range(4), encoder.fields)
    with pytest.raises(SchemaMismatchError, match=remedy) as failure:
        encoder.encode(columns, position([10, 11, 1234, 13]))
    assert "record 1,234: field 'n'" in str(failure.value)
    assert (failure.value.record, failure.value.field) == (1234, "n")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("type_", "good", "bad"), [case[:3] for case in NULLS], ids=[case[0] for case in NULLS]
)
def test_the_first_remedy_works(type_: str, good: Any, bad: Any) -> None:
    with pytest.raises(SchemaMismatchError) as failure:
        read({"n": type_}, [{"n": bad}])
    first = str(failure.value).partition("ask for ")[2].partition(" (")[0]
    assert len(read({"n": first}, [{"n": good}, {"n": bad}])) == 2


MISFITS = [
    ("int32", 2**31),
    ("int8", -129),
    ("uint64", -1),
    ("int64", 2**63),
    ("int64", 1.5),
    ("int64", "1"),
    ("float32", 1e39),
    ("float16", 70_000.0),
    ("bool", 1),
    ("int16?", 2**15),
    ("list<uint8>", [256]),
    ("float32[2]", [1e39, 0]),
    ("float32[2]", [1.0]),
    ("float32[2]", [1.0, 2.0, 3.0]),
    ("int8[:2]", [1, 200]),
    ("string", 5),
]


@pytest.mark.parametrize(("type_", "value"), MISFITS, ids=[f"{t}: {v}" for t, v in MISFITS])
@pytest.mark.parametrize("kind", ["memory", "jsonl", "parquet"])
def test_what_does_not_fit_is_an_error_that_names_the_record_and_never_wraps(
    tmp_path: Path, kind: str, type_: str, value: Any
) -> None:
    records = [{"n": None}, {"n": value}]
    if kind == "memory":
        source = penstock.open(records)
    elif kind == "jsonl":
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
        source = penstock.open(tmp_path / "a.jsonl")
    else:
        if value == 2**63:
            records = [{"n": None}, {"n": np.uint64(value)}]
        pq.write_table(pa.Table.from_pylist(records), tmp_path / "a.parquet")
        source = penstock.open(tmp_path / "a.parquet")
    encoder = FieldEncoder({"n": type_})
    with pytest.raises(SchemaMismatchError, match="record 1") as failure:
        encoder.encode(source.read([1], encoder.fields), position([1]))
    assert "'n" in str(failure.value)


def test_columns_of_other_types_are_fitted_with_the_same_care() -> None:
    encoder = FieldEncoder({"n": "int8", "x": "float32"})
    good = pa.record_batch({"x": pa.array([1, 2]), "n": pa.array([3.0, 4.0]), "more": ["a", "b"]})
    assert plain(encoder.encode(good, position([0, 1]))) == {"n": [3, 4], "x": [1.0, 2.0]}
    bad = pa.record_batch({"n": [3, 300], "x": [1.0, 2.0]})
    with pytest.raises(SchemaMismatchError, match="record 70: field 'n' holds 300"):
        encoder.encode(bad, position([60, 70]))


def test_sliced_columns_give_their_own_rows() -> None:
    encoder = FieldEncoder(TYPES, {"country": ["fr", "de"]})
    columns = penstock.open(RECORDS).read(range(12), encoder.fields)
    whole = plain(encoder.encode(columns.slice(5, 4), position(range(4))))
    taken = plain(encoder.encode(columns.take(pa.array([5, 6, 7, 8])), position(range(4))))
    assert whole == taken


def test_rows_of_arrays_are_the_arrays_of_those_rows() -> None:
    encoder = FieldEncoder(TYPES, {"country": ["fr", "de"]})
    columns = penstock.open(RECORDS).read(range(12), encoder.fields)
    arrays = encoder.arrays(columns, position(range(12)))
    for start in range(13):
        for stop in range(start, 13):
            ids = np.arange(start, stop)
            part = encoder.batch(encoder.part(arrays, start, stop), position(ids))
            alone = encoder.encode(columns.slice(start, stop - start), position(ids))
            assert plain(part) == plain(alone)


def test_paths_go_into_objects_and_lists() -> None:
    records = [{"user": {"age": 4}, "items": [{"price": 1}, {"price": 2.5}]}, {}]
    batch = read({"user.age": "int8?", "items[].price": "list<float32>"}, records)
    assert plain(batch) == {"user.age": [[4, 0], [True, False]], "items[].price": [[1, 2.5], []]}


def test_a_worker_needs_no_torch() -> None:
    program = """
import pickle, sys
import numpy as np, pyarrow as pa
encoder, columns, where = pickle.loads(sys.stdin.buffer.read())
arrays = encoder.arrays(columns, where)
assert "torch" not in sys.modules, "torch"
sys.stdout.buffer.write(pickle.dumps(arrays, protocol=5))
"""
    encoder = FieldEncoder(TYPES, {"country": ["fr", "de"]})
    columns = penstock.open(RECORDS).read(range(12), encoder.fields)
    where = position(range(12))
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps((encoder, columns, where)),
        capture_output=True,
        check=True,
        timeout=60,
    )
    arrays = pickle.loads(done.stdout)
    assert plain(encoder.batch(arrays, where)) == plain(encoder.encode(columns, where))


def test_arrays_travel_out_of_band_and_become_tensors_without_a_copy() -> None:
    encoder = FieldEncoder({"x": "float32", "tags": "list<int64>"})
    columns = pa.record_batch({"x": pa.array(range(999), pa.float32()), "tags": [[1, 2]] * 999})
    arrays = encoder.arrays(columns, position(range(999)))
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(arrays, protocol=5, buffer_callback=buffers.append)
    assert len(head) < 500
    assert len(buffers) == 3
    assert all(not buffer.raw().readonly for buffer in buffers)
    batch = encoder.batch(arrays, position(np.arange(999)))
    arrays["x"][0] = 77
    assert batch["x"][0] == 77


def test_read_only_arrays_are_copied_and_not_written_through() -> None:
    encoder = FieldEncoder({"n": "int64"})
    array = np.arange(3)
    array.flags.writeable = False
    batch = encoder.batch({"n": array}, position(array), np.array([True, True, False]))
    batch["n"][0] = 9
    assert array[0] == 0
    assert batch.valid is not None
    assert batch.valid.tolist() == [True, True, False]


def test_types_come_from_a_schema_by_name_and_path() -> None:
    schema = pa.schema(
        {
            "n": pa.int64(),
            "user": pa.struct({"age": pa.int8(), "home": pa.struct({"city": pa.large_string()})}),
            "items": pa.list_(pa.struct({"price": pa.float64()})),
            "vector": pa.list_(pa.float16(), 4),
            "when": pa.timestamp("us", "UTC"),
            "kind": pa.dictionary(pa.int8(), pa.string()),
        }
    )
    names = ["n", "user.age", "user.home.city", "items[].price", "vector", "when", "kind"]
    encoder = FieldEncoder.from_schema(names, schema)
    assert encoder.types == {
        "n": "int64",
        "user.age": "int8",
        "user.home.city": "string",
        "items[].price": "list<float64>",
        "vector": "float16[4]",
        "when": "timestamp[us, UTC]",
        "kind": "category",
    }
    assert encoder.categories == ["kind"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("user", "'user.age', 'user.home', 'user.home.city'"),
        ("items", r"'items\[\].price'"),
        ("none", "null in all records"),
        ("usr", r"no field 'usr': did you mean 'user'\? If others have it.*'int64\?'"),
        ("money", "no tensor stands for the Arrow type decimal128"),
        ("wide", r"'wide\.f4' and 295 more, or ask for"),
    ],
)
def test_a_name_without_a_tensor_says_what_to_ask_for(name: str, says: str) -> None:
    schema = pa.schema(
        {
            "user": pa.struct({"age": pa.int8(), "home": pa.struct({"city": pa.string()})}),
            "items": pa.list_(pa.struct({"price": pa.float64()})),
            "none": pa.null(),
            "money": pa.decimal128(9, 2),
            "wide": pa.struct({f"f{number}": pa.int8() for number in range(300)}),
        }
    )
    with pytest.raises(OptionError, match=says):
        FieldEncoder.from_schema([name], schema)


def test_a_category_needs_its_vocabulary_and_nothing_else_has_one() -> None:
    encoder = FieldEncoder({"c": "category", "n": "int64"})
    assert encoder.categories == ["c"]
    columns = pa.record_batch({"c": ["a"], "n": [1]})
    with pytest.raises(OptionError, match="category 'c' has no vocabulary"):
        encoder.encode(columns, position([0]))
    full = encoder.with_vocabularies({"c": ["b", "a"]})
    assert full.categories == []
    assert full.encode(columns, position([0]))["c"].codes.tolist() == [1]
    with pytest.raises(OptionError, match="'n', which is no category"):
        encoder.with_vocabularies({"n": [1]})
    with pytest.raises(OptionError, match="twice"):
        encoder.with_vocabularies({"c": ["a", "a"]})


def test_categories_of_numbers_are_read_as_numbers() -> None:
    encoder = FieldEncoder({"c": "category"}, {"c": pa.array([30, 10], pa.int64())})
    assert encoder.fields == {"c": pa.int64()}
    source = penstock.open([{"c": 10}, {"c": 20}, {}, {"c": 30}])
    batch = encoder.encode(source.read(range(4), encoder.fields), position(range(4)))
    assert batch["c"].codes.tolist() == [1, -1, -1, 0]
    assert batch["c"].decoded() == [10, None, None, 30]
    again = pickle.loads(pickle.dumps(encoder))
    assert again.fields == encoder.fields


def test_a_string_in_place_of_json_is_json_text_and_another_column_its_value() -> None:
    encoder = FieldEncoder({"a": "json", "b": "json", "c": "text", "n": "int64"})
    columns = pa.record_batch(
        {"a": ['{"k": [1]}', None], "b": [{"k": 1}, None], "c": [1, None], "n": pa.array([1, 2])}
    )
    batch = encoder.encode(columns, position([7, 8]))
    assert (batch["a"], batch["b"]) == ([{"k": [1]}, None], [{"k": 1}, None])
    assert batch["c"] == ["1", None]


def test_a_text_that_is_not_json_is_named_by_its_record() -> None:
    with pytest.raises(SchemaMismatchError, match="'a' holds a text that is not JSON") as failure:
        FieldEncoder({"a": "json"}).encode(pa.record_batch({"a": ["1", "{"]}), position([7, 8]))
    assert failure.value.record == 8  # type: ignore[attr-defined]


@pytest.mark.parametrize("values", [5, None, [1, "a"], [object()]])
def test_a_vocabulary_that_is_no_list_of_values_is_refused(values: Any) -> None:
    with pytest.raises(OptionError, match="vocabulary of 'c'"):
        FieldEncoder({"c": "category"}, {"c": values})
