"""What the system refuses becomes a clear error; nothing is lost silently or half published."""

from __future__ import annotations

import errno
import os
import resource
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.jsonl import JsonlDir, JsonlFile
from tests.faults.child import Child, ChildError, run
from tests.faults.grounds import LocalGround, shards_in
from tests.faults.limit_programs import (
    SMALL_SHARD,
    swallow_a_failed_write,
    try_without_permission,
    write_until_signalled,
    write_with_a_size_limit,
)
from tests.faults.writer_programs import record

if TYPE_CHECKING:
    from tests.faults.grounds import Ground

LIMIT = 100_000


def check_overfilled_dir(ground: Ground, told: dict[str, Any], *, first: bool) -> None:
    """Check that the shards before the one that did not fit are whole, and no other is there."""
    shards = shards_in(ground.visible())
    assert sorted(told["published"]) == [ground.at(name) for name, _ in shards]
    records = [each for _, found in shards for each in found]
    assert records[: int(first)] == [record("first", 0)][: int(first)]
    assert records[int(first) :] == [record("x", number) for number in range(3 * SMALL_SHARD)]
    assert ground.hidden() == []


@pytest.mark.parametrize("kind", ["dir", "async dir"])
@pytest.mark.parametrize("name", ["plain", "zst"])
def test_a_shard_that_may_not_grow_fails_and_those_before_it_stay(
    ground: Ground, kind: str, name: str
) -> None:
    ground = type(ground)(**{**vars(ground), "path": f"{ground.path}-{name}"})
    told = run(write_with_a_size_limit, ground.path, ground.storage_options, kind, LIMIT)
    assert told["kind"] == "StorageError"
    assert told["errno"] == errno.EFBIG
    assert "ulimit -f" in told["text"]
    assert ("the local spool in" if ground.is_remote else ground.path) in told["text"]
    check_overfilled_dir(ground, told, first=kind == "dir")


@pytest.mark.parametrize("kind", ["file", "async file", "raw"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.zst"])
@pytest.mark.parametrize("old", [None, b'{"old":1}\n'], ids=["new", "replaced"])
def test_a_file_that_may_not_grow_fails_and_what_was_there_stays(
    local_ground: Ground, kind: str, name: str, old: bytes | None
) -> None:
    if old is not None:
        Path(local_ground.path).mkdir()
        Path(local_ground.at(name)).write_bytes(old)
    told = run(write_with_a_size_limit, local_ground.at(name), {}, kind, LIMIT)
    assert told["kind"] == "StorageError"
    assert told["errno"] == errno.EFBIG
    assert local_ground.path in told["text"]
    assert local_ground.visible() == ({} if old is None else {name: old})
    assert local_ground.hidden() == []


@pytest.mark.parametrize("kind", ["file", "raw"])
def test_a_remote_file_whose_spool_may_not_grow_fails_and_publishes_nothing(
    s3_ground: Ground, kind: str
) -> None:
    options = s3_ground.storage_options
    told = run(write_with_a_size_limit, s3_ground.at("a.jsonl"), options, kind, LIMIT)
    assert told["kind"] == "StorageError"
    assert told["errno"] == errno.EFBIG
    assert "the local spool in" in told["text"]
    assert s3_ground.names() == []
    assert s3_ground.unfinished_uploads() == []


def test_a_failed_write_that_somebody_swallowed_is_not_forgotten(local_ground: Ground) -> None:
    first, second, last = run(swallow_a_failed_write, local_ground.at("a.jsonl"), LIMIT)
    assert first["errno"] == errno.EFBIG
    for later in (second, last):
        assert later["kind"] == "StorageError"
        assert "earlier write" in later["text"]
        assert first["text"] in later["text"]
    assert local_ground.names() == []


def test_whatever_modes_forbid_is_a_permission_error_that_names_the_path() -> None:
    told = run(try_without_permission)
    place, said = told["place"], told["said"]
    for attempt, answer in said.items():
        assert answer["kind"] == "StoragePermissionError", attempt
        assert "PermissionError" in answer["built_ins"]
        assert answer["errno"] == errno.EACCES
        assert place in answer["path"]
        assert answer["path"] in answer["text"]
        assert "permission denied" in answer["text"]
    assert told["kept"] == '{"n":0}\n'
    assert told["names"] == {
        "closed": ["kept.jsonl"],
        "unreadable": ["part-00000.jsonl", "posted.jsonl"],
        "no-entry": ["a.jsonl"],
        "secret": ["a.jsonl"],
        "shared": [".x.0123456789abcdef.penstock-tmp", "part-00000.jsonl"],
    }
    assert not Path(place).exists()


def test_too_many_open_files_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n":1}\n')
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
    try:
        with suppress(OSError):
            while True:
                held.append(os.dup(0))
        with pytest.raises(OSError, match="ulimit -n") as reading:
            list(JsonlFile(tmp_path / "a.jsonl").iter_records_sync())
        with (
            pytest.raises(OSError, match="ulimit -n") as writing,
            JsonlDir(tmp_path / "d").writer_sync() as w,
        ):
            w.write({})
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [reading.value.errno, writing.value.errno] == [errno.EMFILE] * 2
    assert list(JsonlFile(tmp_path / "a.jsonl").iter_records_sync()) == [{"n": 1}]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_leaves_whole_shards_and_no_draft_once_somebody_writes(
    local_ground: Ground, how: signal.Signals
) -> None:
    with Child(write_until_signalled, local_ground.path) as child:
        assert child.hear() == "ready"
        assert len(local_ground.hidden()) == 1
        os.kill(child.pid, how)
        with pytest.raises(ChildError, match="ended with status"):
            child.result()
    if how != signal.SIGKILL:
        # Python ended in its usual way, so the writer could clean up.
        assert local_ground.hidden() == []
    records = [each for _, found in shards_in(local_ground.visible()) for each in found]
    assert records == [record("x", number) for number in range(3 * SMALL_SHARD)]
    with JsonlDir(local_ground.path).writer_sync() as writer:
        writer.write({})
    assert local_ground.hidden() == []


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.zst"])
@pytest.mark.parametrize("overwrite", [True, False])
def test_a_link_stays_a_link_and_its_target_is_written(
    tmp_path: Path, name: str, *, overwrite: bool
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "links").mkdir()
    target, link = tmp_path / "real" / name, tmp_path / "links" / name
    link.symlink_to(target)
    if overwrite:
        target.write_bytes(b"old")
    with JsonlFile(link).writer_sync(overwrite=overwrite) as writer:
        writer.write({"n": 1})
    assert link.is_symlink()
    assert not target.is_symlink()
    assert list(JsonlFile(target).iter_records_sync()) == [{"n": 1}]
    assert LocalGround(str(tmp_path / "real")).names() == [name]
    assert LocalGround(str(tmp_path / "links")).names() == [name]


def test_a_raw_file_written_through_a_link_leaves_the_link(tmp_path: Path) -> None:
    (tmp_path / "real.jsonl").write_bytes(b"old")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "real.jsonl")
    with JsonlFile(tmp_path / "link.jsonl").open_sync("wb") as file:
        file.write(b"{}\n")
    assert (tmp_path / "link.jsonl").is_symlink()
    assert (tmp_path / "real.jsonl").read_bytes() == b"{}\n"


def test_a_directory_behind_a_link_is_written_and_read(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with JsonlDir(tmp_path / "link").writer_sync() as writer:
        writer.write({"n": 1})
    assert list(JsonlDir(tmp_path / "link").iter_records_sync()) == [{"n": 1}]
    assert LocalGround(str(tmp_path / "real")).names() == ["part-00000.jsonl"]
