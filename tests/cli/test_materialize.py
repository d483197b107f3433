from __future__ import annotations

import json
import os
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.datasets import columns_of, typed_schema
from penstock.jsonl import JsonlDir
from tests.cli.commands import (
    SECONDS,
    command,
    document,
    hidden,
    invoke,
    options,
    run,
    succeed,
    written,
)
from tests.datasets.materialize_programs import FIELDS, LINES, write_large
from tests.faults.halting import halting
from tests.unprivileged import as_nobody, folder_for_all

if TYPE_CHECKING:
    from tests.servers.s3_server import S3Server


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A folder of 100 plain records, without an index."""
    records = (
        {"id": n, "price": n / 4, "tags": [n] * (n % 3), "user": {"age": n % 9 or None}}
        for n in range(100)
    )
    written(tmp_path / "lines" / "a.jsonl", *map(json.dumps, records))
    return tmp_path / "lines"


def names(told: dict[str, Any]) -> list[str]:
    return [f"{column['path']}:{column['type']}" for column in told["columns"]]


def test_columns_are_built_with_an_estimate_before_and_a_table_after(lines: Path) -> None:
    text = succeed("materialize", lines, "price:float32,tags:list<int64>")
    estimate, *table, summary = text.splitlines()
    assert estimate.startswith(f"{lines}: 100 records to decode: less than a second, about ")
    assert f" free in {lines}/index/columns" in estimate
    assert [line.split()[:3] for line in table] == [
        ["column", "type", "records"],
        ["price", "float32", "100"],
        ["tags", "list<int64>", "100"],
    ]
    assert summary.startswith(f"{lines}: 2 columns of ")
    assert summary.endswith(f"; in {lines}/index/columns")
    source = penstock.open(lines)
    schema = typed_schema({"price": "float32", "tags": "list<int64>"})
    assert schema is not None
    assert columns_of(source, schema) is not None


def test_only_what_is_not_there_is_built(lines: Path) -> None:
    first = document("materialize", lines, "price:float32")
    assert [column["built"] for column in first["columns"]] == [True]
    told = document("materialize", lines, "price:float32,id")
    assert names(told) == ["price:float32", "id:int64"]
    assert [column["built"] for column in told["columns"]] == [False, True]
    assert told["bytes"] == told["columns"][1]["bytes"] > 0
    assert told["estimate"]["records"] == 100
    assert told["estimate"]["free_bytes"] > 0
    text = succeed("materialize", lines, "price:float32,id")
    assert "nothing to build: 2 columns were there already" in text
    assert "to decode" not in text
    assert "1 column was there already" in succeed("materialize", lines, "id,tags:list<int8>")


def test_what_was_appended_is_all_that_is_decoded(lines: Path) -> None:
    succeed("materialize", lines, "id")
    written(lines / "b.jsonl", '{"id": 100}')
    succeed("index", lines, "--update")
    (there,) = document("materialize", lines, "--list")["columns"]
    assert (there["records"], there["missing_records"], there["stale"]) == (100, 1, False)
    assert "1 record behind" in succeed("materialize", lines, "--list")
    told = document("materialize", lines, "id")
    assert told["estimate"]["records"] == 1
    assert told["columns"][0]["records"] == 101


def test_columns_are_listed_with_what_is_known_of_them(lines: Path) -> None:
    assert succeed("materialize", lines, "--list") == f"{lines}: 0 columns\n"
    assert not (lines / "index").exists()  # Looking builds nothing.
    succeed("materialize", lines, "id,price,user.age")
    told = document("materialize", lines, "--list")
    assert names(told) == ["id:int64", "price:float64", "user.age:int64"]
    assert told["records"] == 100
    assert told["bytes"] == sum(column["bytes"] for column in told["columns"])
    assert {column["folder"] for column in told["columns"]} == {f"{lines}/index/columns"}
    assert names(document("materialize", lines, "price", "--list")) == ["price:float64"]
    text = succeed("materialize", lines, "--list")
    assert text.splitlines()[1].split()[-1] == "fresh"
    assert text.splitlines()[-1].startswith(f"{lines}: 3 columns, ")


def test_stale_columns_are_told_and_built_again(lines: Path) -> None:
    succeed("materialize", lines, "id")
    written(lines / "a.jsonl", '{"id": 7}')
    assert document("materialize", lines, "id")["columns"][0]["records"] == 1
    succeed("index", lines, "--overwrite")
    written(lines / "a.jsonl", '{"id": 7}', '{"id": 8}')
    done = invoke("materialize", lines, "id")
    assert done.exit_code == 1
    assert "--update" in done.stderr
    succeed("index", lines, "--overwrite")
    assert document("materialize", lines, "id")["columns"][0]["records"] == 2


def test_columns_are_dropped_by_name_or_all(lines: Path) -> None:
    succeed("materialize", lines, "id,price,tags:list<int64>")
    text = succeed("materialize", lines, "price,user.age", "--drop")
    assert text.splitlines()[0] == "dropped price (float64, 800 B)"
    assert "no column of user.age was there" in text
    assert f"{lines}: dropped 1 column, 800 B" in text
    told = document("materialize", lines, "--drop")
    assert [column["path"] for column in told["dropped"]] == ["id", "tags"]
    assert document("materialize", lines, "--list")["columns"] == []
    assert document("materialize", lines, "--drop")["dropped"] == []


@pytest.mark.parametrize("is_file", [False, True], ids=["folder", "file"])
@pytest.mark.parametrize("what", ["stale", "damaged", "missing"])
def test_columns_are_listed_and_dropped_whatever_became_of_the_index(
    lines: Path, what: str, *, is_file: bool
) -> None:
    path = lines / "a.jsonl" if is_file else lines
    told = document("materialize", path, "id,price")
    index = Path(told["columns"][0]["folder"]).parent
    if what == "stale":
        written(lines / "a.jsonl", '{"id": 7}')
    elif what == "damaged":
        (index / "meta.json").write_text("{")
    else:
        for file in index.glob("*.*"):
            if file.is_file():
                file.unlink()
    done = invoke("materialize", path, "--list")
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[1:-1]] == ["id", "price"]
    assert "not known without an index" in done.stdout
    assert ("changed since the index" in done.stderr) is (what == "stale")
    told = document("materialize", path, "--list")
    assert {column["stale"] for column in told["columns"]} == {None}
    dropped = document("materialize", path, "price", "--drop")["dropped"]
    assert [column["path"] for column in dropped] == ["price"]
    assert names(document("materialize", path, "--list")) == ["id:int64"]
    assert len(document("materialize", path, "--drop")["dropped"]) == 1


def test_columns_of_a_file_of_no_known_format_are_refused(tmp_path: Path) -> None:
    done = invoke("materialize", written(tmp_path / "a.txt", "text"), "--list")
    assert done.exit_code == 2
    assert "cannot tell what" in done.stderr


def test_columns_in_a_folder_of_their_own_need_no_index(lines: Path, tmp_path: Path) -> None:
    document("materialize", lines, "id", "--path", tmp_path / "own")
    written(lines / "a.jsonl", '{"id": 7}')
    there = "--path", tmp_path / "own"
    assert names(document("materialize", lines, "--list", *there)) == ["id:int64"]
    assert len(document("materialize", lines, "--drop", *there)["dropped"]) == 1


def test_the_column_with_nulled_values_is_told_not_one_with_bad_records(lines: Path) -> None:
    written(lines / "a.jsonl", '{"id": 1}', '{"id": "x"}')
    penstock.open(lines).materialize({"id": "int64"}, on_error="mask")
    told = document("materialize", lines, "id:int64", "--on-error", "null")
    (column,) = told["columns"]
    assert (column["nulled"], column["bad"], column["built"]) == (1, 0, True)


def test_types_come_from_the_profile_where_there_is_one(tmp_path: Path) -> None:
    records = [{"n": 1, "x": 1, "mixed": 1}] * 2000 + [{"n": 2, "x": 0.5, "mixed": "a"}] * 2000
    folder = tmp_path / "lines"
    written(folder / "a.jsonl", *map(json.dumps, records))
    succeed("index", folder, "--profile")
    told = document("materialize", folder, "n,x")
    assert names(told) == ["n:int64", "x:float64"]
    assert names(document("materialize", folder, "mixed")) == ["mixed:json"]
    assert names(document("materialize", folder, "x:float32")) == ["x:float32"]


def test_a_value_that_does_not_fit_is_a_finding_or_null_and_counted(lines: Path) -> None:
    done = invoke("materialize", lines, "price:int64")
    assert done.exit_code == 1
    assert "holds 0.25, which does not fit int64" in done.stderr
    assert f"{lines}/a.jsonl, line 2," in done.stderr
    assert "--on-error null" in done.stderr
    done = invoke("materialize", lines, "price:int64", "--on-error", "null")
    assert done.exit_code == 0
    assert "75 values that do not fit int64 are null" in done.stderr
    told = document("materialize", lines, "--list")
    assert (told["columns"][0]["nulled"], told["columns"][0]["bad"]) == (75, 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name the FIELDS"),
        (["id", "--list", "--drop"], "either --list or --drop"),
        (["id,id"], "names 'id' more than once"),
        (["id:"], "expected NAME or NAME:TYPE"),
        (["id:nothing"], "field 'id': this is no field type"),
        (["nothing"], "no field 'nothing'"),
        (["user"], "holds objects"),
        (["id", "--on-error", "skip"], "--on-error"),
        (["id", "--workers", "-1"], "--workers"),
    ],
)
def test_a_command_line_that_is_wrong_is_refused(
    lines: Path, arguments: list[str], said: str
) -> None:
    done = invoke("materialize", lines, *arguments)
    assert done.exit_code == 2
    assert said in done.stderr


def test_of_nothing_there_are_no_columns(tmp_path: Path) -> None:
    empty = written(tmp_path / "empty.jsonl")
    assert "holds no records" in succeed("materialize", empty, "id:int64")
    assert document("materialize", empty, "id:int64")["columns"] == []
    assert invoke("materialize", tmp_path / "nothing", "id").exit_code == 3
    (tmp_path / "none").mkdir()
    assert invoke("materialize", tmp_path / "none", "id").exit_code == 3


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.parquet", "t.jsonl"])
def test_columns_of_single_files_lie_in_the_cache(tmp_path: Path, cache: Path, name: str) -> None:
    path = tmp_path / name
    if name == "t.parquet":
        pq.write_table(pa.table({"id": [1, 2], "x": [0.5, None]}), path)
    elif name == "t.jsonl":
        written(path, '{"id": 1, "x": 0.5}', '{"id": 2}')
    else:
        sign = "\t" if name == "t.tsv" else ","
        written(path, sign.join(["id", "x"]), sign.join(["1", "0.5"]), f"2{sign}")
    assert names(document("materialize", path, "id,x")) == ["id:int64", "x:float64"]
    told = document("materialize", path, "--list")
    assert names(told) == ["id:int64", "x:float64"]
    assert all(column["folder"].startswith(str(cache)) for column in told["columns"])
    assert sorted(p.name for p in tmp_path.iterdir()) == [".cache", name]


def test_another_folder_is_used_where_it_is_named(lines: Path, tmp_path: Path) -> None:
    there = tmp_path / "elsewhere"
    told = document("materialize", lines, "id", "--path", there)
    assert told["columns"][0]["folder"] == str(there)
    assert names(document("materialize", lines, "--list")) == []
    assert names(document("materialize", lines, "--list", "--path", there)) == ["id:int64"]
    succeed("index", lines, "--overwrite", "--index", tmp_path / "index")
    assert names(document("materialize", lines, "id", "--index", tmp_path / "index")) == [
        "id:int64"
    ]
    assert (tmp_path / "index" / "columns").is_dir()


def test_columns_of_a_folder_that_may_not_be_written_to_lie_in_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with folder_for_all() as place:
        cache = place / "cache"
        cache.mkdir()
        cache.chmod(0o777)
        monkeypatch.setenv("PENSTOCK_CACHE", str(cache))
        written(place / "data" / "a.jsonl", '{"id": 1}')
        succeed("index", place / "data")
        told = as_nobody(partial(document, "materialize", place / "data", "id"))
        assert told["columns"][0]["folder"].startswith(str(cache))
        assert not (place / "data" / "index" / "columns").exists()


def test_columns_that_no_hash_vouches_for_go_with_an_index_that_has_one(tmp_path: Path) -> None:
    file = written(tmp_path / "data" / "a.jsonl", *['{"id": 1}'] * 20_000)
    succeed("index", tmp_path / "data")
    succeed("materialize", tmp_path / "data", "id:int64")
    was, text = file.stat(), file.read_text()
    file.write_text(text[:100_000] + text[100_000:].replace("1", "2", 1))
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
    succeed("index", tmp_path / "data", "--overwrite", "--full-hash")
    assert document("materialize", tmp_path / "data", "--list")["columns"] == []
    succeed("materialize", tmp_path / "data", "id:int64")
    succeed("index", tmp_path / "data", "--overwrite", "--full-hash")
    assert len(document("materialize", tmp_path / "data", "--list")["columns"]) == 1


def test_a_killed_command_goes_on_where_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "large"
    write_large(folder)
    fields = ",".join(f"{name}:{type_}" for name, type_ in FIELDS.items())
    succeed("index", folder)
    columns = folder / "index" / "columns"
    arguments = command("materialize", folder, fields, "--workers", "1")
    env = {**os.environ, **halting("[0-9]*.arrow", after=1)}
    with subprocess.Popen(arguments, env=env, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + SECONDS
        while not [*columns.glob(".penstock-building-*/[0-9]*.arrow")]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.kill()
    done = [*columns.glob(".penstock-building-*/[0-9]*.arrow")]
    (leftover,) = document("info", folder)["leftovers"]
    assert leftover["writer"] == "gone"
    kept = done[0].stat().st_ino, done[0].stat().st_mtime_ns
    assert invoke("materialize", folder, "id:int8", "--list").exit_code == 0
    assert (done[0].stat().st_ino, done[0].stat().st_mtime_ns) == kept
    again = run("materialize", folder, fields, "--json", "--workers", "0")
    assert again.returncode == 0
    told = json.loads(again.stdout)
    assert [column["records"] for column in told["columns"]] == [LINES] * 3
    assert hidden(columns) == [".gitignore", ".lock"]


def test_columns_of_remote_data_lie_in_the_cache_or_are_published_beside_it(
    s3_server: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    url, given = f"s3://{bucket}/data", options(s3_server.storage_options)
    with JsonlDir(url, s3_server.storage_options).writer_sync() as writer:
        writer.write_many({"id": n, "x": n / 2} for n in range(50))
    told = document("materialize", url, "id:int64", *given)
    assert told["columns"][0]["folder"].startswith(str(cache))
    assert told["published"] is None
    assert not [key for key in s3_server.list_keys(bucket) if "columns" in key]
    place = f"{url}/index/columns"
    text = succeed("materialize", url, "id:int64,x", "--path", place, *given)
    assert f"1 column was there already; published in {place}, and in {cache}" in text
    keys = [key for key in s3_server.list_keys(bucket) if "columns" in key]
    assert "data/index/columns/id-int64/meta.json" in keys
    assert "data/index/columns/x-float64/meta.json" in keys
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "another"))
    told = document("materialize", url, "id:int64", *given)
    assert told["estimate"]["records"] == 50  # Nobody knows before it is looked for.
    assert [column["built"] for column in told["columns"]] == [False]
    text = succeed("materialize", url, "--drop", "--path", place, *given)
    assert "what is published in" in text
    assert [key for key in s3_server.list_keys(bucket) if "columns" in key] == keys
