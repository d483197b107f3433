from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import penstock
from penstock.errors import OptionError
from penstock.jsonl import JsonlDir
from penstock.storage import cache_directory
from tests.cli.commands import document, invoke, succeed, written


def records(directory: Path) -> list[object]:
    return list(JsonlDir(directory).iter_records_sync())


def test_a_directory_is_summed_up_and_its_files_listed(logs: Path) -> None:
    text = succeed("info", logs)
    assert text.splitlines()[0] == str(logs)
    assert "files        3" in text
    assert "records      10" in text
    assert "zstd, seekable" in text
    assert [line.split()[:2] for line in text.splitlines() if "part-" in line] == [
        ["part-00000.jsonl.zst", "4"],
        ["part-00001.jsonl.zst", "4"],
        ["part-00002.jsonl.zst", "2"],
    ]


def test_json_tells_everything_of_every_file(logs: Path) -> None:
    told = document("info", logs)
    files = [logs / f"part-0000{i}.jsonl.zst" for i in range(3)]
    text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records(logs))
    assert (told["path"], told["files"], told["records"]) == (str(logs), 3, 10)
    assert told["bytes"] == sum(file.stat().st_size for file in files)
    assert told["text_bytes"] == len(text)
    assert [one["path"] for one in told["per_file"]] == [str(file) for file in files]
    assert [one["records"] for one in told["per_file"]] == [4, 4, 2]
    assert [one["modified"] for one in told["per_file"]] == [f.stat().st_mtime for f in files]
    assert {(one["compression"], one["seekable"]) for one in told["per_file"]} == {("zstd", True)}
    assert (told["leftovers"], told["errors"]) == ([], [])


def test_every_compression_is_told_apart(tmp_path: Path) -> None:
    text = b'{"a":1}\n\n{"a":2}'
    (tmp_path / "a.jsonl").write_bytes(text)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(text))
    (tmp_path / "c.jsonl.zst").write_bytes(zstandard.compress(text))
    (tmp_path / "d.jsonl.zst").write_bytes(zstandard.compress(b""))
    told = document("info", tmp_path)
    seen = [(f["compression"], f["seekable"], f["records"]) for f in told["per_file"]]
    assert seen == [("none", True, 2), ("gzip", False, 2), ("zstd", False, 2), ("zstd", False, 0)]
    assert [f["text_bytes"] for f in told["per_file"]] == [len(text)] * 3 + [0]


def test_without_records_nothing_is_decompressed(tmp_path: Path, logs: Path) -> None:
    told = document("info", logs, "--no-records")
    assert told["records"] is None
    assert told["text_bytes"] == document("info", logs)["text_bytes"]
    broken = tmp_path / "broken.jsonl.gz"
    broken.write_bytes(b"this is not gzip")
    told = document("info", broken, "--no-records")
    assert (told["records"], told["text_bytes"], told["bytes"]) == (None, None, 16)
    assert "not counted" in succeed("info", broken, "--no-records")


@pytest.mark.parametrize("damage", ["damaged", "emptied", "unreadable"])
def test_a_file_that_cannot_be_read_is_named_and_the_others_are_shown(
    logs: Path, damage: str
) -> None:
    victim = logs / "part-00001.jsonl.zst"
    if damage == "damaged":
        victim.write_bytes(victim.read_bytes()[:40])
    elif damage == "emptied":
        victim.write_bytes(b"")
    else:
        victim.unlink()
        os.mkfifo(victim)
    done = invoke("info", logs)
    assert done.exit_code == 3
    assert str(victim) in done.stderr
    assert "Traceback" not in done.output
    assert "records      6" in done.stdout
    assert "1 unreadable" in done.stdout
    told = document("info", logs, code=3)
    assert [error["path"] for error in told["errors"]] == [str(victim)]
    assert [one["records"] for one in told["per_file"]] == [4, 2]


def test_many_files_are_not_listed_one_by_one(tmp_path: Path) -> None:
    with JsonlDir(tmp_path).writer_sync(max_records_per_shard=1) as writer:
        writer.write_many({"id": i} for i in range(21))
    assert "part-00000" not in succeed("info", tmp_path)
    assert len(document("info", tmp_path)["per_file"]) == 21


def test_a_leftover_is_told_with_its_writer_gone(logs: Path, dead_draft: Path) -> None:
    text = succeed("info", logs)
    assert f"{dead_draft}, 100 B, writer gone" in text
    assert "penstock clean" in text
    (leftover,) = document("info", logs)["leftovers"]
    assert (leftover["path"], leftover["bytes"], leftover["writer"]) == (
        str(dead_draft),
        100,
        "gone",
    )


def test_a_leftover_is_told_with_its_writer_at_work(logs: Path, living_draft: Path) -> None:
    text = succeed("info", logs)
    assert f"{living_draft}, 100 B, writer at work" in text
    assert "penstock clean" not in text


@pytest.mark.parametrize("verb", ["info", "check", "show"])
def test_an_empty_directory_is_no_error_but_said_so(tmp_path: Path, verb: str) -> None:
    (tmp_path / "nested").mkdir()
    done = invoke(verb, tmp_path)
    assert done.exit_code == 0
    assert done.stderr == f"penstock: warning: {tmp_path} holds no files with records\n"


@pytest.mark.parametrize("verb", ["info", "check", "show"])
@pytest.mark.parametrize(
    "files",
    [{"notes.txt": "cannot tell"}, {"a.jsonl": "of JSON Lines and 1 of CSV", "b.csv": ""}],
    ids=["of no format", "of two formats"],
)
def test_a_folder_that_does_not_open_is_refused_with_the_same_words(
    verb: str, files: dict[str, str], tmp_path: Path
) -> None:
    for name in files:
        written(tmp_path / name, "{}")
    with pytest.raises(OptionError, match=next(iter(files.values()))) as caught:
        penstock.open(tmp_path)
    done = invoke(verb, tmp_path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert str(caught.value) in done.stderr


def test_a_single_file_needs_no_table(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", "{}", "", "  ", "{}")
    text = succeed("info", file)
    assert "records      2" in text
    assert "compression  none" in text
    assert len(text.splitlines()) == 6


def test_an_index_is_told_with_its_place_and_age(logs: Path) -> None:
    assert document("info", logs)["index"] is None
    succeed("index", logs)
    text = succeed("info", logs)
    assert f"  index        {logs}/index: 10 records, built " in text
    assert " ago, up to date\n" in text
    seen = document("info", logs)["index"]
    assert (seen["path"], seen["records"], seen["fresh"]) == (f"{logs}/index", 10, True)
    assert (seen["changed"], seen["grown"], seen["new"], seen["problem"]) == ([], [], [], None)
    assert abs(seen["created"] - (logs / "index" / "meta.json").stat().st_mtime) < 10
    assert seen["fingerprint"] == penstock.open(logs).fingerprint


def test_with_an_index_records_are_known_without_reading(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"{}\n{}\n"))
    (tmp_path / "b.jsonl").write_bytes(b"{}\n\n{}\n{}\n")
    succeed("index", tmp_path)
    damage(tmp_path / "a.jsonl.gz")
    seen = document("info", tmp_path)
    assert [file["records"] for file in seen["per_file"]] == [2, 3]
    assert seen["text_bytes"] == 6 + 10
    assert document("info", tmp_path, "--no-records") == seen


def damage(file: Path) -> None:
    """Replace all of a file, so that no listing shows it."""
    status = file.stat()
    file.write_bytes(b"\0" * status.st_size)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_what_became_of_the_files_since_is_told(tmp_path: Path) -> None:
    for name in ("gone", "grown", "other", "same", "shrunk"):
        written(tmp_path / f"{name}.jsonl", '{"id":1}', '{"id":2}')
    succeed("index", tmp_path)
    damage(tmp_path / "same.jsonl")
    (tmp_path / "gone.jsonl").unlink()
    written(tmp_path / "shrunk.jsonl", '{"id":1}')
    written(tmp_path / "other.jsonl", '{"id":3}', '{"id":4}')
    os.utime(tmp_path / "other.jsonl", (0, 0))
    with (tmp_path / "grown.jsonl").open("a") as file:
        file.write('{"id":3}\n')
    written(tmp_path / "below" / "new.jsonl", "{}")
    seen = document("info", tmp_path)
    assert seen["index"]["fresh"] is False
    assert {Path(one["path"]).stem for one in seen["index"]["changed"]} == {
        "gone",
        "other",
        "shrunk",
    }
    assert seen["index"]["grown"] == [f"{tmp_path}/grown.jsonl"]
    assert seen["index"]["new"] == [f"{tmp_path}/below/new.jsonl"]
    counts = {Path(file["path"]).stem: file["records"] for file in seen["per_file"]}
    assert counts == {"new": 1, "grown": 3, "other": 2, "same": 2, "shrunk": 1}
    text = succeed("info", tmp_path)
    assert "stale        4 files: " in text
    assert f"{tmp_path}/gone.jsonl (is gone)" in text
    assert f"{tmp_path}/grown.jsonl (grew)" in text
    assert f"new          1 file not in it: {tmp_path}/below/new.jsonl" in text
    assert f"remedy       penstock index {tmp_path} --overwrite" in text
    succeed("index", tmp_path, "--overwrite")
    assert "up to date" in succeed("info", tmp_path)


def test_what_can_be_appended_needs_an_update_only(logs: Path) -> None:
    succeed("index", logs)
    written(logs / "part-00009.jsonl", "{}")
    text = succeed("info", logs)
    assert f"remedy       penstock index {logs} --update" in text
    assert "up to date" not in text
    assert document("info", logs)["index"]["fresh"] is True


def test_a_pattern_that_matches_in_more_folders_than_before_has_new_files(tmp_path: Path) -> None:
    written(tmp_path / "x" / "a.jsonl", "{}")
    pattern = f"{tmp_path}/*/a.jsonl"
    succeed("index", pattern)
    written(tmp_path / "y" / "a.jsonl", "{}")
    seen = document("info", pattern)["index"]
    assert (seen["new"], seen["changed"]) == ([f"{tmp_path}/y/a.jsonl"], [])


def test_an_index_of_another_tool_is_told(logs: Path) -> None:
    succeed("index", logs)
    (logs / "index" / "meta.json").unlink()
    text = succeed("info", logs)
    assert "10 records, built " in text
    assert "made by another tool" in text
    assert document("info", logs)["index"]["fresh"] is None


def test_a_damaged_index_is_told(logs: Path) -> None:
    succeed("index", logs)
    (logs / "index" / "meta.json").write_text("{")
    assert "index        cannot be used: " in succeed("info", logs)
    seen = document("info", logs)
    assert "meta.json" in seen["index"]["problem"]
    assert seen["records"] == 10


@pytest.mark.parametrize("is_indexed", [False, True])
def test_csv_has_rows_and_columns(tmp_path: Path, *, is_indexed: bool) -> None:
    written(tmp_path / "t" / "a.csv", "id,text", "1,x", "2,y")
    written(tmp_path / "t" / "b.csv", "id,price", "3,0.5")
    if is_indexed:
        succeed("index", tmp_path / "t")
    seen = document("info", tmp_path / "t")
    assert (seen["format"], seen["files"], seen["records"]) == ("csv", 2, 3)
    assert [file["records"] for file in seen["per_file"]] == [2, 1]
    assert [(one["name"], one["type"]) for one in seen["columns"]] == [
        ("id", "int64"),
        ("text", "string"),
        ("price", "double"),
    ]
    assert (seen["index"] is not None) == is_indexed
    text = succeed("info", tmp_path / "t")
    assert "records      3" in text
    assert "price   double" in text
    unread = document("info", tmp_path / "t", "--no-records")
    assert unread["records"] == (3 if is_indexed else None)


def test_parquet_has_rows_and_columns_without_reading(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "a.parquet", row_group_size=2)
    pq.write_table(pa.table({"id": [4], "tags": [["x"]]}), tmp_path / "b.parquet")
    for path in (tmp_path, f"{tmp_path}/*.parquet"):
        seen = document("info", path, "--no-records")
        assert (seen["format"], seen["records"], seen["index"]) == ("parquet", 4, None)
        assert [file["records"] for file in seen["per_file"]] == [3, 1]
        assert [one["name"] for one in seen["columns"]] == ["id", "tags"]
    assert "format       Parquet" in succeed("info", tmp_path / "a.parquet")


def test_columns_profile_and_bad_lines_are_told(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    written(lines / "a.jsonl", *['{"id": 1, "x": 0.5}'] * 20, "{oops")
    bare = document("info", lines)
    assert bare["materialized"] == {"columns": 0, "bytes": 0, "stale": 0, "folders": []}
    assert bare["profile"] is None
    assert invoke("index", lines, "--validate", "--profile").exit_code == 1
    succeed("materialize", lines, "id,x")
    told = document("info", lines)
    assert told["index"]["bad_lines"] == 1
    assert told["materialized"]["columns"] == 2
    assert told["materialized"]["folders"] == [f"{lines}/index/columns"]
    assert (told["profile"]["records"], told["profile"]["drift"]) == (20, 0)
    text = succeed("info", lines)
    assert f"bad lines    1 set aside: {lines}/index/bad_lines.ndjson" in text
    assert "materialised 2 columns, " in text
    assert "profile      made a moment ago, no drift" in text
    index, columns = told["kept"]
    assert (index["what"], index["path"]) == ("index", f"{lines}/index")
    files = [path for path in (lines / "index").iterdir() if path.is_file()]
    assert index["bytes"] == sum(path.stat().st_size for path in files)
    assert (columns["what"], columns["path"]) == ("columns", f"{lines}/index/columns")
    assert columns["bytes"] > 20 * (8 + 4)
    assert "kept         index, " in text
    assert f": {lines}/index/columns" in text
    (lines / "index" / "profile.json").write_text("{")
    assert "profile.json is damaged" in document("info", lines)["profile"]["problem"]
    assert "profile      cannot be used: " in succeed("info", lines)
    written(lines / "a.jsonl", '{"id": 1}')
    stale = document("info", lines)
    assert stale["materialized"]["columns"] == 0  # Whose they are, nobody can tell.
    assert stale["index"]["fresh"] is False
    assert stale["index"]["made_by"] == "index"
    assert [one["what"] for one in stale["kept"]] == ["index", "columns"]


def test_what_a_single_file_keeps_in_the_cache_is_told(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", '{"id": 1}')
    assert document("info", path)["kept"] == []
    penstock.open(path)
    told = document("info", path)
    (kept,) = told["kept"]
    assert Path(kept["path"]).parent == cache_directory() / "indexes"
    assert told["index"]["made_by"] == "open"
    written(path, '{"id": 1}', '{"id": 2}')
    text = succeed("info", path)
    assert "remedy       none needed: penstock.open made this index, and refreshes it" in text


def test_of_tables_columns_and_profile_are_told(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": [1, 2], "x": [0.5, None]}), path)
    succeed("materialize", path, "id")
    succeed("profile", path)
    told = document("info", path)
    assert told["materialized"]["columns"] == 1
    assert told["profile"]["fields"] == 2
    assert told["leftovers"] == []
    assert "materialised 1 column, " in succeed("info", path)
