from __future__ import annotations

import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import (
    MissingExtraError,
    ObjectNotFoundError,
    OptionError,
    StorageError,
    StoragePermissionError,
    StorageTimeoutError,
)
from penstock.jsonl import JsonlDir
from penstock.storage import Meter, StorageOptions, join, locate, match, metered
from tests.storage.store_contract import FilledPlace, ListContract, Place, ReadOnlyContract
from tests.storage.toy_hub import ToyHub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.storage import OpenFile


@pytest.fixture
def hub() -> Iterator[dict[str, bytes]]:
    """The files of a file system that fsspec did not know before."""
    fsspec.register_implementation("toyhub", ToyHub, clobber=True)
    ToyHub.reset()
    yield ToyHub.files
    ToyHub.reset()


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    files = fsspec.filesystem("memory")
    files.store.clear()
    yield files
    files.store.clear()


class TestMemory(ListContract, ReadOnlyContract):
    @pytest.fixture
    def place(self, memory: fsspec.AbstractFileSystem) -> Place:
        return FilledPlace(*locate("memory://some/place"), memory.pipe_file)


class TestLocalFilesThroughFsspec(ListContract, ReadOnlyContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        files = fsspec.filesystem("local", auto_mkdir=True)
        return FilledPlace(*locate(f"local://{tmp_path}/place"), files.pipe_file)


class TestHub(ListContract, ReadOnlyContract):
    @pytest.fixture
    def place(self, hub: dict[str, bytes]) -> Place:
        return FilledPlace(*locate("toyhub://datasets/some/place"), hub.__setitem__)

    def test_what_is_there_is_described_and_read(self, place: Place) -> None:
        """As in the contract, but for the time, which a hub may not tell."""
        entry = place.store.entry(place.publish("a.jsonl", b"one\ntwo\n"))
        assert (entry.size, entry.modified, len(entry.version or "")) == (8, 0.0, 64)
        assert place.read(entry.name) == b"one\ntwo\n"


def opened(url: str, **options: object) -> OpenFile:
    store, name = locate(url, StorageOptions(options))
    return store.open(name)


def listed(url: str) -> list[str]:
    return sorted(entry.name for entry in match(url)[1])


def test_a_file_at_the_top_lies_in_a_folder(memory: fsspec.AbstractFileSystem) -> None:
    for name in ("a.jsonl", "d/b.jsonl", "d/e/c.jsonl"):
        memory.pipe_file(name, b"content")
    for url, shown in {
        "memory://a.jsonl": "memory://./a.jsonl", "memory:///a.jsonl": "memory:///./a.jsonl",
        "memory://d/b.jsonl": "memory://d/b.jsonl", "memory://": "memory://.",
    }.items():  # fmt: skip
        store, name = locate(url)
        assert store.path(name) == shown
        assert locate(shown) == (store, name)
    assert opened("memory://./a.jsonl").read_at(0, 7) == b"content"
    store, name = locate("memory://")
    assert sorted(entry.name for entry in store.list(name)) == ["./a.jsonl"]
    assert listed("memory://*.jsonl") == ["./a.jsonl"]
    assert listed("memory://**/*.jsonl") == ["./a.jsonl", "./d/b.jsonl", "./d/e/c.jsonl"]
    assert listed("memory://d/**/*.jsonl") == ["d/b.jsonl", "d/e/c.jsonl"]
    with pytest.raises(ObjectNotFoundError, match="no file matches"):
        match("memory://d/*.csv")
    for top in ("memory://", "memory://."):
        (file,) = JsonlDir(top).shards_sync()
        assert (file.name, file.size_sync()) == ("a.jsonl", 7)


@given(st.text(min_size=1, max_size=20).filter(lambda text: "::" not in text and "@" not in text))
def test_a_url_has_one_normal_form(text: str) -> None:
    store, name = locate(f"memory://{text}")
    assert locate(store.path(name)) == (store, name)
    assert locate(join(store.path(name), "x")) == (store, f"{name.rstrip('/')}/x")


def test_an_archive_is_named_by_an_option(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("a.jsonl", "one")
        archive.writestr("d/b.jsonl", "two")
    options = StorageOptions({"fo": str(tmp_path / "data.zip")})
    store, entries = match("zip://**/*.jsonl", options)
    assert sorted(entry.name for entry in entries) == ["./a.jsonl", "./d/b.jsonl"]
    assert all(entry.version and entry.modified for entry in entries)
    assert store.open("./d/b.jsonl").read_at(1, 2) == b"wo"
    with pytest.raises(OptionError, match=r"chained URLs are not read.*'fo'"):
        locate(f"zip://a.jsonl::{tmp_path}/data.zip")


def test_a_read_fetches_its_range_and_no_more(hub: dict[str, bytes]) -> None:
    hub["d/a"] = bytes(range(256)) * 40_000
    with metered(Meter()) as meter:
        assert opened("toyhub://d/a").read_at(1_000_000, 10) == hub["d/a"][1_000_000:1_000_010]
    assert ToyHub.fetched == [(1_000_000, 1_000_010)]
    assert meter is not None
    assert (meter.requests, meter.bytes) == (1, 10)


def test_options_reach_the_file_system_as_they_were_given(hub: dict[str, bytes]) -> None:
    hub["d/a"] = b""
    nested = {"password": "hush", "ports": [1, 2]}
    options = {"token": False, "retries": 3, "target_options": nested, "cache_limit": "1GB"}
    opened("toyhub://d/a", **options)
    assert ToyHub.given == {"token": False, "retries": 3, "target_options": nested}
    assert "hush" not in repr(StorageOptions(options))


def test_a_broken_connection_is_tried_again_and_other_errors_are_named(
    hub: dict[str, bytes],
) -> None:
    hub["d/a"] = b"content"
    file = opened("toyhub://d/a", token="hush-hush")
    ToyHub.faults[:] = [ConnectionResetError(), BrokenPipeError()]
    assert file.read_at(0, 7) == b"content"
    for fault, kind in (
        (TimeoutError("slow"), StorageTimeoutError),
        (PermissionError("denied"), StoragePermissionError),
        (KeyError("token=hush-hush\nlong text"), StorageError),
    ):
        ToyHub.faults[:] = [fault]
        where = r"cannot read toyhub://d/a \(bytes 0 to 7\): "
        with pytest.raises(kind, match=where + type(fault).__name__) as raised:
            file.read_at(0, 7)
        assert "hush-hush" not in str(raised.value)
        assert raised.value.__context__ is None
    store, name = locate("toyhub://d")
    ToyHub.faults[:] = [OSError("half a listing is none")]
    with pytest.raises(StorageError, match=r"cannot list toyhub://\./d: OSError: half a listing"):
        list(store.list(name))


def test_what_may_be_wrong_is_refused(hub: dict[str, bytes]) -> None:
    hub["d/a"] = b"content"
    file = opened("toyhub://d/a")
    ToyHub.extra = 3  # As a server that ignores ranges.
    with pytest.raises(StorageError, match="ignores ranges"):
        file.read_at(0, 4)
    ToyHub.extra, ToyHub.size_is_known = 0, False
    with pytest.raises(StorageError, match="does not know its size"):
        opened("toyhub://d/a")
    with pytest.raises(ObjectNotFoundError, match="directory"):
        opened("toyhub://d/")
    store, name = locate("toyhub://d/")
    for outside in ("d/../../secret", "e/other"):
        ToyHub.listed_outside, ToyHub.size_is_known = outside, True
        with pytest.raises(StorageError, match=f"cannot list .*{outside.rpartition('/')[2]}"):
            list(store.list(name))


@pytest.mark.parametrize("url", ["xyz://a", "s4://a", "://a", "a b://c", "memory+x://a"])
def test_an_unknown_protocol_gets_a_list_of_those_that_are_known(url: str) -> None:
    with pytest.raises(OptionError, match=r"file://, s3://.* https://.*fsspec: .*hf.*memory.*zip"):
        locate(url)


@pytest.mark.parametrize(
    ("url", "needs"),
    [
        ("zip://a.jsonl", "fo"),
        ("tar://a.jsonl", "fo"),
        ("reference://a.jsonl", "fo"),
        ("github://a/b.jsonl", "org.*repo"),
        ("dbfs://a.jsonl", "instance.*token"),
    ],
)
def test_options_that_a_protocol_needs_are_named(url: str, needs: str) -> None:
    store, name = locate(url)
    with pytest.raises(OptionError, match=rf"{url.partition('/')[0]}// needs {needs}.*options="):
        store.entry(name)


@pytest.mark.parametrize("scheme", ["simplecache", "filecache", "dir", "generic", "async_wrapper"])
def test_a_layer_over_another_place_is_refused(scheme: str) -> None:
    with pytest.raises(OptionError, match=f"{scheme}:// is a layer .*Name that place itself"):
        locate(f"{scheme}://a.jsonl")


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(OptionError, match="storage_options=") as raised:
        locate("sftp://user:secret@host/a")
    assert "secret" not in str(raised.value)
    locate("sftp://user@host/a")


def test_a_package_that_an_implementation_needs_is_named() -> None:
    fsspec.register_implementation("toygone", "no_such_package.Files", errtxt="Install it")
    with pytest.raises(MissingExtraError, match=r"toygone://.*pip install no_such_package"):
        opened("toygone://d/a")


def test_without_fsspec_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['fsspec'] = None\n"
        "from penstock.storage import locate\n"
        "try: locate('hf://datasets/a/b')\n"
        "except ModuleNotFoundError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "hf://" in done.stdout
    assert "pip install 'penstock[fsspec]'" in done.stdout


def test_a_hub_is_asked_by_its_own_library_and_its_failure_is_told() -> None:
    """No name is resolved here; a port on which nothing listens stands for the hub."""
    from huggingface_hub import HfFileSystem

    assert fsspec.get_filesystem_class("hf") is HfFileSystem
    options = {"endpoint": "http://127.0.0.1:9", "token": False}
    store, name = locate("hf://datasets/someone/some/data.jsonl", StorageOptions(options))
    with pytest.raises(StorageError, match=r"cannot read hf://datasets/someone.*Connect"):
        store.entry(name)
    with pytest.raises(StorageError, match=r"cannot list hf://datasets/someone.*Connect"):
        list(store.list("datasets/someone/some", recursive=True))


def test_a_hub_that_is_to_work_offline_is_not_asked_again(hub: dict[str, bytes]) -> None:
    from huggingface_hub.errors import OfflineModeIsEnabled

    hub["d/a"] = b"content"
    file = opened("toyhub://d/a")
    ToyHub.faults[:] = [OfflineModeIsEnabled("offline mode is enabled."), ConnectionResetError()]
    with pytest.raises(StorageError, match=r"OfflineModeIsEnabled: offline mode is enabled\.$"):
        file.read_at(0, 7)
    assert file.read_at(0, 7) == b"content"


def test_a_forked_child_of_a_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    code = (
        "import os, sys\n"
        "from penstock.storage import locate\n"
        "store, name = locate(f'local://{sys.argv[1]}/a')\n"
        "file = store.open(name)\n"
        "print(file.read_at(0, 7), flush=True)\n"
        "if os.fork(): os.wait()\n"
        "else:\n"
        "    try: file.read_at(0, 7)\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("b'content'\nUnsafeForkError this process was forked")
