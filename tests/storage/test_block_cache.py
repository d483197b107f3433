"""A cache of blocks that all processes of a host share."""

from __future__ import annotations

import functools
import logging
import os
import shutil
import stat
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import OptionError
from penstock.storage import (
    BlockCache,
    Entry,
    Meter,
    StorageOptions,
    block_cache,
    block_key,
    metered,
)
from penstock.storage._locks import locked
from penstock.storage.cache import _blocks
from penstock.storage.cache._blocks import HEADER_BYTES
from penstock.storage.cache._room import NoRoomError, Room, private_folder, used_bytes
from tests.faults.child import Child, run, run_together
from tests.storage.block_programs import (
    block,
    content,
    die_while_writing,
    fetch_for_ever,
    get_many,
    get_without_space,
    key,
)
from tests.unprivileged import as_nobody, folder_for_all

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 10_000 + HEADER_BYTES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blocks"


@pytest.fixture
def fetched() -> list[int]:
    return []


@pytest.fixture
def get(folder: Path, fetched: list[int]) -> Callable[[int], bytes]:
    """Get a block, in a cache for three of them."""
    return functools.partial(_get, BlockCache(folder, 3 * SIZE), fetched)


def _get(cache: BlockCache, fetched: list[int], number: int) -> bytes:
    data: bytes = cache.get(block(number, lambda: fetched.append(number))).data.to_pybytes()
    return data


def test_a_block_is_fetched_once(get: Callable[[int], bytes], fetched: list[int]) -> None:
    with metered(Meter()) as meter:
        assert [get(n) for n in (1, 2, 1, 2)] == [content(n) for n in (1, 2, 1, 2)]
    assert fetched == [1, 2]
    assert meter is not None
    assert meter.cache_hits == 2


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3000)), max_size=60))
def test_the_limit_is_never_passed(asked: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "blocks"
        cache = BlockCache(folder, 9000)
        for number, size in asked:
            found = cache.get(block(number * 10_000 + size, size=size))
            assert found.data.to_pybytes() == content(number * 10_000 + size, size)
            assert sum(path.stat().st_size for path in folder.glob("*.block*")) <= 9000


def test_what_was_not_used_for_longest_goes_first(
    get: Callable[[int], bytes], fetched: list[int], folder: Path
) -> None:
    for second, number in enumerate((1, 2, 3)):
        get(number)
        os.utime(folder / f"{key(number).hex()}.block", (second, second))
    get(1)
    get(4)
    assert sorted(_kept(folder)) == sorted(f"{key(n).hex()}.block" for n in (1, 3, 4))
    get(1)
    assert fetched == [1, 2, 3, 4]


def _kept(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*.block*")]


def test_a_block_beyond_the_limit_and_a_limit_of_zero_keep_nothing(folder: Path) -> None:
    small = BlockCache(folder, SIZE - 1)
    assert small.get(block(1)).data.to_pybytes() == content(1)
    assert _kept(folder) == []
    assert not BlockCache(folder / "none", 0).get(block(1)).is_mapped
    assert not (folder / "none").exists()


def test_processes_and_threads_at_once_fetch_each_block_once(folder: Path, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    arguments = [(str(folder), log, 40, 4)] * 2
    with run_together(get_many, arguments) as children:
        assert [child.result() for child in children] == [4 * 40] * 2
    assert Counter(Path(log).read_text().split()) == {str(n): 1 for n in range(40)}


def test_a_killed_fetcher_leaves_neither_a_lock_nor_a_block(
    folder: Path, get: Callable[[int], bytes], fetched: list[int]
) -> None:
    with Child(fetch_for_ever, str(folder)) as child:
        assert child.hear() == "fetching"
        child.kill()
        assert _kept(folder) == []
        assert get(0) == content(0)
    assert fetched == [0]


def test_a_killed_writer_leaves_nothing_that_is_served_or_counted_for_ever(
    folder: Path, get: Callable[[int], bytes], fetched: list[int]
) -> None:
    with Child(die_while_writing, str(folder)) as child, pytest.raises(AssertionError):
        child.result()
    assert _kept(folder) == [f"{key(0).hex()}.block-tmp"]
    assert [get(n) for n in (1, 2, 3)] == [content(n) for n in (1, 2, 3)]
    assert sorted(_kept(folder)) == sorted(f"{key(n).hex()}.block" for n in (1, 2, 3))
    assert get(0) == content(0)
    assert fetched == [1, 2, 3, 0]


@pytest.mark.parametrize("damage", ["cut", "emptied", "flipped", "another's"])
def test_a_damaged_file_is_fetched_again(
    damage: str, folder: Path, get: Callable[[int], bytes], fetched: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    get(1)
    get(2)
    path = folder / f"{key(1).hex()}.block"
    whole = path.read_bytes()
    damaged = {
        "cut": whole[:-1],
        "emptied": b"",
        "flipped": whole[:-1] + bytes([whole[-1] ^ 1]),
        "another's": (folder / f"{key(2).hex()}.block").read_bytes(),
    }
    path.unlink()
    path.write_bytes(damaged[damage])
    monkeypatch.setattr(_blocks, "_verified", set())  # As in another process.
    assert get(1) == content(1)
    assert get(1) == content(1)
    assert fetched == [1, 2, 1]


def test_a_block_in_use_survives_that_its_file_goes(folder: Path) -> None:
    cache = BlockCache(folder, 3 * SIZE)
    held = cache.get(block(1))
    shutil.rmtree(folder)
    assert held.data.to_pybytes() == content(1)
    assert cache.get(block(2)).is_mapped  # The folder is made again.


def test_only_blocks_are_deleted_and_the_folder_is_marked(
    get: Callable[[int], bytes], folder: Path
) -> None:
    folder.mkdir(mode=0o700)
    other = {"notes.txt", "0123.block", "a.block-tmp"}
    for name in other:
        (folder / name).write_bytes(bytes(SIZE))
    for number in range(10):
        get(number)
    names = {path.name for path in folder.iterdir()}
    assert names >= other | {".gitignore", "CACHEDIR.TAG"}
    assert len(_kept(folder)) <= 3 + 2


def test_nobody_else_may_read_or_write(
    get: Callable[[int], bytes], folder: Path, tmp_path: Path
) -> None:
    get(1)
    for path in (folder, *folder.rglob("*.block"), folder / "locks"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    cache = BlockCache(shared, 3 * SIZE)
    cache.get(block(1))
    own = shared / f"blocks-{os.geteuid()}"
    assert cache.room is not None
    assert cache.room.folder == own
    assert stat.S_IMODE(own.stat().st_mode) == 0o700


def test_an_unwritable_folder_means_reading_directly_and_one_warning() -> None:
    with folder_for_all() as place:
        assert as_nobody(functools.partial(_get_twice, place / "blocks")) == (
            [content(1), content(1)],
            [False, False],
            1,
        )


def _get_twice(folder: Path) -> tuple[list[bytes], list[bool], int]:
    told: list[object] = []
    handler = logging.Handler()
    handler.emit = told.append  # type: ignore[assignment]
    logging.getLogger("penstock.storage").addHandler(handler)
    cache = BlockCache(folder, 10**9)
    found = [cache.get(block(1)), cache.get(block(1))]
    return [f.data.to_pybytes() for f in found], [f.is_mapped for f in found], len(told)


def test_a_full_disk_means_reading_directly_and_one_warning(folder: Path) -> None:
    came = run(get_without_space, str(folder), 5000)
    assert came["right"] == [True] * 3
    assert came["mapped"] == [False] * 3
    assert len(came["told"]) == 1
    assert "cache_dir" in came["told"][0]
    assert came["left"] == []


def test_a_failed_fetch_is_told_and_the_next_one_may_succeed(folder: Path) -> None:
    def fail() -> None:
        raise ConnectionError("gone")

    cache = BlockCache(folder, 3 * SIZE)
    with pytest.raises(ConnectionError, match="gone"):
        cache.get(block(1, fail))
    assert cache.get(block(1)).data.to_pybytes() == content(1)


def test_keys_differ_by_store_version_and_part() -> None:
    options = StorageOptions({"endpoint": "http://a:1"})
    entry = Entry("a", 10, 1.0, "v1")
    keys = [
        block_key(options, "s3://b/a", entry, "bytes", 0, 10),
        block_key(options, "s3://b/a", entry, "bytes", 0, 9),
        block_key(options, "s3://b/a", entry, "text", 0, 10),
        block_key(options, "s3://c/a", entry, "bytes", 0, 10),
        block_key(options, "s3://b/a", Entry("a", 10, 1.0, "v2"), "bytes", 0, 10),
        block_key(options, "s3://b/a", Entry("a", 10, 1.0), "bytes", 0, 10),
        block_key(options, "s3://b/a", Entry("a", 10, 2.0), "bytes", 0, 10),
        block_key(StorageOptions({"endpoint": "http://b:1"}), "s3://b/a", entry, "bytes", 0, 10),
    ]
    assert len(set(keys)) == len(keys)
    assert block_key(options, "s3://b/a", entry, "bytes", 0, 10) == keys[0]


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("12345", 12345), ("10GB", 10**10), ("1.5 MiB", 3 << 19), ("2k", 2000)],
)
def test_a_limit_is_bytes_or_a_text(text: str, size: int) -> None:
    assert StorageOptions({"cache_limit": text}).cache_limit == size


@pytest.mark.parametrize("text", ["", "-1", "much", "10 GBs", "GB"])
def test_another_limit_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="cache_limit"):
        StorageOptions({"cache_limit": text}).check()


def test_the_store_is_not_told_of_the_cache(own_cache: Path, tmp_path: Path) -> None:
    options = StorageOptions({"cache_dir": tmp_path / "x", "cache_limit": 5, "region": "r"})
    assert options.store_config() == {"region": "r"}
    room = block_cache(options).room
    assert room is not None
    assert (room.folder, room.limit) == (tmp_path / "x", 5)
    default = block_cache(StorageOptions())
    assert default.room is not None
    assert default.room.folder == own_cache / "blocks"
    assert 0 < default.room.limit <= 10 << 30
    assert block_cache(StorageOptions({"region": "s"})) is default


def test_what_others_are_writing_counts_and_is_left_alone(folder: Path) -> None:
    room = Room(private_folder(folder), 1000)
    with locked(room.lock(b"a" * 20)), room.reserved(b"a" * 20, 600) as draft:
        with pytest.raises(NoRoomError), room.reserved(b"b" * 20, 600):
            pass
        os.write(draft, b"x" * 600)
        assert used_bytes(room.folder) == 600
        room.draft(b"a" * 20).replace(room.path(b"a" * 20))
    with room.reserved(b"b" * 20, 600):  # Now the other one can go.
        assert not room.path(b"a" * 20).exists()
