"""What is left, and what is said, when a writer ends in an unusual way."""

from __future__ import annotations

import logging
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from penstock.errors import StorageError
from penstock.jsonl import JsonlDir, JsonlFile, read_seek_table
from penstock.storage import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.s3_server import S3Server


def test_a_publish_that_failed_is_not_forgotten(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    writer = JsonlFile(tmp_path / "gone" / "a.jsonl").writer_sync()
    writer.write({"id": 1})
    writer.flush()
    shutil.rmtree(tmp_path / "gone")
    with pytest.raises(StorageError):
        writer.close()
    with pytest.raises(StorageError, match="not published"):
        writer.close()


@pytest.mark.parametrize("state", ["buffered", "flushed"])
def test_a_writer_that_is_dropped_says_so(
    state: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = JsonlDir(tmp_path).writer_sync()
    writer.write({"id": 1})
    if state == "flushed":
        writer.flush()
    with caplog.at_level(logging.WARNING, "penstock"):
        del writer
    assert "dropped without being closed" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_an_integer_too_long_for_python_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(TypeError, match=r"cannot write a\.b\[1\]"),
        JsonlFile(tmp_path / "a.jsonl").writer_sync() as w,
    ):
        w.write({"a": {"b": [1, 10**5000]}})


def test_opening_for_raw_bytes_clears_what_a_dead_writer_left(tmp_path: Path) -> None:
    (tmp_path / ".a.jsonl.0123456789abcdef.penstock-tmp").write_bytes(b"half")
    with JsonlFile(tmp_path / "b.jsonl").open_sync("wb") as raw:
        raw.write(b"{}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["b.jsonl"]


def test_a_listed_shard_is_read_again_after_it_was_rewritten(
    s3_server: S3Server, bucket: str
) -> None:
    directory = JsonlDir(f"s3://{bucket}/d", s3_server.storage_options)
    with directory.writer_sync() as w:
        w.write({"id": 1})
    (shard,) = directory.shards_sync()
    with shard.writer_sync() as w:
        w.write({"id": 2, "longer": True})
    assert list(shard.iter_records_sync()) == [{"id": 2, "longer": True}]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.zst"])
def test_threads_may_share_a_writer(name: str, tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / name)
    with file.writer_sync(flush_bytes=200) as w, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda k: [w.write({"k": k, "i": i}) for i in range(2000)], range(4)))
    records = list(file.iter_records_sync())
    assert sorted((r["k"], r["i"]) for r in records) == [
        (k, i) for k in range(4) for i in range(2000)
    ]


def test_threads_may_share_a_writer_of_shards(tmp_path: Path) -> None:
    directory = JsonlDir(tmp_path)
    with directory.writer_sync(max_records_per_shard=50) as w, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda k: w.write_many([{"k": k, "i": i} for i in range(300)]), range(4)))
    records = list(directory.iter_records_sync())
    assert sorted((r["k"], r["i"]) for r in records) == [
        (k, i) for k in range(4) for i in range(300)
    ]
    assert len(directory.shards_sync()) == 24


@pytest.mark.parametrize("one", [{"a": 1}, "text", b"bytes"])
def test_one_record_is_not_taken_for_many(one: object, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="write takes one"), JsonlDir(tmp_path).writer_sync() as w:
        w.write_many(one)  # type: ignore[arg-type]


def test_a_pipe_or_a_directory_is_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    for name in ("pipe.jsonl", "folder.jsonl"):
        file = JsonlFile(tmp_path / name)
        with pytest.raises(OSError, match="cannot write"), file.writer_sync() as w:
            w.write({})
        with pytest.raises(OSError, match="cannot write"):
            file.open_sync("wb")
    assert (tmp_path / "pipe.jsonl").is_fifo()


def test_a_file_cut_between_two_frames_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.jsonl.zst"
    with JsonlFile(path).writer_sync(frame_bytes=100) as w:
        w.write_many({"id": i} for i in range(100))
    file = LocalStore().open(str(path))
    frames = read_seek_table(file)
    file.close()
    assert frames is not None
    path.write_bytes(path.read_bytes()[: sum(size for size, _ in frames[:5])])
    with caplog.at_level(logging.WARNING, "penstock"):
        assert 0 < len(list(JsonlFile(path).iter_records_sync())) < 100
    assert "has lost its end" in caplog.text


def test_a_directory_without_any_file_to_read_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.ndjson").write_text("{}\n")
    with caplog.at_level(logging.WARNING, "penstock"):
        assert list(JsonlDir(tmp_path).iter_records_sync()) == []
    assert "holds no JSON Lines files" in caplog.text


@pytest.mark.parametrize(
    "options",
    [
        {"max_records_per_shard": "3"},
        {"max_bytes_per_shard": 2.5},
        {"flush_bytes": True},
        {"frame_bytes": 0},
        {"compression_level": "9"},
    ],
)
def test_what_is_no_count_is_refused_by_name(options: dict[str, object], tmp_path: Path) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=f"{name}=.*expected a whole number"):
        JsonlDir(tmp_path).writer_sync(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["", "s3://bucket", "s3://bucket/"])
def test_a_file_needs_a_name(path: str) -> None:
    with pytest.raises(ValueError, match=r"no path|names a bucket"):
        JsonlFile(path)
