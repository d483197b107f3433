"""`JsonlDir`: what is read of a directory and in which order, and its other doors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from penstock.jsonl import JsonlDir, JsonlFile
from tests.jsonl.doors import both_doors, call, read, records, write

if TYPE_CHECKING:
    from pathlib import Path

READ_IN_ORDER = [
    "part-3.jsonl",
    "part-00010.jsonl.zst",
    "part-99999.jsonl",
    "part-100000.jsonl.zstd",
    "A2.jsonl.gz",
    "a10.jsonl",
    "b.jsonl.zst",
    "part-00000.jsonl.gz",
]
NEVER_READ = [
    "_part-00000.jsonl",
    "_SUCCESS",
    ".hidden.jsonl",
    ".part-00000.jsonl.0123456789abcdef.penstock-tmp",
    ".shard.jsonl.fedcba9876543210.penstock-tmp",
    ".part-00001.jsonl.penstock-claim",
    "part-00000.txt",
    "a.json",
    "a.jsonl.bak",
    "a.jsonl.tmp",
    "README",
]


def walked(directory: JsonlDir, door: str, **options: bool) -> list[JsonlFile]:
    if door == "sync":
        return list(directory.walk_sync(**options))

    async def take() -> list[JsonlFile]:
        return [file async for file in directory.walk(**options)]

    return asyncio.run(take())


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A directory of everything, each record naming its file, and a subdirectory of the same."""
    for name in READ_IN_ORDER:
        write(JsonlFile(tmp_path / name), [name])
    for name in NEVER_READ:
        (tmp_path / name).write_text('"never"\n')
    for inner in ("inner", "inner/most", "_hidden", ".hidden"):
        (tmp_path / inner).mkdir()
        write(JsonlFile(tmp_path / inner / "part-00000.jsonl"), [inner])
        (tmp_path / inner / "_x.jsonl").write_text('"never"\n')
    (tmp_path / "dir.jsonl").mkdir()
    return tmp_path


@both_doors
@pytest.mark.parametrize("kind", ["records", "batches"])
def test_files_come_by_number_then_by_name_wherever_they_lie_and_never_hidden_ones(
    kind: str, door: str, mixed: Path
) -> None:
    outcome = read(mixed, door, kind)
    assert outcome.error is None
    items = outcome.items if kind == "records" else [r for batch in outcome.items for r in batch]
    assert items == ["inner", "inner/most", *READ_IN_ORDER]


@both_doors
def test_a_shard_of_a_subdirectory_is_read_as_in_flyte_and_counts_for_the_next_number(
    door: str, tmp_path: Path
) -> None:
    for name in ("part-00001.jsonl", "sub/part-00000.jsonl", "sub/part-00001.jsonl", "sub/b.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(JsonlFile(tmp_path / name), [name])
    (tmp_path / "sub" / "part-00004.jsonl").write_text("")
    write(JsonlDir(tmp_path), ["new"], door)
    assert (tmp_path / "part-00005.jsonl").exists()
    assert records(JsonlDir(tmp_path), door) == [
        "sub/part-00000.jsonl", "part-00001.jsonl", "sub/part-00001.jsonl", "new", "sub/b.jsonl",
    ]  # fmt: skip


@both_doors
def test_arrow_batches_come_in_the_same_order(door: str, tmp_path: Path) -> None:
    for name in READ_IN_ORDER:
        write(JsonlFile(tmp_path / name), [{"name": name}])
    for name in NEVER_READ:
        (tmp_path / name).write_text('{"name": "never"}\n')
    (batch,) = read(tmp_path, door, "arrow_batches").items
    assert batch.column("name").to_pylist() == READ_IN_ORDER


@both_doors
def test_shards_are_the_files_of_the_directory_itself_in_that_order(door: str, mixed: Path) -> None:
    found = call(JsonlDir(mixed), "shards", door)
    assert found == [JsonlFile(mixed / name) for name in READ_IN_ORDER]
    assert [file.path for file in found] == [str(mixed / name) for name in READ_IN_ORDER]


@both_doors
def test_walking_goes_into_subdirectories_unless_told_otherwise(door: str, mixed: Path) -> None:
    here = [JsonlFile(mixed / name) for name in READ_IN_ORDER]
    inner = [JsonlFile(mixed / f"{name}/part-00000.jsonl") for name in ("inner", "inner/most")]
    assert walked(JsonlDir(mixed), door) == here + inner
    assert walked(JsonlDir(mixed), door, recursive=True) == here + inner
    assert walked(JsonlDir(mixed), door, recursive=False) == here
    assert [records(file) for file in walked(JsonlDir(mixed), door)[-2:]] == [
        ["inner"],
        ["inner/most"],
    ]


@both_doors
def test_a_directory_is_downloaded_with_its_subdirectories(
    door: str, mixed: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = JsonlDir(mixed)
    assert call(directory, "download", door) == str(mixed)
    place = tmp_path_factory.mktemp("copy") / "of" / "it"
    assert call(directory, "download", door, place) == str(place)
    copied = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    assert copied == sorted(
        [*READ_IN_ORDER, "inner/part-00000.jsonl", "inner/most/part-00000.jsonl"]
    )
    for name in copied:
        assert (place / name).read_bytes() == (mixed / name).read_bytes()
    assert records(JsonlDir(place), door) == ["inner", "inner/most", *READ_IN_ORDER]
    assert call(directory, "download", door, str(place)) == str(place)  # and again, over it


@both_doors
def test_a_directory_says_whether_it_exists(door: str, tmp_path: Path) -> None:
    assert call(JsonlDir(tmp_path), "exists", door) is True
    assert call(JsonlDir(tmp_path / "missing"), "exists", door) is False
    (tmp_path / "file").touch()
    assert call(JsonlDir(tmp_path / "file"), "exists", door) is False


@both_doors
def test_an_empty_directory_yields_nothing(door: str, tmp_path: Path) -> None:
    (tmp_path / ".hidden.jsonl").write_text('"never"\n')
    for kind in ("records", "batches", "arrow_batches"):
        assert read(tmp_path, door, kind) == ([], None, 0)
    assert call(JsonlDir(tmp_path), "shards", door) == []
    assert walked(JsonlDir(tmp_path), door) == []


@both_doors
def test_a_missing_directory_is_a_file_not_found_error_that_names_it(
    door: str, tmp_path: Path
) -> None:
    missing = JsonlDir(tmp_path / "missing")
    errors = [read(missing, door, kind).error for kind in ("records", "batches", "arrow_batches")]
    calls: list[Any] = [
        lambda: call(missing, "shards", door),
        lambda: walked(missing, door),
        lambda: call(missing, "download", door, tmp_path / "copy"),
    ]
    for make in calls:
        with pytest.raises(FileNotFoundError) as caught:
            make()
        errors.append(caught.value)
    for error in errors:
        assert isinstance(error, FileNotFoundError)
        assert str(tmp_path / "missing") in str(error)


@both_doors
def test_empty_shards_between_others_are_passed_over(door: str, tmp_path: Path) -> None:
    for number, text in enumerate([b"", b"1\n", b"", b"\n", b"2", b""]):
        (tmp_path / f"part-{number:05d}.jsonl").write_bytes(text)
    for prefetch in (True, False):
        assert records(tmp_path, door, prefetch=prefetch) == [1, 2]


@both_doors
def test_one_record_without_a_last_newline_does_not_run_into_the_next_shard(
    door: str, tmp_path: Path
) -> None:
    (tmp_path / "part-0.jsonl").write_bytes(b"1\n2")
    (tmp_path / "part-1.jsonl").write_bytes(b"\xef\xbb\xbf3\r\n4")
    assert records(tmp_path, door) == [1, 2, 3, 4]
    (tmp_path / "part-0.jsonl").write_bytes(b'{"a":1}\n{"a":2}')
    (tmp_path / "part-1.jsonl").write_bytes(b'\xef\xbb\xbf{"a":3}')
    (batch,) = read(tmp_path, door, "arrow_batches").items
    assert batch.column("a").to_pylist() == [1, 2, 3]


@both_doors
@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("queue_size", [1, 10, 8192])
def test_any_queue_gives_the_same_records(
    queue_size: int,
    prefetch: bool,  # noqa: FBT001
    door: str,
    tmp_path: Path,
) -> None:
    write(JsonlDir(tmp_path), range(5000), max_records_per_shard=700)
    assert records(tmp_path, door, prefetch=prefetch, queue_size=queue_size) == list(range(5000))


@pytest.mark.parametrize("queue_size", [0, -5])
def test_a_queue_without_room_is_a_value_error_at_once(queue_size: int, tmp_path: Path) -> None:
    for method in (JsonlDir(tmp_path).iter_records, JsonlDir(tmp_path).iter_records_sync):
        with pytest.raises(ValueError, match=f"queue_size={queue_size}"):
            method(queue_size=queue_size)


@both_doors
def test_arguments_may_be_given_in_the_order_of_the_seed(door: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"1\nbad\n2\n")
    directory = JsonlDir(tmp_path)
    if door == "sync":
        assert list(directory.iter_records_sync("skip", False, 10)) == [1, 2]  # noqa: FBT003
    else:

        async def take() -> list[Any]:
            return [record async for record in directory.iter_records("skip", True, 10)]  # noqa: FBT003

        assert asyncio.run(take()) == [1, 2]
    with directory.writer_sync(".jsonl.zst", 1, 100, 10, 5) as writer:
        writer.write_many([3, 4])
    assert [shard.path.rpartition("/")[2] for shard in directory.shards_sync()] == [
        "part-00000.jsonl.zst",
        "part-00001.jsonl.zst",
        "a.jsonl",
    ]


def test_names_with_percent_signs_are_found_through_a_file_url(tmp_path: Path) -> None:
    place = tmp_path / "a b"
    for name in ("50%25.jsonl", "a%20b.jsonl", "a#b?.jsonl"):
        write(JsonlFile(place / name), [name])
    directory = JsonlDir(f"file://{tmp_path}/a%20b")
    assert records(directory) == ["50%25.jsonl", "a#b?.jsonl", "a%20b.jsonl"]
    assert all(file.exists_sync() for file in directory.shards_sync())
    write(directory, ["new"])
    assert records(place / "part-00000.jsonl") == ["new"]


def test_a_shard_that_appears_later_is_seen_by_the_next_stream(tmp_path: Path) -> None:
    directory = JsonlDir(tmp_path)
    write(directory, [1])
    stream = directory.iter_records_sync()
    assert next(stream) == 1
    write(directory, [2])
    assert list(stream) == []
    assert records(directory) == [1, 2]


def test_a_shard_that_vanishes_is_a_file_not_found_error_at_its_place(tmp_path: Path) -> None:
    write(JsonlDir(tmp_path), range(6), max_records_per_shard=2)
    stream = JsonlDir(tmp_path).iter_records_sync(prefetch=False)
    assert next(stream) == 0
    (tmp_path / "part-00002.jsonl").unlink()
    seen = []
    with pytest.raises(FileNotFoundError, match="part-00002"):
        seen.extend(stream)
    assert seen == [1, 2, 3]


@both_doors
def test_a_link_that_leads_nowhere_is_an_error_at_its_place(door: str, tmp_path: Path) -> None:
    write(JsonlFile(tmp_path / "part-00000.jsonl"), [{"id": 1}])
    (tmp_path / "part-00001.jsonl").symlink_to("nowhere")
    outcome = read(JsonlDir(tmp_path), door)
    assert outcome.items == [{"id": 1}]
    assert isinstance(outcome.error, FileNotFoundError)
    assert f"{tmp_path}/part-00001.jsonl: it is a link to nowhere" in str(outcome.error)
