from __future__ import annotations

import fcntl
import gc
import os
import shutil
import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.storage import cache_directory
from tests.cli.commands import document, invoke, succeed, visible, written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.s3_server import S3Server


def test_what_a_dead_writer_left_is_removed_and_told(logs: Path, dead_draft: Path) -> None:
    before = visible(logs)
    assert document("clean", logs, "--dry-run")["removed"][0]["path"] == str(dead_draft)
    assert "would remove 1 leftover, 100 B" in succeed("clean", logs, "--dry-run")
    assert dead_draft.exists()
    text = succeed("clean", logs)
    assert f"removed {dead_draft} (100 B)" in text
    assert f"{logs}: removed 1 leftover, 100 B" in text
    assert not dead_draft.exists()
    assert visible(logs) == before
    assert "removed 0 leftovers" in succeed("clean", logs)


def test_directories_below_are_cleaned_too(logs: Path, dead_draft: Path) -> None:
    told = document("clean", logs.parent)
    assert (told["path"], told["bytes"], told["dry_run"]) == (str(logs.parent), 100, False)
    (removed,) = told["removed"]
    assert (removed["path"], removed["writer"]) == (str(dead_draft), "gone")
    assert not dead_draft.exists()


def test_what_a_living_writer_holds_is_kept_however_old(logs: Path, living_draft: Path) -> None:
    os.utime(living_draft, (1, 1))
    text = succeed("clean", logs, "--older-than", "1s")
    assert f"kept {living_draft} (its writer is at work)" in text
    assert living_draft.exists()


def test_a_claim_is_removed_like_a_draft(logs: Path) -> None:
    claim = written(logs / ".part-00009.jsonl.penstock-claim")
    assert len(document("clean", logs)["removed"]) == 1
    assert not claim.exists()


def test_other_hidden_files_are_nobodys_leftovers(logs: Path) -> None:
    others = [
        ".gitignore",
        ".x.penstock-tmp",
        ".a.0123456789abcdef.penstock-tmp2",
        "x.penstock-tmp",
    ]
    for name in others:
        written(logs / name, "{}")
    assert document("clean", logs, "--older-than", "0s")["removed"] == []
    assert all((logs / name).exists() for name in others)


@pytest.fixture
def undecided_draft(logs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A leftover that nobody can lock, as on a file system without locks: a socket's name."""
    monkeypatch.chdir(logs)  # A socket's path has to be short.
    name = ".shard.jsonl.0123456789abcdef.penstock-tmp"
    with socket.socket(socket.AF_UNIX) as unlockable:
        unlockable.bind(name)
    os.utime(name, (time.time() - 3600,) * 2)
    return logs / name


def test_where_no_writer_can_be_determined_only_age_decides(
    logs: Path, undecided_draft: Path
) -> None:
    assert "writer unknown" in succeed("info", logs)
    assert "--older-than" in succeed("clean", logs)
    assert document("clean", logs, "--older-than", "2h")["removed"] == []
    assert undecided_draft.exists()
    assert len(document("clean", logs, "--older-than", "30m", "--dry-run")["removed"]) == 1
    assert undecided_draft.exists()
    assert len(document("clean", logs, "--older-than", "30m")["removed"]) == 1
    assert not undecided_draft.exists()


def test_what_cannot_be_removed_is_an_error(logs: Path) -> None:
    draft = logs / ".shard.jsonl.0123456789abcdef.penstock-tmp"
    draft.mkdir()
    os.utime(draft, (1, 1))
    done = invoke("clean", logs, "--older-than", "1h")
    assert done.exit_code == 3
    assert f"cannot remove {draft}" in done.stderr
    assert document("clean", logs, "--older-than", "1h", code=3)["errors"]


def test_the_default_is_the_cache_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: Path, dead_draft: Path
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "none"))
    assert "removed 0 leftovers" in succeed("clean")
    monkeypatch.setenv("PENSTOCK_CACHE", str(logs))
    assert f"{logs}: removed 1 leftover" in succeed("clean")
    assert not dead_draft.exists()


def test_in_object_storage_there_is_only_a_rule_to_set() -> None:
    text = succeed("clean", "s3://bucket/logs")
    assert "lifecycle rule" in text
    assert "64 MiB" in text
    told = document("clean", "gs://bucket/logs", "--dry-run")
    assert told["removed"] == []
    assert "multipart" in told["note"]


def test_a_path_that_cannot_be_cleaned_is_refused(tmp_path: Path) -> None:
    done = invoke("clean", tmp_path / "nothing")
    assert done.exit_code == 3
    assert "no such directory" in done.stderr
    file = written(tmp_path / "a.jsonl", "{}")
    assert invoke("clean", file).exit_code == 2
    assert invoke("clean", tmp_path, "--older-than", "2").exit_code == 2


def test_time_is_only_asked_of_the_clock(logs: Path, dead_draft: Path) -> None:
    os.utime(dead_draft, (time.time() + 3600,) * 2)
    assert document("clean", logs, "--older-than", "2d")["bytes"] == 100


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold what the builder of a folder holds."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@pytest.fixture
def built(logs: Path) -> Path:
    """The index of `logs`, with a column, and all kinds of folders that builders leave."""
    succeed("index", logs)
    succeed("materialize", logs, "id")
    columns = logs / "index" / "columns"
    written(columns / f".penstock-building-{'0' * 16}-{'1' * 16}" / "000000.arrow", "x" * 9)
    written(columns / f".{'2' * 16}.penstock-column-tmp" / "values.bin", "x" * 9)
    written(logs / f".index.{'3' * 16}.penstock-index-tmp" / "000000.unit", "x" * 9)
    return logs


def test_what_killed_builders_left_is_removed(built: Path) -> None:
    told = document("info", built)["leftovers"]
    assert [(one["bytes"], one["writer"]) for one in told] == [(10, "gone")] * 3
    assert len(document("clean", built, "--dry-run")["removed"]) == 3
    assert len(document("info", built)["leftovers"]) == 3
    removed = document("clean", built)
    assert (len(removed["removed"]), removed["bytes"], removed["kept"]) == (3, 30, [])
    assert document("info", built)["leftovers"] == []
    assert document("info", built)["materialized"]["columns"] == 1
    assert len(document("show", built, "9")) == 1


def test_what_living_builders_hold_is_kept_however_old(built: Path) -> None:
    index = built / f".index.{'3' * 16}.penstock-index-tmp"
    for path in (index, *index.iterdir()):
        os.utime(path, (1, 1))
    with locked(index), locked(built / "index" / "columns" / ".lock"):
        told = document("clean", built, "--older-than", "1s")
        assert told["removed"] == []
        assert {one["writer"] for one in told["kept"]} == {"at work"}
    assert index.exists()


def test_an_index_that_was_put_aside_comes_back(logs: Path) -> None:
    succeed("index", logs)
    old = (logs / "index").rename(logs / f".index.{'4' * 16}.penstock-index-old")
    assert f"penstock clean {logs}" in document("info", logs)["index"]["problem"]
    assert document("check", logs, code=1)["kinds"] == {"unusable index": 1}
    assert f"would bring back {logs / 'index'}" in succeed("clean", logs, "--dry-run")
    assert old.exists()
    told = document("clean", logs, "--older-than", "0s")
    assert (told["restored"], told["removed"]) == ([str(logs / "index")], [])
    assert document("info", logs)["index"]["fresh"]


def test_an_index_that_a_living_builder_has_put_aside_stays(logs: Path) -> None:
    succeed("index", logs)
    old = (logs / "index").rename(logs / f".index.{'4' * 16}.penstock-index-old")
    builder = logs / f".index.{'5' * 16}.penstock-index-tmp"
    builder.mkdir()
    with locked(builder):
        assert document("clean", logs)["restored"] == []
    assert old.exists()


def test_a_builder_that_ends_meanwhile_is_no_failure(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folders vanish: before they are listed, before they are looked at, while they go."""
    real, scandir = shutil.rmtree, os.scandir
    left = built / f".index.{'3' * 16}.penstock-index-tmp"
    for number in range(3):
        (built / f"folder-{number}").mkdir()

    def ends(path: object, *arguments: Any, **options: Any) -> None:
        real(path, *arguments, **options)  # type: ignore[arg-type]
        raise FileNotFoundError(2, "No such file or directory", str(path))

    def vanishing(path: Any = ".") -> Any:
        if str(path) == str(built / "folder-1"):
            real(path)
        if str(path) == str(built / "folder-2"):
            real(left, ignore_errors=True)
        return scandir(path)

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", ends)
        patched.setattr(os, "scandir", vanishing)
        told = document("clean", built)
    assert told["errors"] == []
    assert told["kept"] == []
    assert not left.exists()


def test_a_leftover_is_measured_without_following_its_links(logs: Path) -> None:
    left = logs / f".index.{'3' * 16}.penstock-index-tmp"
    left.mkdir()
    (left / "all").symlink_to("/")
    (left / "loop").symlink_to(".")
    assert document("clean", logs, "--dry-run")["bytes"] < 1000
    assert document("clean", logs)["errors"] == []
    assert not left.exists()


def test_a_pipe_as_the_lock_of_columns_holds_nothing_up(built: Path) -> None:
    lock = built / "index" / "columns" / ".lock"
    lock.unlink()
    os.mkfifo(lock)
    assert document("clean", built, "--dry-run")["errors"] == []


def test_an_index_that_was_replaced_is_removed_by_age(logs: Path) -> None:
    old = logs / f".index.{'4' * 16}.penstock-index-old"
    written(old / "file_location.txt")
    for path in (old, *old.iterdir()):
        os.utime(path, (1, 1))
    (logs / "index").mkdir()
    assert document("clean", logs)["kept"][0]["writer"] == "unknown"
    assert document("clean", logs, "--older-than", "1h")["removed"][0]["path"] == str(old)
    assert not old.exists()


def test_links_in_a_builders_folder_that_lead_back_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    left = tmp_path / f".index.{'0' * 16}.penstock-index-tmp"
    left.mkdir()
    for name in "abc":  # Each way through them would be another one, 3^40 in all.
        (left / name).symlink_to(".")
    (leftover,) = document("info", tmp_path)["leftovers"]
    assert leftover["path"] == str(left)


def test_the_cache_of_files_that_are_gone_is_removed(tmp_path: Path) -> None:
    lines = {name: written(tmp_path / f"{name}.jsonl", '{"id": 1}') for name in "abc"}
    table = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": [1, 2]}), table)
    succeed("materialize", lines["a"], "id")
    for path in (lines["b"], lines["c"]):
        penstock.open(path)
    succeed("materialize", table, "id")
    gc.collect()
    assert document("clean")["removed"] == []
    written(cache_directory() / "indexes" / "forged" / "meta.json", "{")
    for path in (lines["a"], lines["b"], table):
        path.unlink()
    (stays,) = [
        path for path in (cache_directory() / "indexes").iterdir() if "c.jsonl" in _names(path)
    ]
    would = document("clean", "--dry-run")
    assert {one["of"] for one in would["removed"]} == {
        str(path) for path in (lines["a"], lines["b"], table)
    }
    told = document("clean")
    assert told["removed"] == would["removed"]
    assert told["bytes"] > 1000
    assert sorted(path.name for path in (cache_directory() / "indexes").iterdir()) == sorted(
        ["forged", stays.name]
    )
    assert list((cache_directory() / "columns").iterdir()) == []
    assert len(penstock.open(lines["c"])) == 1


def _names(index: Path) -> str:
    files = index / "file_location.txt"
    return files.read_text() if files.exists() else ""


def test_the_cache_of_a_gone_file_that_a_process_uses_stays(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", '{"id": 1}')
    source = penstock.open(path)
    path.unlink()
    for arguments in (["--dry-run"], [], ["--older-than", "0s"]):
        told = document("clean", *arguments)
        assert (len(told["kept"]), told["removed"]) == (1, [])
    assert "(a process uses it)" in succeed("clean")
    del source
    gc.collect()
    assert f"): {path} is gone" in succeed("clean")


@pytest.mark.s3
def test_the_cache_of_remote_data_stays(s3_server: S3Server, bucket: str) -> None:
    url, options = f"s3://{bucket}/a.jsonl", s3_server.storage_options
    with penstock.writer(url, storage_options=options) as writer:
        writer.write([{"id": 1}])
    penstock.open(url, storage_options=options)
    gc.collect()
    assert document("clean")["removed"] == []
    assert len(list((cache_directory() / "indexes").iterdir())) == 1
