from __future__ import annotations

import gzip
import json
import signal
import subprocess
import time
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
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
from tests.unprivileged import as_nobody, folder_for_all

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.s3_server import S3Server


def told(*arguments: object, code: int = 0) -> str:
    """Return what the command says on stderr when it ends with a code."""
    done = invoke(*arguments)
    assert done.exit_code == code, done.output
    assert done.stdout == ""
    return done.stderr


def test_an_index_is_built_and_told(logs: Path) -> None:
    text = succeed("index", logs)
    assert text.startswith(f"{logs}: 10 records in 3 files, ")
    assert f"; index in {logs}/index, " in text
    assert len(penstock.open(logs)) == 10


def test_json_tells_the_same_to_a_program(logs: Path) -> None:
    seen = document("index", logs)
    assert (seen["path"], seen["format"], seen["index"]) == (str(logs), "jsonl", f"{logs}/index")
    assert (seen["files"], seen["records"], seen["new_records"]) == (3, 10, 10)
    assert seen["bytes"] == sum(path.stat().st_size for path in logs.glob("*.zst"))
    records = JsonlDir(logs).iter_records_sync()
    lines = [json.dumps(record, separators=(",", ":")) + "\n" for record in records]
    assert seen["record_bytes"] == len("".join(lines))
    assert seen["fingerprint"] == penstock.open(logs).fingerprint
    assert not seen["unchanged"]


def test_an_index_that_is_there_is_not_touched_without_being_asked(logs: Path) -> None:
    succeed("index", logs)
    before = (logs / "index" / "meta.json").read_bytes()
    error = told("index", logs, code=2)
    assert f"there is an index in {logs}/index already" in error
    assert "--update" in error
    assert "--overwrite" in error
    assert (logs / "index" / "meta.json").read_bytes() == before
    assert told("index", logs, "--update", "--overwrite", code=2)


def test_an_update_adds_new_files_and_what_was_appended(tmp_path: Path) -> None:
    first = written(tmp_path / "d" / "a.jsonl", '{"id":0}', '{"id":1}')
    succeed("index", tmp_path / "d")
    with first.open("ab") as file:
        file.write(b'{"id":2}\n')
    written(tmp_path / "d" / "b.jsonl", '{"id":3}')
    seen = document("index", tmp_path / "d", "--update")
    assert (seen["records"], seen["new_records"], seen["unchanged"]) == (4, 2, False)
    assert sorted(record["id"] for record in penstock.open(tmp_path / "d")) == [0, 1, 2, 3]


def test_an_update_says_how_many_records_are_new(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", "{}")
    succeed("index", tmp_path)
    written(tmp_path / "b.jsonl", "{}", "{}")
    text = succeed("index", tmp_path, "--update")
    assert f"{tmp_path}: 2 records more, 3 records in 2 files" in text


def test_an_update_without_anything_to_do_says_so(logs: Path) -> None:
    succeed("index", logs)
    before = (logs / "index").stat()
    text = succeed("index", logs, "--update")
    assert text.startswith(f"{logs}: nothing new since the index in {logs}/index was built ")
    assert document("index", logs, "--update")["unchanged"]
    assert (logs / "index").stat() == before


def test_an_update_of_nothing_builds(logs: Path) -> None:
    assert document("index", logs, "--update")["records"] == 10


def test_an_update_refuses_to_renumber_and_names_the_remedy(logs: Path) -> None:
    succeed("index", logs)
    (logs / "part-00001.jsonl.zst").unlink()
    error = told("index", logs, "--update", code=1)
    assert "part-00001.jsonl.zst" in error
    assert "--overwrite" in error
    assert document("index", logs, "--overwrite")["records"] == 6


def test_a_damaged_index_is_built_anew_only_when_asked(logs: Path) -> None:
    succeed("index", logs)
    (logs / "index" / "meta.json").write_text("{")
    assert "meta.json" in told("index", logs, "--update", code=3)
    assert document("index", logs, "--overwrite")["records"] == 10


def test_every_byte_is_hashed_when_asked(logs: Path) -> None:
    succeed("index", logs, "--full-hash")
    meta = json.loads((logs / "index" / "meta.json").read_text())
    assert all(file["hash"] for file in meta["files"])


def test_the_index_of_a_file_or_a_pattern_lies_in_the_cache(logs: Path, cache: Path) -> None:
    for path in (logs / "part-00000.jsonl.zst", f"{logs}/part-*[01].jsonl.zst"):
        place = document("index", path)["index"]
        assert place.startswith(str(cache))
        assert f"there is an index in {place} already" in told("index", path, code=2)
        assert document("info", path)["index"]["path"] == place
    assert not (logs / "index").exists()


def test_the_index_may_lie_anywhere(logs: Path, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere" / "idx"
    assert document("index", logs, "--index", place)["index"] == str(place)
    assert not (logs / "index").exists()
    assert document("info", logs, "--index", place)["index"]["records"] == 10
    assert document("show", logs, "7", "--index", place)[0]["id"] == 7
    for verb in ("info", "show"):
        assert "there is no index in" in told(verb, logs, "--index", tmp_path / "no", code=3)


def test_what_stands_below_a_folder_is_indexed_too(tmp_path: Path) -> None:
    written(tmp_path / "x" / "deep" / "a.jsonl", "{}")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b"{}\n{}\n"))
    written(tmp_path / "empty.jsonl")
    text = succeed("index", tmp_path)
    assert "3 records in 2 files (1 file without any)" in text


def test_csv_is_indexed_and_parquet_needs_no_index(tmp_path: Path) -> None:
    written(tmp_path / "t" / "a.csv", "id,text", '1,"two', 'lines"', "2,x")
    seen = document("index", tmp_path / "t")
    assert (seen["format"], seen["records"]) == ("csv", 2)
    assert penstock.open(tmp_path / "t")[0] == {"id": 1, "text": "two\nlines"}
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "p.parquet")
    text = succeed("index", tmp_path / "p.parquet")
    assert "1 file of Parquet, which needs no index" in text
    assert document("index", tmp_path / "p.parquet")["index"] is None


def test_a_folder_of_several_kinds_is_refused_with_the_option_that_chooses(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", "{}")
    written(tmp_path / "b.ndjson", "{}")
    written(tmp_path / "a.csv", "a", "1")
    assert "(--format jsonl)" in told("index", tmp_path, code=2)
    assert document("index", tmp_path, "--format", "jsonl")["records"] == 2


@pytest.mark.parametrize("name", ["nothing", "nothing.jsonl", "nothing*.jsonl", ""])
def test_what_is_not_there_is_an_input_error(tmp_path: Path, name: str) -> None:
    assert str(tmp_path / name) in told("index", tmp_path / name, code=3)


def test_a_folder_that_may_not_be_written_to_has_its_index_in_the_cache(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document("index", logs)  # Imports what the other user may not reach.
    with folder_for_all() as base:
        data, cache = base / "data", base / "cache"
        data.mkdir()
        (data / "a.jsonl").write_text("{}\n")
        cache.mkdir()
        cache.chmod(0o777)
        data.chmod(0o555)
        monkeypatch.setenv("PENSTOCK_CACHE", str(cache))
        told_place = as_nobody(partial(document, "index", data))["index"]
        assert told_place.startswith(str(cache))
        assert [path.name for path in data.iterdir()] == ["a.jsonl"]


def wait_for_draft(process: subprocess.Popen[str], folder: Path) -> None:
    while process.poll() is None:
        if any(name.startswith(".index.") for name in hidden(folder)):
            return
        time.sleep(0.005)
    raise AssertionError(process.communicate())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_nothing(slow: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        command("index", slow), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for_draft(process, slow)
        time.sleep(0.2)
        process.send_signal(number)
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + number, err
    assert out == ""
    assert err == f"penstock: {'interrupted' if number == signal.SIGINT else 'terminated'}\n"
    assert [path.name for path in slow.iterdir()] == ["a.jsonl.zst"]


def test_an_interrupted_overwrite_leaves_the_index_that_was_there(slow: Path) -> None:
    small = written(slow / "b.jsonl", "{}")
    large = slow / "a.jsonl.zst"
    large.rename(slow / "_apart")
    succeed("index", slow)
    before = (slow / "index" / "meta.json").read_bytes()
    (slow / "_apart").rename(large)
    with subprocess.Popen(
        command("index", slow, "--overwrite"), stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for_draft(process, slow)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert (slow / "index" / "meta.json").read_bytes() == before
    assert sorted(path.name for path in slow.iterdir()) == [large.name, small.name, "index"]


def test_a_killed_build_shows_nothing_and_the_next_one_clears_up(slow: Path) -> None:
    with subprocess.Popen(command("index", slow)) as process:
        wait_for_draft(process, slow)
        process.kill()
    assert not (slow / "index").exists()
    (slow / "a.jsonl.zst").unlink()
    written(slow / "b.jsonl", "{}")
    assert document("index", slow)["records"] == 1
    assert hidden(slow) == []


def test_elsewhere_than_in_a_terminal_a_quick_build_shows_no_progress(logs: Path) -> None:
    done = run("index", logs)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_index_of_a_remote_folder_goes_beside_it(
    s3_server: S3Server, bucket: str, cache: Path
) -> None:
    url = f"s3://{bucket}/some/logs"
    with JsonlDir(url, s3_server.storage_options).writer_sync(max_records_per_shard=4) as writer:
        writer.write_many({"id": i} for i in range(10))
    given = options(s3_server.storage_options)
    assert document("index", url, *given)["index"] == f"{url}/index"
    assert "some/logs/index/meta.json" in s3_server.list_keys(bucket)
    assert not (cache / "indexes").exists()
    error = told("index", url, *given, code=2)
    assert f"there is an index in {url}/index already" in error
    assert document("index", url, "--update", *given)["unchanged"]
    assert document("show", url, "7", *given) == [{"id": 7}]
    seen = document("info", url, *given)
    assert (seen["records"], seen["index"]["path"], seen["index"]["fresh"]) == (
        10,
        f"{url}/index",
        True,
    )
    s3_server.put(bucket, "some/logs/part-00009.jsonl", b'{"id":10}\n')
    assert document("info", url, *given)["index"]["new"] == [f"{url}/part-00009.jsonl"]
    assert document("index", url, "--update", *given)["new_records"] == 1
    assert document("show", url, "-1", *given) == [{"id": 10}]


def test_bad_lines_are_counted_and_end_it_with_a_finding(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    written(folder / "a.jsonl", '{"id": 0}', "{oops", "", "[1]", '{"id": 1}')
    done = invoke("index", folder, "--validate", "--profile")
    assert done.exit_code == 1
    first, *rest = done.stdout.splitlines()
    assert first.startswith(f"{folder}: 2 records in 1 file, ")
    assert rest == [
        f"2 bad lines set aside and not in the index: {folder}/index/bad_lines.ndjson",
        f"profile in {folder}/index/profile.json",
    ]
    assert done.stderr == ""
    assert len(penstock.open(folder)) == 2


def test_a_program_learns_of_bad_lines_and_an_update_counts_new_ones(tmp_path: Path) -> None:
    first = written(tmp_path / "d" / "a.jsonl", '{"id": 0}', "{oops")
    seen = document("index", tmp_path / "d", "--validate", code=1)
    assert (seen["validated"], seen["profiled"]) == (True, False)
    assert (seen["bad_lines"], seen["new_bad_lines"], seen["records"]) == (1, 1, 1)
    with first.open("ab") as file:
        file.write(b'{"id": 1}\n')
    text = succeed("index", tmp_path / "d", "--update")
    assert text.splitlines()[1] == "no new bad lines; 1 line set aside before"
    with first.open("ab") as file:
        file.write(b'{"id": 2}\n?\n')
    seen = document("index", tmp_path / "d", "--update", code=1)
    assert (seen["bad_lines"], seen["new_bad_lines"], seen["new_records"]) == (2, 1, 1)
    assert document("index", tmp_path / "d", "--overwrite")["bad_lines"] == 0


def test_without_bad_lines_nothing_is_found(logs: Path) -> None:
    assert succeed("index", logs, "--validate").endswith("\nno bad lines\n")
    seen = document("index", logs, "--overwrite", "--profile", "--workers", "0")
    assert (seen["validated"], seen["profiled"]) == (False, True)


def test_long_lines_are_set_aside_when_asked(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", '{"id": "%s"}' % ("x" * 2000), "{}")
    told("index", tmp_path, "--max-line-bytes", "1kB", code=2)
    seen = document("index", tmp_path, "--validate", "--max-line-bytes", "1kB", code=1)
    assert (seen["bad_lines"], seen["records"]) == (1, 1)
    error = told("index", tmp_path, "--update", "--validate", "--max-line-bytes", "2kB", code=2)
    assert "--overwrite" in error


def test_what_an_index_was_not_built_with_an_update_cannot_add(logs: Path) -> None:
    succeed("index", logs)
    assert "--overwrite --validate" in told("index", logs, "--update", "--validate", code=2)
    assert "--overwrite --profile" in told("index", logs, "--update", "--profile", code=2)


def test_csv_is_validated_and_parquet_needs_another_verb(tmp_path: Path) -> None:
    written(tmp_path / "t" / "a.csv", "id,text", "1,x", "2")
    assert document("index", tmp_path / "t", "--validate", "--profile", code=1)["bad_lines"] == 1
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "p.parquet")
    assert "penstock profile" in told("index", tmp_path / "p.parquet", "--profile", code=2)


def test_files_that_are_called_tsv_have_tabs(tmp_path: Path) -> None:
    written(tmp_path / "t.tsv", "id\tname", "1\tann, or not")
    succeed("index", tmp_path)
    assert penstock.open(tmp_path)[0] == {"id": 1, "name": "ann, or not"}
