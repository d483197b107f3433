"""The limit of the cache: what was not used for longest goes, what a process uses stays."""

from __future__ import annotations

import gc
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.errors import OptionError
from penstock.storage._folders import hidden_folders_in
from penstock.storage.cache._entries import (
    cache_entries,
    cache_limit,
    hold_entry,
    remove_entry,
    trim_cache,
)

if TYPE_CHECKING:
    from tests.servers.s3_server import S3Server


def write(folder: Path, name: str, records: int = 2000) -> Path:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(f'{{"id": {n}}}\n' for n in range(records)))
    return path


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def indexes(cache: Path) -> set[str]:
    """Return the files whose indexes are in the cache."""
    metas = [json.loads(path.read_text()) for path in cache.glob("indexes/*/meta.json")]
    return {file["path"] for meta in metas for file in meta["files"]}


def test_what_was_not_used_for_longest_goes_first(
    tmp_path: Path,
    own_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    paths = {name: write(tmp_path, name) for name in "abcde"}
    for name in "abcd":
        penstock.open(paths[name])
    gc.collect()
    oldest_first = {entry.path: entry for entry in cache_entries()}
    for age, path in enumerate(reversed(oldest_first)):
        os.utime(path / ".use", (1000 - age, 1000 - age))
    penstock.open(paths["a"])  # Used again: now b was not used for longest.
    gc.collect()
    size = max(entry.bytes for entry in cache_entries())
    monkeypatch.setenv("PENSTOCK_CACHE_LIMIT", str(3 * size + size // 2))
    with caplog.at_level(logging.INFO, "penstock"):
        penstock.open(paths["e"])
    assert indexes(own_cache) == {"a.jsonl", "d.jsonl", "e.jsonl"}
    assert "(2 of 5)" in caplog.text
    assert not hidden_folders_in(str(own_cache / "indexes"))
    assert len(penstock.open(paths["b"])) == 2000  # Made again.


def test_what_is_used_or_was_just_written_stays(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE_LIMIT", "0")
    first = penstock.open(write(tmp_path, "a"))
    second = penstock.open(write(tmp_path, "b"))
    assert indexes(own_cache) == {"a.jsonl", "b.jsonl"}
    # Processes that begin later find it, too.
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(first.__getitem__, 7).result() == {"id": 7}
    pickled = pickle.dumps(first)
    del first
    gc.collect()
    penstock.open(write(tmp_path, "c"))
    assert indexes(own_cache) == {"b.jsonl", "c.jsonl"}
    assert second[-1] == {"id": 1999}
    with pytest.raises(FileNotFoundError):
        pickle.loads(pickled)


HOLDS = """
import sys, penstock
source = penstock.open(sys.argv[1])
columns = source.materialize({"id": "int64"}, progress=False)
print("holds", flush=True)
input()
"""


def test_another_process_that_uses_an_entry_keeps_it_until_it_is_killed(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE_LIMIT", "1kB")
    table = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": range(1000)}), table)
    lines = write(tmp_path, "a")
    users = [
        subprocess.Popen(
            [sys.executable, "-c", HOLDS, path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for path in (lines, table)
    ]  # fmt: skip
    for user in users:
        assert user.stdout is not None
        assert user.stdout.readline() == "holds\n"
    penstock.open(write(tmp_path, "b"))
    gc.collect()
    assert indexes(own_cache) == {"a.jsonl", "b.jsonl"}
    (columns,) = (own_cache / "columns").iterdir()
    assert [one.name for one in columns.glob("id*")] == ["id-int64"]
    for user in users:
        user.kill()
        user.communicate()
    penstock.open(write(tmp_path, "c"))
    assert indexes(own_cache) == {"c.jsonl"}
    assert not columns.exists()


def test_an_entry_is_held_once_and_let_go_with_its_last_user(
    tmp_path: Path, own_cache: Path
) -> None:
    penstock.open(write(tmp_path, "a"))
    gc.collect()
    (entry,) = cache_entries()
    before = open_files()
    held = [hold_entry(entry.path / "columns" / "x") for _ in range(10)]
    assert open_files() == before + 1
    assert not remove_entry(entry.path)
    del held
    gc.collect()
    assert open_files() == before
    assert remove_entry(entry.path)
    assert hold_entry(entry.path) is None
    assert hold_entry(tmp_path) is None
    assert hold_entry(own_cache / "locks" / "x") is None
    assert remove_entry(entry.path)


def test_kept_views_count_and_go(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = penstock.open(write(tmp_path, "a"))
    first = source.where("id < 1000")
    assert len(first) == 1000
    assert [path.suffix for path in (own_cache / "views").glob("*.npy")] == [".npy"]
    monkeypatch.setenv("PENSTOCK_CACHE_LIMIT", "0")
    assert len(source.where("id < 500")) == 500
    assert len(list((own_cache / "views").glob("*.npy"))) == 1
    assert first[-1] == {"id": 999}  # Mapped files outlive their names.


def test_the_limit_is_a_size_or_a_share_of_the_disk(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache_limit() > 1 << 30
    for text, size in {"0": 0, "5kB": 5000, "1.5 GiB": 3 << 29}.items():
        monkeypatch.setenv("PENSTOCK_CACHE_LIMIT", text)
        assert cache_limit() == size
    monkeypatch.setenv("PENSTOCK_CACHE_LIMIT", "some")
    with pytest.raises(OptionError, match=r"PENSTOCK_CACHE_LIMIT='some'.*expected bytes"):
        trim_cache(own_cache / "indexes" / "x")
    trim_cache("/somewhere/else")


KILLED = """
import os, signal, sys
from pathlib import Path
from penstock.storage import remove_entry
def hook(event, arguments):
    if event == "os.remove":
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
remove_entry(Path(sys.argv[1]))
"""


def test_an_entry_that_a_killed_process_was_removing_is_made_again(
    tmp_path: Path, own_cache: Path
) -> None:
    path = write(tmp_path, "a")
    penstock.open(path)
    gc.collect()
    (entry,) = cache_entries()
    died = subprocess.run([sys.executable, "-c", KILLED, entry.path], check=False)
    assert died.returncode == -signal.SIGKILL
    assert cache_entries() == []
    assert len([*(own_cache / "indexes").iterdir()]) == 1
    assert len(penstock.open(path)) == 2000
    assert [path.name for path in (own_cache / "indexes").iterdir()] == [entry.path.name]


@pytest.mark.s3
def test_indexes_of_remote_data_count_too(
    s3_server: S3Server, bucket: str, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, urls = s3_server.storage_options, []
    for name in "ab":
        urls.append(f"s3://{bucket}/{name}.jsonl")
        with penstock.writer(urls[-1], storage_options=options) as writer:
            writer.write([{"id": n} for n in range(100)])
    monkeypatch.setenv("PENSTOCK_CACHE_LIMIT", "0")
    for url in urls:
        assert len(penstock.open(url, storage_options=options)) == 100
        gc.collect()
    assert indexes(own_cache) == {"b.jsonl"}
