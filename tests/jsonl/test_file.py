"""`JsonlFile` as a value, and its doors beside reading and writing."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.jsonl import JsonlDir, JsonlFile
from tests.jsonl.doors import both_doors, call, names_in, records, write

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_file_is_made_of_a_path_however_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "a b.jsonl"
    for file in (JsonlFile(str(path)), JsonlFile(path), JsonlFile(path=str(path))):
        assert file.path == str(path)
        write(file, [1])
        assert records(path) == [1]
    url = JsonlFile(f"file://{tmp_path}/a%20b.jsonl")
    assert records(url) == [1]
    assert url.path == f"file://{tmp_path}/a%20b.jsonl"


def test_a_relative_path_is_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(JsonlFile("new/a.jsonl"), [1])
    assert records(tmp_path / "new" / "a.jsonl") == [1]
    write(JsonlFile("a.jsonl"), [2])
    assert records(tmp_path / "a.jsonl") == [2]


@pytest.mark.parametrize(
    "path", ["s4://host/a.jsonl", "nothing://x/a.jsonl", "file://host/a.jsonl"]
)
def test_a_place_that_nothing_is_known_of_is_a_value_error(path: str) -> None:
    for kind in (JsonlFile, JsonlDir):
        with pytest.raises(ValueError, match="://"):
            kind(path)


@pytest.mark.parametrize("kind", [JsonlFile, JsonlDir])
def test_it_is_a_small_value_that_pickles_and_holds_nothing_open(
    kind: type[JsonlFile | JsonlDir], tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    one = kind(path)
    data = pickle.dumps(one)
    assert len(data) < 300 + len(str(path))
    again = pickle.loads(data)
    assert type(again) is kind
    assert again == one == kind(str(path))
    assert hash(again) == hash(one)
    assert one != kind(tmp_path / "b.jsonl")
    assert one != path
    assert {one: 1}[again] == 1
    assert repr(one) == f"{kind.__name__}({str(path)!r})"
    assert eval(repr(one)) == one
    assert not hasattr(one, "__dict__")


@pytest.mark.parametrize("kind", [JsonlFile, JsonlDir])
def test_storage_options_are_part_of_the_value_and_their_secrets_stay_inside(
    kind: type[JsonlFile | JsonlDir],
) -> None:
    options = {"region": "mars", "secret_access_key": "hush-hush"}
    one = kind("s3://bucket/a.jsonl", storage_options=options)
    again = pickle.loads(pickle.dumps(one))
    assert again == one
    assert again.storage_options == one.storage_options
    assert one != kind("s3://bucket/a.jsonl")
    assert "hush-hush" not in repr(one) + str(one)


@pytest.mark.parametrize(
    ("kind", "name", "parameters"),
    [
        (JsonlFile, "iter_records", {"on_error": "raise"}),
        (JsonlFile, "iter_batches", {"batch_size": 1000}),
        (JsonlFile, "iter_arrow_batches", {"batch_size": 65536, "on_error": "raise"}),
        (JsonlFile, "writer", {"flush_bytes": 1 << 20, "compression_level": 3}),
        (JsonlFile, "download", {"local_path": None}),
        (JsonlDir, "walk", {"recursive": True}),
        (JsonlDir, "download", {"local_path": None}),
        (JsonlDir, "iter_records", {"on_error": "raise", "prefetch": True, "queue_size": 8192}),
        (JsonlDir, "iter_batches", {"batch_size": 1000}),
        (JsonlDir, "iter_arrow_batches", {"batch_size": 65536, "on_error": "raise"}),
        (
            JsonlDir,
            "writer",
            {
                "shard_extension": ".jsonl",
                "max_records_per_shard": None,
                "max_bytes_per_shard": 256 << 20,
                "flush_bytes": 1 << 20,
                "compression_level": 3,
            },
        ),
    ],
    ids=lambda value: getattr(value, "__name__", value if isinstance(value, str) else ""),
)
def test_arguments_and_defaults_are_the_seeds_at_both_doors(
    kind: type[JsonlFile | JsonlDir],
    name: str,
    parameters: dict[str, object],
) -> None:
    method, twin = getattr(kind, name), getattr(kind, f"{name}_sync")
    assert inspect.signature(twin).parameters.keys() == inspect.signature(method).parameters.keys()
    for door in (method, twin):
        found = list(inspect.signature(door).parameters.values())[1 : len(parameters) + 1]
        assert {parameter.name: parameter.default for parameter in found} == parameters
        assert {parameter.kind for parameter in found} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}


def test_a_file_that_was_listed_is_equal_to_one_that_was_not(tmp_path: Path) -> None:
    write(JsonlDir(tmp_path), [1])
    (listed,) = JsonlDir(tmp_path).shards_sync()
    assert listed == JsonlFile(tmp_path / "part-00000.jsonl")
    assert records(pickle.loads(pickle.dumps(listed))) == [1]


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    assert JsonlFile(tmp_path) != JsonlDir(tmp_path)
    assert JsonlDir(tmp_path) != JsonlFile(tmp_path)


@pytest.mark.parametrize("kind", [JsonlFile, JsonlDir])
def test_a_new_remote_lies_under_the_root_and_never_twice_in_one_place(
    kind: type[JsonlFile | JsonlDir], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_REMOTE", f"{tmp_path}/remote/")
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    one, other = kind.new_remote("name.jsonl"), kind.new_remote("name.jsonl")
    assert type(one) is kind
    assert Path(one.path).name == "name.jsonl"
    assert Path(one.path).parents[1] == tmp_path / "remote"
    assert one != other
    assert not one.exists_sync()
    monkeypatch.delenv("PENSTOCK_REMOTE")
    one, other = kind.new_remote("name.jsonl"), kind.new_remote("name.jsonl")
    assert Path(one.path).is_relative_to(tmp_path / "cache")
    assert Path(one.path).name == "name.jsonl"
    assert one != other
    write(one, [1])
    assert records(one) == [1]


def test_without_any_setting_a_new_remote_lies_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PENSTOCK_REMOTE", "PENSTOCK_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Path(JsonlFile.new_remote("a.jsonl").path).is_relative_to(tmp_path)


@both_doors
def test_a_file_says_whether_it_exists_and_how_large_it_is(door: str, tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "a.jsonl")
    assert call(file, "exists", door) is False
    with pytest.raises(FileNotFoundError) as caught:
        call(file, "size", door)
    assert str(tmp_path / "a.jsonl") in str(caught.value)
    (tmp_path / "a.jsonl").write_bytes(b"12345")
    assert call(file, "exists", door) is True
    assert call(file, "size", door) == 5
    assert call(JsonlFile(tmp_path), "exists", door) is False


@both_doors
def test_a_file_is_deleted(door: str, tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "a.jsonl")
    write(file, [1])
    assert call(file, "delete", door) is None
    assert names_in(tmp_path) == []
    with pytest.raises(FileNotFoundError) as caught:
        call(file, "delete", door)
    assert str(tmp_path / "a.jsonl") in str(caught.value)


@both_doors
def test_a_file_is_downloaded_to_a_path_or_into_a_directory(door: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    file = JsonlFile(path)
    write(file, range(100))
    assert call(file, "download", door) == str(path)
    into = tmp_path / "into"
    into.mkdir()
    assert call(file, "download", door, into) == str(into / "a.jsonl.zst")
    other = tmp_path / "new" / "b.jsonl.zst"
    assert call(file, "download", door, str(other)) == str(other)
    for copy in (into / "a.jsonl.zst", other):
        assert copy.read_bytes() == path.read_bytes()
    assert names_in(tmp_path / "new") == ["b.jsonl.zst"]
    assert call(file, "download", door, path) == str(path)
    assert records(file) == list(range(100))
    with pytest.raises(FileNotFoundError):
        call(JsonlFile(tmp_path / "missing.jsonl"), "download", door, tmp_path / "copy.jsonl")
    assert not (tmp_path / "copy.jsonl").exists()


def test_opened_for_reading_it_is_a_seekable_binary_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"line 1\nline 2\nrest")
    with JsonlFile(tmp_path / "a.jsonl").open_sync() as file:
        assert file.readable()
        assert file.seekable()
        assert file.readline() == b"line 1\n"
        assert file.tell() == 7
        assert file.read(4) == b"line"
        assert file.seek(-4, 2) == 14
        assert file.read() == b"rest"
        assert file.read() == b""
        file.seek(0)
        assert list(file) == [b"line 1\n", b"line 2\n", b"rest"]
        with pytest.raises(ValueError, match="-1"):
            file.seek(-1)
    assert file.closed
    with JsonlFile(tmp_path / "a.jsonl").open_sync("rb") as file:
        assert file.read() == b"line 1\nline 2\nrest"


def test_the_stored_bytes_of_a_compressed_file_are_opened_as_they_are(tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "a.jsonl.zst")
    write(file, [1])
    with file.open_sync("rb") as stored:
        assert stored.read() == (tmp_path / "a.jsonl.zst").read_bytes()


def test_opened_for_writing_it_appears_at_the_end(tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "new" / "a.jsonl")
    with file.open_sync("wb") as opened:
        assert opened.write(b"[1]\n") == 4
        opened.write(b"[2]\n")
        assert not file.exists_sync()
    assert records(file) == [[1], [2]]
    with pytest.raises(LookupError), file.open_sync("wb") as opened:  # noqa: PT012
        opened.write(b"[3]\n")
        raise LookupError
    assert records(file) == [[1], [2]]
    assert names_in(tmp_path / "new") == ["a.jsonl"]
    with pytest.raises(ValueError, match="closed"):
        opened.write(b"more")


def test_an_open_file_is_awaited(tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "a.jsonl")

    async def use() -> None:
        async with file.open("wb") as opened:
            assert await opened.write(b"line 1\nrest") == 11
            assert not await file.exists()
        async with file.open() as opened:
            assert await opened.readline() == b"line 1\n"
            assert await opened.read(2) == b"re"
            assert await opened.seek(0) == 0
            assert await opened.read() == b"line 1\nrest"
        with pytest.raises(LookupError):  # noqa: PT012 (the block is what fails)
            async with file.open("wb") as opened:
                await opened.write(b"new")
                raise LookupError

    asyncio.run(use())
    assert (tmp_path / "a.jsonl").read_bytes() == b"line 1\nrest"
    assert names_in(tmp_path) == ["a.jsonl"]


@pytest.mark.parametrize("mode", ["r", "w", "ab", "r+b", "", "rt"])
def test_another_mode_is_a_value_error(mode: Any, tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "a.jsonl")
    with pytest.raises(ValueError, match="expected 'rb' or 'wb'"):
        file.open_sync(mode)

    async def use() -> None:
        async with file.open(mode):
            pass

    with pytest.raises(ValueError, match="expected 'rb' or 'wb'"):
        asyncio.run(use())


@pytest.mark.parametrize("kind", ["records", "batches", "arrow_batches"])
def test_a_directory_in_the_place_of_a_file_is_named(kind: str, tmp_path: Path) -> None:
    method: Callable[[], Any] = getattr(JsonlFile(tmp_path), f"iter_{kind}_sync")
    with pytest.raises(OSError, match="it is a directory") as caught:
        next(method())
    assert str(tmp_path) in str(caught.value)
