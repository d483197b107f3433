"""Names and arguments of flyte's `JsonlFile` and `JsonlDir` that the seeds' pages do not show."""

from __future__ import annotations

import asyncio
import inspect
import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
import zstandard

from penstock.errors import MalformedLineError, ObjectNotFoundError, OptionError
from penstock.jsonl import ErrorHandler, JsonlDir, JsonlFile
from tests.jsonl.doors import both_doors, call, names_in, read, records, write

if TYPE_CHECKING:
    from tests.servers.s3_server import S3Server

BAD = b'{"id": 1}\nnot json\n{"id": 2}\n'


IN_ORDER = [0, 1, 2, 3, 10, 11, 4, 5, 6, 7, 8, 9]
"""The records of `shards`: those of a subdirectory come by the number of their shard."""


@pytest.fixture
def shards(tmp_path: Path) -> JsonlDir:
    directory = JsonlDir(tmp_path / "d")
    write(directory, range(10), max_records_per_shard=4)
    write(JsonlDir(tmp_path / "d" / "sub"), [10])
    write(JsonlDir(tmp_path / "d" / "sub" / "deep"), [11])
    return directory


@pytest.mark.parametrize("kind", [JsonlFile, JsonlDir])
@both_doors
def test_the_error_policy_is_the_second_argument_of_arrow_batches(
    kind: type[JsonlFile | JsonlDir], door: str, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_bytes(BAD)
    source = kind(tmp_path if kind is JsonlDir else tmp_path / "a.jsonl")
    bad: list[int] = []

    def note(line_number: int, *_: object) -> None:
        bad.append(line_number)

    handler: ErrorHandler = note

    async def gathered() -> list[Any]:
        return [batch async for batch in source.iter_arrow_batches(1, handler)]

    batches = (
        list(source.iter_arrow_batches_sync(1, handler))
        if door == "sync"
        else asyncio.run(gathered())
    )
    assert [batch.to_pylist() for batch in batches] == [[{"id": 1}], [{"id": 2}]]
    assert bad == [2]


@both_doors
def test_batches_of_a_directory_take_prefetch_and_queue_size(door: str, shards: JsonlDir) -> None:
    method = getattr(shards, "iter_batches" + ("_sync" if door == "sync" else ""))
    assert [*inspect.signature(method).parameters] == [
        "batch_size", "on_error", "prefetch", "queue_size",
    ]  # fmt: skip
    for options in ({"prefetch": False}, {"prefetch": True, "queue_size": 1}, {"queue_size": 3}):
        batches = read(shards, door, "batches", batch_size=3, **options).items
        assert batches == [[0, 1, 2], [3, 10, 11], [4, 5, 6], [7, 8, 9]]
    with pytest.raises(OptionError, match="queue_size"):
        method(3, queue_size=0)


@both_doors
def test_a_writer_appends_after_a_shard_in_capitals(door: str, tmp_path: Path) -> None:
    (tmp_path / "PART-00007.JSONL").write_text("7\n")
    write(JsonlDir(tmp_path), [8], door)
    assert names_in(tmp_path) == ["PART-00007.JSONL", "part-00008.jsonl"]
    (tmp_path / "a.jsonl").write_text("9\n")
    assert records(tmp_path, door) == [7, 8, 9]


def test_an_error_of_a_bad_line_is_an_error_of_json_and_orjson(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(BAD)
    with pytest.raises(json.JSONDecodeError) as raised:
        records(path)
    assert isinstance(raised.value, orjson.JSONDecodeError | MalformedLineError)
    again = pickle.loads(pickle.dumps(raised.value))
    for error in (raised.value, again):
        assert isinstance(error, MalformedLineError)
        assert (error.doc, error.pos, error.lineno, error.colno) == ("not json", 0, 1, 1)
        assert (error.path, error.line_number) == (str(path), 2)
        assert str(error).startswith(f"{path}, line 2: ")
    path.write_bytes('{"ä": 1,}\n'.encode())
    with pytest.raises(json.JSONDecodeError) as raised:
        records(path)
    assert (raised.value.pos, raised.value.colno) == (8, 9)


@both_doors
def test_a_local_file_stays_or_is_copied(door: str, tmp_path: Path) -> None:
    local = tmp_path / "a.jsonl"
    local.write_text("1\n")
    assert call(JsonlFile, "from_local", door, local).path == str(local)
    copy = call(JsonlFile, "from_local", door, str(local), tmp_path / "to" / "b.jsonl", "key")
    assert (records(copy, door), copy.hash, copy.name) == ([1], "key", "b.jsonl")
    with pytest.raises(FileNotFoundError, match="missing"):
        call(JsonlFile, "from_local", door, tmp_path / "missing.jsonl")
    assert pickle.loads(pickle.dumps(copy)).hash == "key"
    assert copy == JsonlFile(copy.path)


@both_doors
def test_a_local_directory_is_copied_with_all_below_it(door: str, shards: JsonlDir) -> None:
    assert call(JsonlDir, "from_local", door, shards.path).path == shards.path
    target = f"{shards.path}-copy/"
    copy = call(JsonlDir, "from_local", door, shards.path, target, "key")
    assert (copy.hash, copy.name, records(copy, door)) == ("key", "d-copy", IN_ORDER)
    assert [records(file) for file in copy.walk_sync()][-2:] == [[10], [11]]
    with pytest.raises(ObjectNotFoundError):
        call(JsonlDir, "from_local", door, f"{shards.path}-missing")


@both_doors
def test_local_data_go_to_object_storage(
    door: str, shards: JsonlDir, s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = s3_server.storage_options
    monkeypatch.setenv("PENSTOCK_REMOTE", f"s3://{bucket}/root")
    directory = call(JsonlDir, "from_local", door, shards.path, storage_options=options)
    assert directory.path.startswith(f"s3://{bucket}/root/")
    assert directory.name == "d"
    assert records(directory, door) == IN_ORDER
    file = f"{shards.path}/part-00000.jsonl"
    target = f"s3://{bucket}/x/y.jsonl"
    copy = call(JsonlFile, "from_local", door, file, target, storage_options=options)
    again = JsonlFile.from_existing_remote(target, "key", storage_options=options)
    assert again == copy
    assert (records(again, door), again.hash) == ([0, 1, 2, 3], "key")
    found = call(directory, "get_file", door, "part-00001.jsonl")
    assert records(found, door) == [4, 5, 6, 7]
    assert call(directory, "get_file", door, "part-00009.jsonl") is None


@both_doors
def test_files_are_listed_and_fetched_by_name(door: str, shards: JsonlDir) -> None:
    listed = call(shards, "list_files", door)
    assert [file.name for file in listed] == [f"part-0000{number}.jsonl" for number in range(3)]
    assert listed == call(shards, "shards", door)
    assert call(shards, "get_file", door, "part-00002.jsonl") == listed[2]
    assert records(call(shards, "get_file", door, "sub/part-00000.jsonl"), door) == [10]
    assert call(shards, "get_file", door, "part-00003.jsonl") is None
    assert call(shards, "get_file", door, "sub") is None


@both_doors
def test_a_walk_has_a_depth_and_a_pattern(door: str, shards: JsonlDir) -> None:
    def walked(**options: Any) -> list[str]:
        async def take() -> list[JsonlFile]:
            return [file async for file in shards.walk(**options)]

        files = list(shards.walk_sync(**options)) if door == "sync" else asyncio.run(take())
        return [str(Path(file.path).relative_to(shards.path)) for file in files]

    top = [f"part-0000{number}.jsonl" for number in range(3)]
    assert walked() == [*top, "sub/part-00000.jsonl", "sub/deep/part-00000.jsonl"]
    assert walked(max_depth=2) == [*top, "sub/part-00000.jsonl"]
    assert walked(max_depth=1) == walked(recursive=False) == top
    assert walked(file_pattern="*-00000.*", max_depth=2) == [top[0], "sub/part-00000.jsonl"]
    assert walked(file_pattern="*.csv") == []
    with pytest.raises(OptionError, match="max_depth"):
        walked(max_depth=0)


def test_flytes_positions_of_walk_hold() -> None:
    assert [*inspect.signature(JsonlDir.walk).parameters][1:3] == ["recursive", "max_depth"]
    sync = [*inspect.signature(JsonlDir.walk_sync).parameters][1:]
    assert sync == ["recursive", "file_pattern", "max_depth"]


def test_a_value_may_stand_for_no_directory(tmp_path: Path) -> None:
    nothing = JsonlDir.empty()
    assert nothing.is_empty
    assert not nothing.exists_sync()
    assert pickle.loads(pickle.dumps(nothing)).is_empty
    assert not JsonlDir(tmp_path).is_empty


def test_new_places_take_flytes_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_REMOTE", str(tmp_path))
    file = JsonlFile.new_remote(file_name="a.jsonl", hash_method="key")
    directory = JsonlDir.new_remote(dir_name="d", hash="key")
    assert (file.name, file.hash, file.format) == ("a.jsonl", "key", "jsonl")
    assert (directory.name, directory.hash, directory.format) == ("d", "key", "jsonl")
    assert JsonlDir.from_existing_remote(directory.path, "key") == directory
    unnamed = JsonlFile.new_remote()
    write(unnamed, [1])
    write(JsonlDir.new_remote(), [1])
    assert records(unnamed) == [1]
    with pytest.raises(OptionError, match="a hash is a string, not Hash"):
        JsonlFile.new_remote("a.jsonl", Hash())  # type: ignore[arg-type]


class Hash:
    """As flyte's hash methods are."""


def first_frame_by_blocks(data: bytes) -> bytes:
    """Read as flyte's async reader does: one decompressor, and blocks of 64 KiB."""
    frame = zstandard.ZstdDecompressor().decompressobj()
    return b"".join(frame.decompress(data[at : at + 65536]) for at in range(0, len(data), 65536))


@pytest.mark.parametrize("extension", [".jsonl.zst", ".jsonl.zstd"])
@both_doors
def test_one_frame_serves_readers_that_stop_at_its_end(
    door: str, extension: str, tmp_path: Path
) -> None:
    written = [{"id": number, "text": f"{number * 7919 % 10007:x}" * 9} for number in range(20_000)]
    directory = JsonlDir(tmp_path)
    write(directory, written, door, shard_extension=extension)
    write(directory, written, door, shard_extension=extension, frame_bytes=None, flush_bytes=1000)
    many, one = (Path(shard.path).read_bytes() for shard in directory.shards_sync())
    text = b"".join(orjson.dumps(record) + b"\n" for record in written)
    assert zstandard.ZstdDecompressor().decompress(many) != text
    assert zstandard.ZstdDecompressor().decompress(one) == text
    assert len(one) > 2 * 65536
    assert first_frame_by_blocks(one) == text
    assert records(directory, door) == [*written, *written]


@both_doors
def test_a_file_of_one_frame_without_records_is_one(door: str, tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "a.jsonl.zst")
    write(file, [], door, frame_bytes=None)
    assert zstandard.ZstdDecompressor().decompress((tmp_path / "a.jsonl.zst").read_bytes()) == b""
    assert records(file, door) == []
