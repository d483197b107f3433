"""What is left, and what is said, when a writer ends in an unusual way."""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING

import pytest

from penstock.errors import StorageError
from penstock.jsonl import JsonlDir, JsonlFile

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
