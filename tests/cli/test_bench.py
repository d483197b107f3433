from __future__ import annotations

import gzip
import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.cli._typed_fields import all_types, cheap_types, field_types, parse_fields
from penstock.cli.bench._runs import (
    Advice,
    BenchFacts,
    ColumnsTrial,
    LoaderRun,
    Setting,
    advice,
    best_of,
)
from penstock.errors import OptionError
from penstock.jsonl import JsonlDir
from tests.cli.commands import SECONDS, command, document, invoke, options, succeed, written

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.cli.bench._runs import Workers
    from tests.servers.s3_server import S3Server

QUICK = ("--seconds", "0.2", "--batch-size", "16")


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A directory of 100 plain records, with an index."""
    folder = tmp_path / "lines"
    records = ({"id": i, "x": i / 3, "t": f"r{i}", "user": {"age": i}} for i in range(100))
    written(folder / "a.jsonl", *map(json.dumps, records))
    succeed("index", folder)
    return folder


def of_rate(
    rate: float, workers: Workers = 0, change: Any = "", types: Any = (), **stats: float
) -> LoaderRun:
    """A run that handed out so many records in a second."""
    seconds = {"read_seconds": 0.1, "decode_seconds": 0.2, "encode_seconds": 0.1}
    storage = dict.fromkeys(
        ("storage_requests", "storage_bytes", "storage_throttled", "wait_seconds"), 0.0
    )
    setting = Setting(workers, dict.fromkeys(types, "int64"), 1000, shuffle=True, change=change)
    found = {"records": rate, **seconds, **storage, **stats}
    return LoaderRun(setting, int(rate), 1.0, 0.01, "full", "the caller", found)


def advised(*runs: LoaderRun, **facts: Any) -> list[Advice]:
    known = {"is_remote": False, "compressions": frozenset(), "names_fields": True, **facts}
    return advice(runs, BenchFacts("logs", **known))


def test_every_number_of_workers_is_run_and_told(lines: Path) -> None:
    found = document("bench", lines, *QUICK, "--workers", "0,auto,2")
    fastest = found["runs"][3]["workers"]
    assert [one["workers"] for one in found["runs"]] == [0, "auto", 2, fastest, "auto"]
    assert [one["change"] for one in found["runs"]] == [None] * 3 + ["few fields", "columns"]
    assert found["runs"][3]["fields"] == ["id", "x"]
    assert (found["records"], found["files"], found["batch_size"]) == (100, 1, 16)
    assert found["fields"] == {"id": "int64?", "x": "float64", "t": "text", "user.age": "int64?"}
    for one in found["runs"]:
        assert one["records_per_second"] > 0
        assert one["first_batch_seconds"] > 0
        assert one["records"] >= 16
        assert one["storage"]["requests"] == 0
    assert {"do", "why"} == set(found["advice"][0])


def test_every_run_decodes_but_the_one_that_gathers_from_columns(lines: Path) -> None:
    given = (lines, *QUICK, "--workers", "0", "--fields", "id:int64,x:float32")
    decoded, gathered = document("bench", *given)["runs"]
    assert decoded["columns"].startswith("decoded anew for each batch")
    assert decoded["microseconds_per_record"]["decode"] > 0
    assert gathered["columns"].startswith("gathered")
    assert gathered["change"] == "columns"
    assert not (lines / "index" / "columns").exists()  # Those were for this one look.
    succeed("materialize", lines, "id:int64,x:float32")
    decoded, gathered = document("bench", *given)["runs"]
    assert decoded["columns"].startswith("decoded anew for each batch")
    assert gathered["columns"].startswith("gathered")


def test_columns_are_advised_by_what_they_gained(lines: Path) -> None:
    runs = [of_rate(100), of_rate(900, "auto", "columns", ["a"])]
    facts = BenchFacts("logs", is_remote=False, compressions=frozenset(), names_fields=True)
    source = penstock.open(lines)
    made = advice(runs, facts, ColumnsTrial(source, 2.0))[0]
    assert "penstock materialize logs a:int64" in made.do
    assert made.why == "9.0 × as fast: 900 records/s, after 2.0 s once"
    there = advice(runs, facts, ColumnsTrial(source, None))[0]
    assert "the columns that are there" in there.do
    slow = [of_rate(100), of_rate(101, "auto", "columns", ["a"])]
    assert not any("column" in one.do for one in advice(slow, facts, ColumnsTrial(source, None)))


def test_the_table_has_a_line_a_run_and_the_advice_its_reasons(lines: Path) -> None:
    text = succeed("bench", lines, *QUICK, "--workers", "0,auto", "--fields", "id,x:float32")
    assert "100 in 1 file" in text
    assert "full: any record can be read by itself here" in text
    assert "of 16 as tensors: id:int64?, x:float32" in text
    table = [
        line.split()[0] for line in text.splitlines() if "records/s" in line or "thread" in line
    ]
    assert table[:3] == ["workers", "0", "auto"]
    assert "\n1. " in text
    assert "a batch of 16 takes" in text


@pytest.mark.parametrize("shuffle", ["true", "full", "block", "none"])
def test_the_order_is_the_one_asked_for(lines: Path, shuffle: str) -> None:
    found = document("bench", lines, *QUICK, "--workers", 0, "--shuffle", shuffle, "--fields", "id")
    kind = {"true": "full", "none": "sequential"}.get(shuffle, shuffle)
    assert found["order"].startswith(kind)


def test_where_block_order_is_the_natural_one_it_is_tried_beside_a_full_shuffle(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "packed"
    with JsonlDir(folder).writer_sync(".jsonl.zst") as writer:
        writer.write_many({"id": i} for i in range(50))
    succeed("index", folder)
    found = document("bench", folder, *QUICK, "--workers", 0, "--shuffle", "full")
    assert [one["change"] for one in found["runs"]] == [None, "block order", "columns"]
    assert found["runs"][1]["order"].startswith("block")


def test_gzip_is_read_in_order_and_what_to_do_is_said(tmp_path: Path) -> None:
    path = tmp_path / "z" / "a.jsonl.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(b'{"id": 1}\n' * 50))
    succeed("index", path.parent)
    found = document("bench", path.parent, *QUICK, "--workers", "0")
    assert found["order"].startswith("sequential")
    assert found["notes"] == ["gzip can only be read in order: not shuffled"]
    assert any("penstock convert" in one["do"] for one in found["advice"])


def test_parquet_and_csv_need_no_index(tmp_path: Path) -> None:
    table = pa.table({"id": range(40), "x": [0.5] * 40})
    pq.write_table(table, tmp_path / "t.parquet")
    written(tmp_path / "t.csv", "id,x", *(f"{i},0.5" for i in range(40)))
    for name in ("t.parquet", "t.csv"):
        found = document("bench", tmp_path / name, *QUICK, "--workers", 0)
        assert found["fields"] == {"id": "int64?", "x": "float64"}


def test_the_requests_of_remote_data_are_counted(bucket: str, s3_server: S3Server) -> None:
    path, given = f"s3://{bucket}/far", options(s3_server.storage_options)
    with JsonlDir(path, storage_options=s3_server.storage_options).writer_sync() as writer:
        writer.write_many({"id": i} for i in range(100))
    succeed("index", path, *given)
    found = document("bench", path, *QUICK, "--workers", "auto", *given)
    assert found["order"].startswith("block")
    # Its one block then lies on this machine's disk, where every run finds it.
    assert found["very_first_batch"]["storage"]["requests"] >= 1
    assert found["very_first_batch"]["storage"]["bytes"] >= 100 * len(b'{"id":1}')
    assert found["runs"][0]["storage"]["requests"] == 0


def test_without_torch_batches_are_arrow_and_that_is_said(lines: Path, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'torch':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
        "import importlib.util\n"
        "real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda n, *a: None if n == 'torch' else real(n, *a)\n"
    )
    done = subprocess.run(
        command("bench", lines, *QUICK, "--workers", "0,2", "--json"),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, "PYTHONPATH": str(hidden)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["output"] == "arrow"
    assert "torch is not installed" in found["notes"][0]


def test_a_missing_index_is_built(tmp_path: Path) -> None:
    plain = written(tmp_path / "plain.jsonl", '{"id": 1}')
    assert document("bench", plain, *QUICK, "--workers", 0)["records"] == 1
    written(plain, '{"id": 1}', '{"id": 2}')
    assert document("bench", plain, *QUICK, "--workers", 0)["records"] == 2


def test_fields_of_numbers_and_texts_are_run(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", '{"a": 1, "l": [1, "x"]}', '{"a": "x", "l": []}')
    found = document("bench", path, *QUICK, "--workers", 0)
    assert found["fields"] == {"a": "text", "l": "list<text>"}


def test_what_cannot_be_run_is_told_with_its_exit_code(lines: Path, tmp_path: Path) -> None:
    empty = written(tmp_path / "empty" / "a.jsonl").parent
    succeed("index", empty)
    done = invoke("bench", empty)
    assert done.exit_code == 1
    assert "holds no records" in done.stderr
    for wrong in (
        ("--workers", "two"),
        ("--fields", "nothing"),
        ("--fields", "id:int65"),
        ("--fields", "id,id"),
        ("--seconds", "0"),
        ("--batch-size", "0"),
    ):
        assert invoke("bench", lines, *wrong).exit_code == 2
    # A null where the type that was asked for has no place for it.
    holes = written(tmp_path / "holes" / "a.jsonl", '{"id": 1}', '{"id": null}').parent
    succeed("index", holes)
    done = invoke("bench", holes, *QUICK, "--workers", 0, "--fields", "id:int64")
    assert done.exit_code == 1
    assert "int64?" in done.stderr
    assert invoke("bench", holes, *QUICK, "--workers", 0, "--fields", "id").exit_code == 0


def test_fields_are_split_outside_of_brackets_only() -> None:
    assert parse_fields("a,b.c:int64?, l:list<list<int64>>") == {
        "a": None,
        "b.c": "int64?",
        "l": "list<list<int64>>",
    }
    for wrong in ("", "a,", ":int64", "a:", "a,a"):
        with pytest.raises(OptionError):
            parse_fields(wrong)


def test_by_itself_every_field_is_asked_for_that_a_batch_can_hold() -> None:
    inner = pa.struct({"n": pa.int64(), "s": pa.string()})
    schema = pa.schema(
        {
            "flag": pa.bool_(),
            "at": pa.timestamp("us"),
            "half": pa.float32(),
            "vector": pa.list_(pa.float32(), 4),
            "word": pa.dictionary(pa.int32(), pa.string()),
            "inner": inner,
            "many": pa.list_(inner),
            "empty": pa.null(),
        }
    )
    types = all_types(schema)
    assert types == {
        "flag": "bool?",
        "at": "timestamp[us]?",
        "half": "float32",
        "vector": "float32[4]?",
        "word": "category",
        "inner.n": "int64?",
        "inner.s": "string",
        "many[].n": "list<int64>",
        "many[].s": "list<string>",
    }
    assert list(cheap_types(types)) == ["flag", "at", "half", "vector", "word"]
    assert field_types({"half": "float64", "flag": None}, schema) == {
        "half": "float64",
        "flag": "bool?",
    }


def test_the_least_work_of_those_that_are_as_fast_is_advised() -> None:
    slow, auto, two, four = (of_rate(100), of_rate(195, "auto"), of_rate(200, 2), of_rate(205, 4))
    assert best_of([slow, two, four]) is two
    assert best_of([slow, auto, two, four]) is auto
    assert advised(slow, auto)[0].do.startswith("leave num_workers")
    assert advised(slow, two)[0] == Advice("num_workers=2", "200 records/s, against 100 with 0")
    assert [one.do for one in advised(slow)] == ["measure a training step without data"]


def test_a_change_is_advised_by_what_it_gained() -> None:
    plain = of_rate(100, types=("a", "b"))
    better = of_rate(150, change="block order")
    assert any("shuffle='block'" in one.do for one in advised(plain, better))
    assert "1.5 × as fast" in advised(plain, better)[0].why
    assert len(advised(plain, of_rate(110, change="block order"))) == 1
    few = advised(plain, of_rate(300, change="few fields", types=("a",)))
    assert "(a)" in few[0].do


def test_the_stage_that_takes_most_is_named() -> None:
    decoding = of_rate(100, decode_seconds=9.0, types=("a", "b"))
    assert "96% of the work is decoding" not in str(advised(decoding))
    assert "98% of the work is decoding" in str(advised(decoding, names_fields=False))
    reading = of_rate(100, read_seconds=9.0)
    assert "page cache" in str(advised(reading))
    assert "decompressing" in str(advised(reading, compressions=frozenset({"zstd"})))
    far = of_rate(100, read_seconds=9.0, storage_requests=10.0, storage_bytes=1e7)
    assert "10 requests of 1.00 MB each" in str(advised(far, is_remote=True))
    slowed = of_rate(100, storage_requests=10.0, storage_throttled=3.0)
    assert "3 times to slow down" in str(advised(slowed, is_remote=True))


def test_help_explains_it() -> None:
    done = invoke("bench", "--help")
    assert done.exit_code == 0
    assert "penstock bench logs" in done.stdout
