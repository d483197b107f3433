"""Writing one file: what is in it, when it appears, and when it must not."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import math
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

from penstock.errors import ObjectExistsError, StorageError
from penstock.jsonl import (
    JsonlDir,
    JsonlDirWriter,
    JsonlDirWriterSync,
    JsonlFile,
    JsonlWriter,
    JsonlWriterSync,
)
from tests.jsonl.doors import COMPRESSIONS, both_doors, names_in, records, write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

every_ending = pytest.mark.parametrize("ending", COMPRESSIONS)


def in_writer(
    target: JsonlFile | JsonlDir,
    door: str,
    steps: list[tuple[str, Any]],
    after: Callable[[], object] = lambda: None,
    **options: object,
) -> None:
    """Make some calls on a writer, then call `after`, then leave its block."""
    if door == "sync":
        with target.writer_sync(**options) as writer:  # type: ignore[arg-type]
            for name, argument in steps:
                getattr(writer, name)(*argument)
            after()
        return

    async def make() -> None:
        async with target.writer(**options) as writer:  # type: ignore[arg-type]
            for name, argument in steps:
                await getattr(writer, name)(*argument)
            after()

    asyncio.run(make())


@both_doors
@every_ending
def test_all_ways_to_write_keep_their_order(ending: str, door: str, tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / f"a.jsonl{ending}")
    steps: list[tuple[str, Any]] = [
        ("write", [{"n": 0}]),
        ("write_many", [[{"n": 1}, {"n": 2}]]),
        ("write_raw", [b'{"n":3}\n{"n" : 4}\r\n']),
        ("flush", []),
        ("write_many", [iter([])]),
        ("write_raw", [b""]),
        ("write_many", [({"n": n} for n in (5, 6))]),
        ("flush", []),
        ("flush", []),
        ("write", [{"n": 7}]),
    ]
    in_writer(file, door, steps)
    assert records(file, door) == [{"n": n} for n in range(8)]


def test_an_async_writer_takes_an_async_iterable(tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "a.jsonl")

    async def numbers() -> AsyncIterator[int]:
        for n in range(100):
            await asyncio.sleep(0)
            yield n

    async def put() -> None:
        async with file.writer() as writer:
            await writer.write_many(numbers())

    asyncio.run(put())
    assert records(file) == list(range(100))


def test_writers_are_of_the_classes_that_are_exported(tmp_path: Path) -> None:
    file, directory = JsonlFile(tmp_path / "a.jsonl"), JsonlDir(tmp_path)
    assert type(file.writer()) is JsonlWriter
    assert type(file.writer_sync()) is JsonlWriterSync
    assert type(directory.writer()) is JsonlDirWriter
    assert type(directory.writer_sync()) is JsonlDirWriterSync
    assert file.writer().path == str(tmp_path / "a.jsonl")
    assert directory.writer_sync().path == str(tmp_path)


@both_doors
@every_ending
def test_the_file_appears_when_the_block_ends_and_not_before(
    ending: str, door: str, tmp_path: Path
) -> None:
    file = JsonlFile(tmp_path / "new" / f"a.jsonl{ending}")
    seen: list[bool] = []
    in_writer(
        file,
        door,
        [("write", [1]), ("flush", []), ("write_many", [range(20_000)])],
        lambda: seen.append(file.exists_sync()),
    )
    assert seen == [False]
    assert names_in(tmp_path / "new") == [f"a.jsonl{ending}"]
    assert records(file, door) == [1, *range(20_000)]


@both_doors
@every_ending
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, asyncio.CancelledError])
def test_leaving_by_an_exception_publishes_nothing_and_leaves_no_file(
    error: type[BaseException], ending: str, door: str, tmp_path: Path
) -> None:
    file = JsonlFile(tmp_path / f"a.jsonl{ending}")

    def fail() -> None:
        raise error

    with pytest.raises(error):
        in_writer(file, door, [("write_many", [range(20_000)]), ("flush", [])], fail)
    assert names_in(tmp_path) == []


@both_doors
def test_leaving_by_an_exception_keeps_the_file_that_was_there(door: str, tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "a.jsonl")
    write(file, ["old"])
    with pytest.raises(ZeroDivisionError):
        in_writer(file, door, [("write", ["new"]), ("flush", [])], lambda: 1 / 0)
    assert records(file) == ["old"]
    assert names_in(tmp_path) == ["a.jsonl"]


@both_doors
@every_ending
def test_an_unused_writer_of_a_file_makes_an_empty_one(
    ending: str, door: str, tmp_path: Path
) -> None:
    file = JsonlFile(tmp_path / f"a.jsonl{ending}")
    in_writer(file, door, [])
    assert names_in(tmp_path) == [f"a.jsonl{ending}"]
    assert records(file, door) == []


@both_doors
def test_a_file_is_replaced_unless_told_otherwise(door: str, tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "a.jsonl")
    write(file, ["old"], door)
    write(file, ["new"], door)
    assert records(file) == ["new"]
    with pytest.raises(FileExistsError, match="overwrite=True") as caught:
        write(file, ["newer"], door, overwrite=False)
    assert isinstance(caught.value, ObjectExistsError)
    assert str(tmp_path / "a.jsonl") in str(caught.value)
    assert records(file) == ["new"]
    assert names_in(tmp_path) == ["a.jsonl"]
    other = JsonlFile(tmp_path / "b.jsonl")
    write(other, ["first"], door, overwrite=False)
    assert records(other) == ["first"]


@both_doors
def test_without_overwrite_a_name_taken_meanwhile_is_kept(door: str, tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "a.jsonl")
    with pytest.raises(FileExistsError):
        in_writer(file, door, [("write", [1])], lambda: write(file, ["faster"]), overwrite=False)
    assert records(file) == ["faster"]
    assert names_in(tmp_path) == ["a.jsonl"]


@both_doors
def test_a_link_stays_and_what_it_points_to_is_replaced(door: str, tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "0123").write_bytes(b"")
    (tmp_path / "a.jsonl.zst").symlink_to(tmp_path / "blobs" / "0123")
    file = JsonlFile(tmp_path / "a.jsonl.zst")
    write(file, ["new"], door)
    assert (tmp_path / "a.jsonl.zst").is_symlink()
    # Compressed as the link's name says, which is the name that is read.
    assert records(file, door) == ["new"]
    assert names_in(tmp_path / "blobs") == ["0123"]


def test_a_published_file_has_the_mode_that_any_new_file_has(tmp_path: Path) -> None:
    write(JsonlFile(tmp_path / "a.jsonl"), [1])
    (tmp_path / "other").touch()
    assert (tmp_path / "a.jsonl").stat().st_mode == (tmp_path / "other").stat().st_mode


@both_doors
@every_ending
def test_a_record_that_cannot_be_written_leaves_no_trace(
    ending: str, door: str, tmp_path: Path
) -> None:
    file = JsonlFile(tmp_path / f"a.jsonl{ending}")
    bad = {"good": "part", "bad": [{1, 2}]}

    def refused(call: Callable[[], object]) -> None:
        with pytest.raises(TypeError, match=r"cannot write bad\[0\]"):
            call()

    async def put() -> None:
        async with file.writer() as writer:
            await writer.write(1)
            with pytest.raises(TypeError, match=r"cannot write bad\[0\]"):
                await writer.write(bad)
            with pytest.raises(TypeError):
                await writer.write_many([2, 3, bad, 4])
            await writer.write(5)

    if door == "sync":
        with file.writer_sync() as writer:
            writer.write(1)
            refused(lambda: writer.write(bad))
            refused(lambda: writer.write_many([2, 3, bad, 4]))
            writer.write(5)
    else:
        asyncio.run(put())
    # Of the many, those before the bad one are written and those behind it are not.
    assert records(file, door) == [1, 2, 3, 5]


@both_doors
@pytest.mark.parametrize("data", [b"{}", b"{}\n{}", b" ", b"{}\n\r"])
def test_raw_bytes_must_be_whole_lines(data: bytes, door: str, tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "a.jsonl")
    with pytest.raises(ValueError, match="whole lines") as caught:
        in_writer(file, door, [("write_raw", [b"{}\n"]), ("write_raw", [data])])
    assert repr(data) in str(caught.value)
    assert names_in(tmp_path) == []


@both_doors
def test_raw_lines_are_written_byte_by_byte(door: str, tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "a.jsonl")
    data = b'{ "a" :1}\r\n\n not checked \n' * 1000
    in_writer(file, door, [("write_raw", [data]), ("write_raw", [data])], flush_bytes=100)
    assert (tmp_path / "a.jsonl").read_bytes() == data * 2


def draft_in(directory: Path) -> Path:
    (name,) = (name for name in names_in(directory) if name.startswith("."))
    return directory / name


@both_doors
@pytest.mark.parametrize("ending", ["", ".zst"])
def test_what_is_flushed_has_reached_the_operating_system(
    ending: str, door: str, tmp_path: Path
) -> None:
    file = JsonlFile(tmp_path / f"a.jsonl{ending}")
    seen: list[bytes] = []

    def look() -> None:
        data = draft_in(tmp_path).read_bytes()
        seen.append(zstandard.decompress(data) if ending else data)

    in_writer(file, door, [("write_many", [range(100)]), ("flush", [])], look)
    assert seen == [b"".join(b"%d\n" % n for n in range(100))]


@both_doors
@pytest.mark.parametrize("flush_bytes", [1, 1000, 10_000, 1 << 20])
def test_no_more_than_flush_bytes_waits_in_memory(
    door: str, flush_bytes: int, tmp_path: Path
) -> None:
    file = JsonlFile(tmp_path / "a.jsonl")
    line = "x" * 997  # 1,000 bytes with quotes and newline
    waiting: list[int] = []
    for lines in (10, 11, 1100):
        in_writer(
            file,
            door,
            [("write", [line])] * lines,
            lambda lines=lines: waiting.append(  # type: ignore[misc]
                1000 * lines - draft_in(tmp_path).stat().st_size
            ),
            flush_bytes=flush_bytes,
        )
        assert len(records(file)) == lines
    assert max(waiting) <= max(flush_bytes, 1000)


@pytest.mark.parametrize("name", ["flush_bytes", "frame_bytes"])
@pytest.mark.parametrize("size", [0, -1])
def test_a_buffer_or_frame_without_room_is_a_value_error(
    name: str, size: int, tmp_path: Path
) -> None:
    for target in (JsonlFile(tmp_path / "a.jsonl"), JsonlDir(tmp_path)):
        for door in ("writer", "writer_sync"):
            with pytest.raises(ValueError, match=f"{name}={size}"):
                getattr(target, door)(**{name: size})


@pytest.mark.parametrize(
    ("ending", "level", "fine"),
    [
        (".zst", 22, True),
        (".zst", 1, True),
        (".zst", -5, True),
        (".zst", -131072, True),
        (".zst", 23, False),
        (".zst", -131073, False),
        (".gz", 0, True),
        (".gz", 9, True),
        (".gz", 10, False),
        (".gz", -1, False),
        ("", 99, True),
    ],
)
def test_compression_levels_are_checked_by_what_compresses(
    ending: str,
    level: int,
    fine: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    file = JsonlFile(tmp_path / f"a.jsonl{ending}")
    if fine:
        write(file, range(100), compression_level=level)
        assert records(file) == list(range(100))
    else:
        for door in ("writer", "writer_sync"):
            with pytest.raises(ValueError, match=f"compression_level={level}: .* takes"):
                getattr(file, door)(compression_level=level)


def test_a_higher_level_makes_a_smaller_file(tmp_path: Path) -> None:
    items = [{"n": n, "square": n * n, "text": f"{n % 97} bottles"} for n in range(20_000)]
    sizes = []
    for level in (-50, 3, 19):
        file = JsonlFile(tmp_path / "a.jsonl.zst")
        write(file, items, compression_level=level)
        sizes.append(file.size_sync())
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3


@both_doors
def test_nan_becomes_null_counted_and_warned_of_once_a_writer(
    door: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = JsonlFile(tmp_path / "a.jsonl")
    items = [{"a": math.nan, "b": [math.inf, 1.0]}, {"a": None}, {"a": -math.inf}]
    for _ in range(2):
        caplog.clear()
        write(file, items * 50, door, flush_bytes=64)
        assert records(file) == [{"a": None, "b": [None, 1.0]}, {"a": None}, {"a": None}] * 50
        (entry,) = caplog.records
        assert (entry.name, entry.levelno) == ("penstock.jsonl", logging.WARNING)
        assert str(tmp_path / "a.jsonl") in entry.getMessage()
        assert "allow_nan=True" in entry.getMessage()
    with file.writer_sync() as writer:
        writer.write_many(items)
        assert writer.not_finite == 3


@both_doors
def test_allow_nan_writes_as_python_does_without_a_word(
    door: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    items = [{"a": math.nan, "b": [math.inf, -math.inf, None, "null"]}]
    for target in (JsonlFile(tmp_path / "a.jsonl"), JsonlDir(tmp_path / "d")):
        write(target, items, door, allow_nan=True)
        assert repr(records(target, door)) == repr(items)
    text = (tmp_path / "a.jsonl").read_text()
    assert text == json.dumps(items[0], separators=(",", ":")) + "\n"
    assert not caplog.records


def test_a_writer_works_without_a_block_and_closes_once(tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "a.jsonl.zst")
    writer = file.writer_sync()
    writer.write(1)
    assert not file.exists_sync()
    writer.close()
    writer.close()
    assert records(file) == [1]

    async def put() -> None:
        other = file.writer()
        await other.write(2)
        await other.close()
        await other.close()

    asyncio.run(put())
    assert records(file) == [2]


@both_doors
@pytest.mark.parametrize(
    ("name", "arguments"),
    [("write", [1]), ("write_many", [[1]]), ("write_raw", [b"1\n"]), ("flush", [])],
)
@pytest.mark.parametrize("place", ["file", "directory"])
def test_writing_after_the_end_raises(
    place: str, name: str, arguments: list[Any], door: str, tmp_path: Path
) -> None:
    target = JsonlFile(tmp_path / "a.jsonl") if place == "file" else JsonlDir(tmp_path)

    async def put() -> None:
        async with target.writer() as writer:
            await writer.write(0)
        await getattr(writer, name)(*arguments)

    def put_sync() -> None:
        with target.writer_sync() as writer:
            writer.write(0)
        getattr(writer, name)(*arguments)

    with pytest.raises(ValueError, match="is closed; open another one"):
        put_sync() if door == "sync" else asyncio.run(put())
    assert records(target) == [0]
    assert len(names_in(tmp_path)) == 1


@both_doors
def test_entering_a_writer_again_raises(door: str, tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "a.jsonl")

    async def twice() -> None:
        writer = file.writer()
        for _ in range(2):
            async with writer:
                await writer.write(1)

    def twice_sync() -> None:
        writer = file.writer_sync()
        for _ in range(2):
            with writer:
                writer.write(1)

    with pytest.raises(ValueError, match="is closed"):
        twice_sync() if door == "sync" else asyncio.run(twice())
    assert records(file) == [1]


def test_a_dropped_writer_says_that_its_records_are_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for target in (JsonlFile(tmp_path / "a.jsonl"), JsonlDir(tmp_path)):
        caplog.clear()
        writer = target.writer_sync()
        writer.write(1)
        del writer
        (entry,) = caplog.records
        assert "dropped without being closed" in entry.getMessage()
        assert str(tmp_path) in entry.getMessage()
        assert names_in(tmp_path) == []


@both_doors
def test_a_directory_that_vanishes_spoils_the_writer(door: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    directory = JsonlDir(place)
    with pytest.raises(FileNotFoundError):
        in_writer(
            directory,
            door,
            [("write_many", [range(10)]), ("flush", [])],
            lambda: shutil.rmtree(place),
        )
    assert not directory.exists_sync()


WRITE_BEYOND_THE_LIMIT = """
import asyncio, resource, signal, sys
from penstock.errors import StorageError
from penstock.jsonl import JsonlDir, JsonlFile

path, kind, door = sys.argv[1:]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
target = JsonlFile(path) if kind == "file" else JsonlDir(path)
errors = []

def sync():
    with target.writer_sync(flush_bytes=10_000) as writer:
        for n in range(3):
            try:
                writer.write_many(["x" * 1000] * 200)
            except StorageError as error:
                errors.append(error)

async def asynchronous():
    async with target.writer(flush_bytes=10_000) as writer:
        for n in range(3):
            try:
                await writer.write_many(["x" * 1000] * 200)
            except StorageError as error:
                errors.append(error)

try:
    sync() if door == "sync" else asyncio.run(asynchronous())
except StorageError as error:
    errors.append(error)
for error in errors:
    print(type(error).__name__, error.errno, error)
"""


@both_doors
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_failed_write_spoils_the_writer_even_if_it_is_caught(
    kind: str, door: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl" if kind == "file" else tmp_path
    done = subprocess.run(
        [sys.executable, "-c", WRITE_BEYOND_THE_LIMIT, path, kind, door],
        check=True,
        capture_output=True,
        text=True,
    )
    first, *later = done.stdout.splitlines()
    assert first.startswith(f"StorageError {errno.EFBIG} ")
    assert "size limit" in first
    assert len(later) == 3  # two more writes, and the end of the block
    assert all("failed" in line for line in later)
    assert "was not published, because an earlier write failed" in later[-1]
    assert names_in(tmp_path) == []


@both_doors
def test_a_place_that_cannot_be_written_is_named_on_entering(door: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    file = JsonlFile(tmp_path / "file" / "a.jsonl")
    with pytest.raises(StorageError, match="cannot write in") as caught:
        in_writer(file, door, [], pytest.fail)
    assert str(tmp_path / "file") in str(caught.value)


def test_long_names_and_odd_ones_are_written(tmp_path: Path) -> None:
    for name in ("n" * 249 + ".jsonl", "é" * 120 + ".jsonl.zst", "a b%20#?.jsonl", "\n.jsonl"):
        file = JsonlFile(tmp_path / name)
        write(file, [1])
        assert records(file) == [1]
        assert os.listdir(tmp_path) == [name]  # noqa: PTH208 (the names as they are)
        file.delete_sync()


def test_a_record_longer_than_the_buffer_is_written_whole(tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "a.jsonl")
    items = ["short", "x" * 100_000, "short"]
    write(file, items, flush_bytes=10)
    assert records(file) == items


def test_a_failing_iterable_ends_writing_where_it_fails(tmp_path: Path) -> None:
    def some() -> Any:
        yield 1
        raise LookupError

    file = JsonlFile(tmp_path / "a.jsonl")
    with file.writer_sync() as writer:
        with pytest.raises(LookupError):
            writer.write_many(some())
        writer.write(2)
    assert records(file) == [1, 2]


@both_doors
@pytest.mark.parametrize("name", ["a.txt", "a.ndjson", "a", "a.json", "a.br", "zst"])
def test_any_other_name_is_plain_text(name: str, door: str, tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / name)
    write(file, [{"a": 1}, {"a": 2}], door)
    assert (tmp_path / name).read_bytes() == b'{"a":1}\n{"a":2}\n'
    assert records(file, door) == [{"a": 1}, {"a": 2}]


@both_doors
@pytest.mark.parametrize("place", ["file", "directory"])
def test_a_writer_clears_what_the_dead_left_and_nothing_else(
    place: str, door: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    dead = tmp_path / ".part-00000.jsonl.0123456789abcdef.penstock-tmp"
    dead.write_bytes(b'{"half')
    kept = [".part-00000.jsonl.penstock-tmp", ".hidden", ".x.0123.penstock-tmp"]
    for name in kept:
        (tmp_path / name).write_bytes(b"somebody else's")
    target = JsonlFile(tmp_path / "a.jsonl") if place == "file" else JsonlDir(tmp_path)
    alive = JsonlDir(tmp_path).writer_sync()
    alive.write("alive")
    alive.flush()
    write(target, ["new"], door)
    assert not dead.exists()
    assert dead.name in caplog.text
    assert set(kept) < set(names_in(tmp_path))
    alive.close()
    assert sorted(records(JsonlDir(tmp_path))) == ["alive", "new"]
    assert not [name for name in names_in(tmp_path) if name.endswith("penstock-tmp")][len(kept) :]


def test_a_file_is_on_the_disk_before_it_has_its_name_and_its_name_too_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(descriptor: int) -> None:
        fsync(descriptor)
        target = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
        events.append("directory" if target == str(tmp_path) else "file")

    def noted_replace(source: str, target: str) -> None:
        replace(source, target)
        events.append("named")

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    write(JsonlFile(tmp_path / "a.jsonl"), [1])
    assert events == ["file", "named", "directory"]
