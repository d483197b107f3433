from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

import pytest

from tests.cli.commands import document, invoke, succeed, visible, written

if TYPE_CHECKING:
    from pathlib import Path


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
