"""Real file systems that are full, read-only or without hard links: `make test-system`, as root."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from penstock.errors import ObjectExistsError, StoragePermissionError
from penstock.jsonl import JsonlDir, JsonlFile
from penstock.storage import LocalStore
from tests.faults.child import run, run_together
from tests.faults.grounds import LocalGround
from tests.faults.limit_programs import overfill
from tests.faults.mounts import make_read_only, small_tmpfs
from tests.faults.test_local_limits import check_overfilled_dir
from tests.rounds import rounds
from tests.storage import draft_programs
from tests.storage.store_contract import ODD_NAMES, Place, StoreContract

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.grounds import Ground

pytestmark = pytest.mark.system
SIZE = 1 << 20
CLAIMANTS = 8


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    with small_tmpfs(tmp_path / "full", SIZE) as place:
        yield place


@pytest.mark.parametrize("kind", ["file", "async file", "raw"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.zst"])
def test_a_full_disk_ends_a_file_with_an_error_and_keeps_what_was_there(
    full: Path, kind: str, name: str
) -> None:
    (full / name).write_bytes(b"old")
    told = run(overfill, str(full / name), {}, kind, 2 * SIZE)
    assert told["kind"] == "StorageError"
    assert told["errno"] == errno.ENOSPC
    assert str(full) in told["text"]
    assert "the disk is full; free space" in told["text"]
    assert os.listdir(full) == [name]  # noqa: PTH208
    assert (full / name).read_bytes() == b"old"


@pytest.mark.parametrize("kind", ["dir", "async dir"])
@pytest.mark.parametrize("name", ["plain", "zst"])
def test_a_full_disk_ends_a_directory_with_an_error_and_keeps_the_shards_before(
    full: Path, kind: str, name: str
) -> None:
    ground = LocalGround(str(full / name))
    told = run(overfill, ground.path, {}, kind, 2 * SIZE)
    assert told["kind"] == "StorageError"
    assert told["errno"] == errno.ENOSPC
    assert ground.path in told["text"]
    check_overfilled_dir(ground, told, first=kind == "dir")


@pytest.mark.s3
@pytest.mark.parametrize("kind", ["file", "dir"])
def test_a_full_disk_under_the_spool_is_told_and_nothing_is_published(
    full: Path, s3_ground: Ground, kind: str
) -> None:
    told = run(
        overfill,
        s3_ground.at("a.jsonl") if kind == "file" else s3_ground.path,
        s3_ground.storage_options,
        kind,
        2 * SIZE,
        env={"TMPDIR": str(full)},
    )
    assert told["kind"] == "StorageError"
    assert told["errno"] == errno.ENOSPC
    assert f"the local spool in {full}" in told["text"]
    if kind == "file":
        assert s3_ground.names() == []
    else:
        check_overfilled_dir(s3_ground, told, first=True)
    assert os.listdir(full) == []  # noqa: PTH208


def test_a_disk_without_room_for_one_more_name_is_told(full: Path) -> None:
    with (full / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while filler.write(bytes(4096)):
            pass
    with (
        pytest.raises(OSError, match="the disk is full") as raised,
        JsonlDir(full / "d").writer_sync() as writer,
    ):
        writer.write({"text": "x" * 10_000})
    assert raised.value.errno == errno.ENOSPC
    assert LocalGround(str(full / "d")).names() == []


def test_a_read_only_file_system_is_a_permission_error_that_says_so(full: Path) -> None:
    (full / "a.jsonl").write_text('{"n":1}\n')
    make_read_only(full)
    with (
        pytest.raises(StoragePermissionError, match="read-only") as raised,
        JsonlFile(full / "b.jsonl").writer_sync() as writer,
    ):
        writer.write({})
    assert raised.value.errno == errno.EROFS
    with pytest.raises(StoragePermissionError, match="read-only"):
        JsonlFile(full / "a.jsonl").delete_sync()
    assert list(JsonlDir(full).iter_records_sync()) == [{"n": 1}]


EXFAT_NAMES = pytest.mark.parametrize(
    "odd", [name for name in ODD_NAMES if not set(name) & set('"?\\')]
)
"""exFAT does not take all the characters that others do."""


class TestLocalStoreWithoutHardLinks(StoreContract):
    @pytest.fixture
    def place(self, exfat_ground: Ground) -> Place:
        return Place(LocalStore(), exfat_ground.path)

    @EXFAT_NAMES
    def test_odd_names_are_read(self, place: Place, odd: str) -> None:
        super().test_odd_names_are_read(place, odd)

    @EXFAT_NAMES
    def test_odd_names_are_listed(self, place: Place, odd: str) -> None:
        super().test_odd_names_are_listed(place, odd)

    @EXFAT_NAMES
    def test_odd_names_are_taken_and_freed(self, place: Place, odd: str) -> None:
        super().test_odd_names_are_taken_and_freed(place, odd)


def test_the_file_system_without_hard_links_has_none(exfat_root: Path) -> None:
    (exfat_root / "one").touch()
    with pytest.raises(PermissionError):
        (exfat_root / "two").hardlink_to(exfat_root / "one")
    (exfat_root / "one").unlink()


def test_of_eight_processes_one_takes_each_name_without_hard_links(exfat_ground: Ground) -> None:
    names = rounds(40, 1000)
    arguments = [(exfat_ground.path, who, names) for who in range(CLAIMANTS)]
    with run_together(draft_programs.claim_by_link, arguments) as children:
        won = [child.result() for child in children]
    assert sorted(int(name) for names_won in won for name in names_won) == list(range(names))
    for who, names_won in enumerate(won):
        for name in names_won:
            assert exfat_ground.read(name) == b"%d of %d" % (int(name), who)
    assert exfat_ground.hidden() == []


def test_a_file_that_may_not_be_replaced_is_not_without_hard_links(exfat_ground: Ground) -> None:
    file = JsonlFile(exfat_ground.at("a.jsonl"))
    first, second = file.writer_sync(overwrite=False), file.writer_sync(overwrite=False)
    first.write({"n": 1})
    second.write({"n": 2})
    first.close()
    with pytest.raises(ObjectExistsError):
        second.close()
    assert list(file.iter_records_sync()) == [{"n": 1}]
    assert exfat_ground.hidden() == []
