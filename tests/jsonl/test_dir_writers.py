"""Writing shards: when they rotate, what they are called, and what is left behind."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.jsonl import JsonlDir, JsonlFile
from tests.jsonl.doors import both_doors, names_in, records, write

if TYPE_CHECKING:
    from pathlib import Path


def shards(directory: Path) -> list[list[Any]]:
    """Return the records of each shard, in order."""
    return [records(shard) for shard in JsonlDir(directory).shards_sync()]


def names(directory: Path) -> list[str]:
    return [shard.path.rpartition("/")[2] for shard in JsonlDir(directory).shards_sync()]


def fill(lengths: list[int], most_records: int | None, most_bytes: int | None) -> list[list[int]]:
    """Return the lengths of lines that each shard should hold."""
    filled: list[list[int]] = []
    for length in lengths:
        last = filled[-1] if filled else None
        if (
            last is None
            or (most_records is not None and len(last) >= most_records)
            or (most_bytes is not None and sum(last) + length > most_bytes)
        ):
            filled.append([])
        filled[-1].append(length)
    return filled


@given(
    lengths=st.lists(st.integers(3, 40), max_size=20),
    most_records=st.none() | st.integers(1, 8),
    most_bytes=st.none() | st.integers(1, 100),
    flush_bytes=st.integers(1, 120),
    extension=st.sampled_from([".jsonl", ".jsonl.zst", ".jsonl.zstd"]),
    how=st.sampled_from(["list", "each", "iterator", "raw", "async each", "async raw"]),
    data=st.data(),
)
def test_a_shard_ends_before_the_record_that_would_pass_a_limit(  # noqa: PLR0913, PLR0917
    lengths: list[int],
    most_records: int | None,
    most_bytes: int | None,
    flush_bytes: int,
    extension: str,
    how: str,
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("shards")
    items = ["x" * (length - 3) for length in lengths]  # two quotes and a newline beside it
    portions = _portions(items, data) if "raw" in how else []
    options: dict[str, Any] = {
        "max_records_per_shard": most_records,
        "max_bytes_per_shard": most_bytes,
        "flush_bytes": flush_bytes,
        "shard_extension": extension,
    }

    async def put() -> None:
        async with JsonlDir(path).writer(**options) as writer:
            for item in [] if portions else items:
                await writer.write(item)
            for portion in portions:
                await writer.write_raw(portion)

    if how.startswith("async"):
        asyncio.run(put())
    else:
        with JsonlDir(path).writer_sync(**options) as writer:
            if how == "list":
                writer.write_many(items)
            elif how == "iterator":
                writer.write_many(iter(items))
            else:
                for item in [] if portions else items:
                    writer.write(item)
                for portion in portions:
                    writer.write_raw(portion)
    expected = fill(lengths, most_records, most_bytes)
    assert [[len(item) + 3 for item in shard] for shard in shards(path)] == expected
    assert names(path) == [f"part-{n:05d}{extension}" for n in range(len(expected))]


def _portions(items: list[str], data: st.DataObject) -> list[bytes]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(items)), max_size=3)))
    lines = [json.dumps(item).encode() + b"\n" for item in items]
    return [
        b"".join(lines[a:b]) for a, b in zip([0, *cuts], [*cuts, len(items)], strict=True) if b > a
    ]


@both_doors
def test_limits_count_uncompressed_bytes(door: str, tmp_path: Path) -> None:
    items = ["x" * 997] * 100
    write(JsonlDir(tmp_path), items, door, shard_extension=".jsonl.zst", max_bytes_per_shard=10_000)
    assert [len(shard) for shard in shards(tmp_path)] == [10] * 10


def test_a_shard_holds_256_mib_unless_told_otherwise(tmp_path: Path) -> None:
    block = b'"' + b"x" * ((1 << 20) - 3) + b'"\n'
    with JsonlDir(tmp_path).writer_sync(shard_extension=".jsonl.zst", compression_level=-50) as w:
        for _ in range(257):
            w.write_raw(block)
        assert names_in(tmp_path)[-1] == "part-00000.jsonl.zst"
    assert [
        sum(1 for _ in shard.iter_records_sync()) for shard in JsonlDir(tmp_path).shards_sync()
    ] == [256, 1]


@both_doors
def test_a_record_larger_than_the_limit_has_a_shard_of_its_own(door: str, tmp_path: Path) -> None:
    items = ["a", "x" * 500, "y" * 500, "b", "c", "z" * 500]
    write(JsonlDir(tmp_path), items, door, max_bytes_per_shard=100)
    assert shards(tmp_path) == [["a"], ["x" * 500], ["y" * 500], ["b", "c"], ["z" * 500]]


@both_doors
def test_an_unused_writer_leaves_nothing(door: str, tmp_path: Path) -> None:
    directory = JsonlDir(tmp_path / "new")
    write(directory, [], door)
    assert not directory.exists_sync()

    async def flush() -> None:
        async with directory.writer() as writer:
            await writer.flush()
            await writer.write_raw(b"")

    if door == "sync":
        with directory.writer_sync() as writer:
            writer.flush()
            writer.write_raw(b"")
    else:
        asyncio.run(flush())
    assert not directory.exists_sync()


@both_doors
def test_the_first_shard_is_begun_lazily(door: str, tmp_path: Path) -> None:
    directory = JsonlDir(tmp_path)
    seen = []

    async def put() -> None:
        async with directory.writer() as writer:
            seen.append(names_in(tmp_path))
            await writer.write(1)

    if door == "sync":
        with directory.writer_sync() as writer:
            seen.append(names_in(tmp_path))
            writer.write(1)
    else:
        asyncio.run(put())
    assert seen == [[]]
    assert names_in(tmp_path) == ["part-00000.jsonl"]


@both_doors
def test_a_full_shard_is_visible_while_the_writer_goes_on(door: str, tmp_path: Path) -> None:
    directory = JsonlDir(tmp_path)
    seen: list[Any] = []

    def look(writer: Any) -> None:
        seen.append((writer.published, records(directory)))

    async def put() -> None:
        async with directory.writer(max_records_per_shard=2) as writer:
            for n in range(4):
                await writer.write(n)
                look(writer)

    if door == "sync":
        with directory.writer_sync(max_records_per_shard=2) as writer:
            for n in range(4):
                writer.write(n)
                look(writer)
    else:
        asyncio.run(put())
    first = str(tmp_path / "part-00000.jsonl")
    # Before the third record: the second one filled the shard, the third would pass the limit.
    assert seen == [([], []), ([], []), ([first], [0, 1]), ([first], [0, 1])]
    assert shards(tmp_path) == [[0, 1], [2, 3]]


@both_doors
def test_leaving_by_an_exception_keeps_published_shards_and_drops_the_rest(
    door: str, tmp_path: Path
) -> None:
    directory = JsonlDir(tmp_path)

    async def put() -> None:
        async with directory.writer(max_records_per_shard=2) as writer:
            await writer.write_many(range(5))
            raise LookupError

    def put_sync() -> None:
        with directory.writer_sync(max_records_per_shard=2) as writer:
            writer.write_many(range(5))
            raise LookupError

    with pytest.raises(LookupError):
        put_sync() if door == "sync" else asyncio.run(put())
    assert names_in(tmp_path) == ["part-00000.jsonl", "part-00001.jsonl"]
    assert records(directory) == [0, 1, 2, 3]


@both_doors
@pytest.mark.parametrize(
    ("present", "added"),
    [
        (["part-00000.jsonl"], "part-00001.jsonl"),
        (["part-00003.jsonl.zst", "part-00001.jsonl"], "part-00004.jsonl"),
        (["part-00007.jsonl.gz"], "part-00008.jsonl"),
        (["part-00007.jsonl.zstd"], "part-00008.jsonl"),
        (["part-99999.jsonl"], "part-100000.jsonl"),
        (["part-100000.jsonl"], "part-100001.jsonl"),
        (["other.jsonl", "part-x.jsonl"], "part-00000.jsonl"),
    ],
)
def test_numbering_continues_after_the_highest_number_present(
    present: list[str], added: str, door: str, tmp_path: Path
) -> None:
    for name in present:
        write(JsonlFile(tmp_path / name), ["old"])
    before = {name: (tmp_path / name).read_bytes() for name in present}
    write(JsonlDir(tmp_path), ["new"], door)
    assert names_in(tmp_path) == sorted([*present, added])
    assert records(tmp_path / added) == ["new"]
    assert {name: (tmp_path / name).read_bytes() for name in present} == before


@both_doors
def test_writers_that_alternate_take_one_number_each(door: str, tmp_path: Path) -> None:
    directory = JsonlDir(tmp_path)
    options = {"max_records_per_shard": 1}

    async def put() -> None:
        async with directory.writer(**options) as one, directory.writer(**options) as other:
            for n in range(5):
                await one.write(["one", n])
                await other.write(["other", n])

    if door == "sync":
        with directory.writer_sync(**options) as one, directory.writer_sync(**options) as other:
            for n in range(5):
                one.write(["one", n])
                other.write(["other", n])
    else:
        asyncio.run(put())
    assert names(tmp_path) == [f"part-{n:05d}.jsonl" for n in range(10)]
    assert sorted(records(directory)) == sorted([w, n] for n in range(5) for w in ("one", "other"))


def test_a_number_taken_while_writing_is_passed_over(tmp_path: Path) -> None:
    directory = JsonlDir(tmp_path)
    with directory.writer_sync() as writer:
        writer.write("mine")
        write(JsonlFile(tmp_path / "part-00000.jsonl"), ["theirs"])
        write(JsonlFile(tmp_path / "part-00001.jsonl.zst"), ["theirs"])
    assert records(tmp_path / "part-00000.jsonl") == ["theirs"]
    assert records(tmp_path / "part-00002.jsonl") == ["mine"]


@both_doors
def test_mixed_compression_in_one_directory_is_fine(door: str, tmp_path: Path) -> None:
    directory = JsonlDir(tmp_path)
    for n, extension in enumerate([".jsonl", ".jsonl.zst", ".jsonl.zstd", ".jsonl"]):
        write(directory, [n] * 3, door, shard_extension=extension)
    assert names(tmp_path) == [
        "part-00000.jsonl",
        "part-00001.jsonl.zst",
        "part-00002.jsonl.zstd",
        "part-00003.jsonl",
    ]
    assert records(directory, door) == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"shard_extension": ".json"}, "shard_extension='.json'"),
        ({"shard_extension": ".jsonl.gz"}, "shard_extension='.jsonl.gz'"),
        ({"max_records_per_shard": 0}, "max_records_per_shard=0"),
        ({"max_records_per_shard": -1}, "max_records_per_shard=-1"),
        ({"max_bytes_per_shard": 0}, "max_bytes_per_shard=0"),
        ({"shard_extension": ".jsonl.zst", "compression_level": 23}, "compression_level=23"),
    ],
)
def test_options_that_cannot_work_are_value_errors_at_once(
    options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    for door in ("writer", "writer_sync"):
        with pytest.raises(ValueError, match=said):
            getattr(JsonlDir(tmp_path), door)(**options)


def test_raw_lines_written_while_another_task_flushes_keep_to_the_limit(tmp_path: Path) -> None:
    # While a large buffer is on its way to the disk, lines that come must wait for what the flush
    # finds out about the room that is left.
    directory = JsonlDir(tmp_path)
    large = b'"' + b"x" * (8 << 20) + b'"\n'

    async def put() -> None:
        async with directory.writer(
            max_records_per_shard=10, max_bytes_per_shard=None, flush_bytes=1 << 30
        ) as writer:
            for _ in range(5):
                await writer.write_raw(large)
            flushing = asyncio.create_task(writer.flush())
            while not names_in(tmp_path):  # noqa: ASYNC110 (a file appears, no event)
                await asyncio.sleep(0)
            await writer.write_raw(b"1\n" * 10)
            await flushing

    asyncio.run(put())
    assert [len(shard) for shard in shards(tmp_path)] == [10, 5]


@pytest.mark.parametrize("most_bytes", [None, (4 << 30) + 1])
def test_a_remote_shard_that_one_request_could_not_carry_is_refused_at_once(
    most_bytes: int | None, tmp_path: Path
) -> None:
    for door in ("writer", "writer_sync"):
        with pytest.raises(ValueError, match="max_bytes_per_shard="):
            getattr(JsonlDir("s3://bucket/shards"), door)(max_bytes_per_shard=most_bytes)
        getattr(JsonlDir("s3://bucket/shards"), door)(max_bytes_per_shard=4 << 30)
        getattr(JsonlDir(tmp_path), door)(max_bytes_per_shard=most_bytes)
