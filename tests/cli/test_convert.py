from __future__ import annotations

import datetime as dt
import gzip
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import pyzstd
import zstandard

import penstock
from penstock.jsonl import JsonlDir, JsonlFile
from tests.cli.commands import document, hidden, invoke, succeed, visible, written

if TYPE_CHECKING:
    from pathlib import Path

# What an encoder would change: wide integers, NaN, spaces, the order of keys, keys given twice.
FAITHFUL = [
    b'{"big":123456789012345678901234567890, "z":1,"a":2}',
    b'{ "a" : NaN , "a" : 1e400, "s": "\\u00e9\\ud800" }',
    b'{"crlf":true}\r',
    '[1.0, 1, "ż"]'.encode(),
]
ODD = b"\xef\xbb\xbf" + b"\n\n".join(FAITHFUL) + b"\n   \n\r\n" + b'{"last":1}'
PLAIN = b"".join(line + b"\n" for line in [*FAITHFUL, b'{"last":1}'])


def text_of(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    return pyzstd.decompress(data) if path.suffix in (".zst", ".zstd") else data


@pytest.mark.parametrize("source", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
@pytest.mark.parametrize("target", ["b.jsonl", "b.jsonl.gz", "b.jsonl.zst", "b.jsonl.zstd"])
def test_lines_are_copied_byte_for_byte(tmp_path: Path, source: str, target: str) -> None:
    compress = {".jsonl": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}
    (tmp_path / source).write_bytes(compress[(tmp_path / source).suffix](ODD))
    told = document("convert", tmp_path / source, tmp_path / target)
    assert text_of(tmp_path / target) == PLAIN
    assert told["records"] == 5
    assert told["text_bytes"] == len(PLAIN)
    assert told["bytes"] == (tmp_path / target).stat().st_size
    assert told["files_written"] == [str(tmp_path / target)]


def test_a_directory_is_resharded_by_records(logs: Path, tmp_path: Path) -> None:
    text = succeed("convert", logs, tmp_path / "out", "--max-records-per-shard", "3")
    assert "10 records from 3 files in 4 files" in text
    assert visible(tmp_path / "out") == [f"part-0000{i}.jsonl.zst" for i in range(4)]
    counts = [len(list(f.iter_records_sync())) for f in JsonlDir(tmp_path / "out").shards_sync()]
    assert counts == [3, 3, 3, 1]
    ids = [record["id"] for record in JsonlDir(tmp_path / "out").iter_records_sync()]
    assert ids == list(range(10))


def test_a_directory_is_resharded_by_bytes(tmp_path: Path) -> None:
    source = written(tmp_path / "a.jsonl", *[b'{"id":"%04d"}' % i for i in range(1000)])
    succeed("convert", source, tmp_path / "out", "--max-bytes-per-shard", "1kB")
    sizes = [path.stat().st_size for path in (tmp_path / "out").iterdir()]
    assert max(sizes) <= 1000
    assert sum(sizes) == source.stat().st_size
    joined = b"".join(path.read_bytes() for path in sorted((tmp_path / "out").iterdir()))
    assert joined == source.read_bytes()


def test_shards_are_compressed_like_the_source_unless_said_otherwise(
    logs: Path, tmp_path: Path
) -> None:
    succeed("convert", logs, tmp_path / "plain", "--shard-extension", ".jsonl")
    assert visible(tmp_path / "plain") == ["part-00000.jsonl"]
    succeed("convert", tmp_path / "plain", tmp_path / "still")
    assert visible(tmp_path / "still") == ["part-00000.jsonl"]
    succeed("convert", tmp_path / "plain", tmp_path / "zstd", "--shard-extension", ".jsonl.zstd")
    assert visible(tmp_path / "zstd") == ["part-00000.jsonl.zstd"]
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(b"{}\n"))
    succeed("convert", packed, tmp_path / "from-gzip")
    assert visible(tmp_path / "from-gzip") == ["part-00000.jsonl.zst"]


def test_level_and_frames_reach_the_writer(tmp_path: Path) -> None:
    source = written(tmp_path / "a.jsonl", *[b'{"id":%d}' % i for i in range(20000)])
    small, large = tmp_path / "small.jsonl.zst", tmp_path / "large.jsonl.zst"
    succeed("convert", source, small, "--compression-level", "19", "--frame-bytes", "1MiB")
    succeed("convert", source, large, "--compression-level", "1", "--frame-bytes", "4KiB")
    assert small.stat().st_size < large.stat().st_size
    assert text_of(small) == text_of(large) == source.read_bytes()
    done = invoke("convert", source, tmp_path / "b.jsonl.zst", "--compression-level", "99")
    assert done.exit_code == 2
    assert "compression_level=99" in done.stderr


def test_a_bad_line_stops_it_and_nothing_appears(tmp_path: Path) -> None:
    source = written(tmp_path / "a.jsonl", "{}", "{oops", "{}")
    done = invoke("convert", source, tmp_path / "b.jsonl")
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"{source}, line 2: " in done.stderr
    assert "--on-error skip" in done.stderr
    assert "Nothing was written." in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl"]


def test_bad_lines_are_left_out_when_asked_to(tmp_path: Path) -> None:
    source = written(tmp_path / "a.jsonl", '{"a": 1}', "{oops", b'"\xff"', "[2]", "")
    done = invoke("convert", source, tmp_path / "b.jsonl", "--on-error", "skip")
    assert done.exit_code == 0
    assert "2 records from 1 file in 1 file, 2 bad lines left out" in done.stdout
    assert f"warning: skipped {source}, line 2: " in done.stderr
    assert (tmp_path / "b.jsonl").read_bytes() == b'{"a": 1}\n[2]\n'
    assert document("convert", source, tmp_path / "c.jsonl", "--on-error", "skip")["skipped"] == 2


def test_shards_published_before_a_failure_are_removed_again(tmp_path: Path) -> None:
    source = written(tmp_path / "a.jsonl", *["{}"] * 50_000, "{oops")
    target = tmp_path / "out"
    done = invoke("convert", source, target, "--max-records-per-shard", "10000")
    assert done.exit_code == 1
    assert "shards that this run had published: removed again." in done.stderr
    assert list(target.iterdir()) == []


def test_shards_that_were_there_before_a_failure_stay(logs: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in logs.iterdir()}
    source = written(tmp_path / "a.jsonl", *["{}"] * 50_000, "{oops")
    done = invoke("convert", source, logs, "--append", "--max-records-per-shard", "10000")
    assert done.exit_code == 1
    assert {path.name: path.read_bytes() for path in logs.iterdir()} == before


@pytest.mark.parametrize("target", ["out", "out.jsonl"])
def test_a_damaged_source_leaves_no_target(logs: Path, tmp_path: Path, target: str) -> None:
    victim = logs / "part-00002.jsonl.zst"
    victim.write_bytes(victim.read_bytes()[:40])
    limit = ["--max-records-per-shard", "1"] if target == "out" else []
    done = invoke("convert", logs, tmp_path / target, *limit)
    assert done.exit_code == 3
    assert str(victim) in done.stderr
    assert not (tmp_path / "out.jsonl").exists()
    assert list((tmp_path / "out").glob("*")) == []


def test_an_existing_file_needs_overwrite(logs: Path, tmp_path: Path) -> None:
    target = written(tmp_path / "b.jsonl", "old")
    done = invoke("convert", logs, target)
    assert done.exit_code == 2
    assert "--overwrite" in done.stderr
    assert target.read_bytes() == b"old\n"
    succeed("convert", logs, target, "--overwrite")
    assert len(list(JsonlFile(target).iter_records_sync())) == 10


def test_a_directory_with_shards_needs_append(logs: Path, tmp_path: Path) -> None:
    source = written(tmp_path / "a.jsonl", '{"id": 10}')
    done = invoke("convert", source, logs)
    assert done.exit_code == 2
    assert "already holds 3 JSON Lines files" in done.stderr
    assert "--append" in done.stderr
    told = document("convert", source, logs, "--append")
    assert told["files_written"] == [str(logs / "part-00003.jsonl")]
    assert [r["id"] for r in JsonlDir(logs).iter_records_sync()] == list(range(11))


def test_writing_where_is_read_is_refused(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = visible(logs)
    link = tmp_path / "link"
    link.symlink_to(logs)
    monkeypatch.chdir(tmp_path)
    shard = logs / "part-00000.jsonl.zst"
    for source, target in [
        (logs, logs),
        (logs, "logs/"),
        (logs, link),
        (link, logs),
        (f"{logs}/*.zst", logs),
        (shard, logs),
        (shard, link / shard.name),
        (logs, logs / "all.jsonl"),
    ]:
        done = invoke("convert", source, target, *(["--append"] * (".jsonl" not in str(target))))
        assert done.exit_code == 2, (source, target)
        assert "DST" in done.stderr
    assert visible(logs) == before


def test_a_file_may_be_compressed_beside_itself(logs: Path) -> None:
    shard = logs / "part-00000.jsonl.zst"
    succeed("convert", shard, logs / "plain.jsonl")
    assert text_of(shard) == (logs / "plain.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("target", "option"),
    [
        ("b.jsonl", ["--append"]),
        ("b.jsonl", ["--shard-extension", ".jsonl"]),
        ("b.jsonl", ["--max-records-per-shard", "5"]),
        ("b.jsonl", ["--max-bytes-per-shard", "256MiB"]),
        ("b", ["--overwrite"]),
        ("b", ["--max-bytes-per-shard", "many"]),
        ("b", ["--max-records-per-shard", "0"]),
        ("b", ["--shard-extension", ".jsonl.gz"]),
        ("b", ["--on-error", "ignore"]),
        ("b.parquet", []),
        ("b.csv", []),
    ],
)
def test_options_that_do_not_fit_the_target_are_refused(
    logs: Path, tmp_path: Path, target: str, option: list[str]
) -> None:
    done = invoke("convert", logs, tmp_path / target, *option)
    assert done.exit_code == 2
    assert "Error: " in done.stderr
    assert not (tmp_path / target).exists()


def test_a_directory_with_a_files_name_is_refused_before_anything_is_read(
    logs: Path, tmp_path: Path
) -> None:
    (tmp_path / "b.jsonl").mkdir()
    done = invoke("convert", logs, tmp_path / "b.jsonl", "--overwrite")
    assert done.exit_code == 2
    assert "is a directory" in done.stderr


def test_an_empty_file_gives_an_empty_target(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    assert document("convert", tmp_path / "empty.jsonl", tmp_path / "out")["files_written"] == []
    assert invoke("convert", tmp_path / "empty.jsonl", tmp_path / "out.jsonl.zst").exit_code == 0
    assert list(JsonlFile(tmp_path / "out.jsonl.zst").iter_records_sync()) == []


@pytest.mark.parametrize(("name", "code"), [("notes.txt", 2), (".hidden", 3)])
def test_a_folder_without_records_is_not_converted(name: str, code: int, tmp_path: Path) -> None:
    written(tmp_path / "from" / name, "{}")
    assert invoke("convert", tmp_path / "from", tmp_path / "out.jsonl").exit_code == code
    assert not (tmp_path / "out.jsonl").exists()


def test_what_a_dead_writer_left_in_the_target_is_cleared(logs: Path, dead_draft: Path) -> None:
    source = written(logs.parent / "a.jsonl", "{}")
    succeed("convert", source, logs, "--append")
    assert not dead_draft.exists()
    assert hidden(logs) == []


def test_a_target_that_cannot_be_written_is_told(logs: Path, tmp_path: Path) -> None:
    written(tmp_path / "file", "x")
    for target in (tmp_path / "file" / "out", tmp_path / "file" / "out.jsonl"):
        done = invoke("convert", logs, target)
        assert done.exit_code == 3
        assert "penstock: cannot" in done.stderr
        assert "Traceback" not in done.output


def test_a_link_is_followed_to_the_file_it_names(logs: Path, tmp_path: Path) -> None:
    real = written(tmp_path / "real" / "b.jsonl", "old")
    (tmp_path / "b.jsonl").symlink_to(real)
    succeed("convert", logs, tmp_path / "b.jsonl", "--overwrite")
    assert (tmp_path / "b.jsonl").is_symlink()
    assert len(real.read_bytes().splitlines()) == 10


@pytest.mark.parametrize("ending", ["zst", "gz"])
def test_a_compressed_file_of_no_bytes_is_not_converted_to_nothing(
    ending: str, tmp_path: Path
) -> None:
    (tmp_path / f"a.jsonl.{ending}").touch()
    done = invoke("convert", tmp_path / f"a.jsonl.{ending}", tmp_path / "out.jsonl")
    assert done.exit_code == 3
    assert f"a.jsonl.{ending} is cut off" in done.stderr
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_records_of_tables_are_written_as_lines(ending: str, tmp_path: Path) -> None:
    rows = [{"n": n, "text": f"text {n}", "day": dt.date(2026, 1, 1 + n)} for n in range(5)]
    table = pa.Table.from_pylist(rows)
    write = pa_csv.write_csv if ending == ".csv" else pq.write_table
    write(table, tmp_path / f"a{ending}")
    done = document("convert", tmp_path / f"a{ending}", tmp_path / "out.jsonl")
    assert (done["records"], done["files_read"]) == (5, 1)
    expected = [{**row, "day": str(row["day"])} for row in rows]
    assert penstock.open(tmp_path / "out.jsonl")[:] == expected


def test_a_value_that_json_has_no_form_for_writes_nothing(tmp_path: Path) -> None:
    pq.write_table(pa.table({"data": [b"\xff"]}), tmp_path / "a.parquet")
    done = invoke("convert", tmp_path / "a.parquet", tmp_path / "out")
    assert done.exit_code == 3
    assert "data" in done.stderr
    assert not (tmp_path / "out").exists()


def test_lines_can_only_be_skipped_where_there_are_lines(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a.parquet")
    done = invoke("convert", tmp_path / "a.parquet", tmp_path / "out", "--on-error", "skip")
    assert done.exit_code == 2
    assert "--on-error skip is for lines" in done.stderr
