"""Names, paths and metadata that a stranger may have written."""

from __future__ import annotations

import os
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CorruptFileError
from penstock.storage import (
    LocalStore,
    StorageOptions,
    fetch_metadata,
    is_below,
    is_plain_name,
    leads_through_link,
    locate,
    open_regular,
    path_below,
    read_metadata,
    remove_special,
    remove_tree,
)
from tests.forged import put_odd, tree

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.s3_server import S3Server

letters = st.text(st.sampled_from("a./\0\n:~"), max_size=12)
names = letters | st.text(max_size=20)


@given(names)
def test_a_plain_name_is_one_entry_of_its_folder(name: str) -> None:
    if is_plain_name(name):
        assert os.path.split(name) == ("", name)
        assert os.path.normpath(f"/base/{name}") == f"/base/{name}"


@given(names, st.sampled_from(["/data", "/data/", "/", "s3://bucket/data", "gs://bucket"]))
def test_a_path_below_a_base_never_leaves_it(name: str, base: str) -> None:
    path = path_below(base, name)
    if path is None:
        assert not is_plain_name(name)
        return
    assert ".." not in path.split("/")  # Behind a link that is another folder than it seems.
    root = os.path.normpath(base).rstrip("/")
    assert os.path.normpath(path).startswith(f"{root}/")
    assert "\0" not in path


@given(names, st.sampled_from(["/data", "s3://bucket/data"]))
def test_what_is_below_by_its_name_is_below_by_its_path(name: str, base: str) -> None:
    path = path_below(base, name)
    assert path is None or is_below(base, path)
    assert not is_below(base, f"{base}/../{name}")
    assert not is_below(base, f"{base}x/{name}")
    assert not is_below(base, base)


@given(parts=st.lists(st.sampled_from(["real", "link", "gone", "file"]), min_size=1, max_size=4))
def test_a_path_leads_through_a_link_where_one_of_its_parts_is_one(
    parts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.mktemp("base")
    folder, expected = base, False
    for part in parts:
        path = folder / part
        if part == "real":
            path.mkdir()
        elif part == "link":
            (base / "target").mkdir(exist_ok=True)
            path.symlink_to(base / "target")
            expected = True
        elif part == "file":
            path.touch()
        if part != "real":
            break
        folder = path
    assert leads_through_link(str(base), "/".join([str(base), *parts])) == expected


@given(parts=st.lists(st.sampled_from(["real", "link", "..", "."]), max_size=6))
def test_no_path_below_a_base_resolves_elsewhere_unless_it_leads_through_a_link(
    parts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("root")
    (root / "mine" / "inner").mkdir(parents=True)
    (root / "base" / "real" / "real").mkdir(parents=True)
    (root / "base" / "link").symlink_to(root / "mine" / "inner")
    base, name = str(root / "base"), "/".join([*parts, "x"])
    path = f"{base}/{name}"
    if not leads_through_link(base, path) and path_below(base, name) is not None:
        assert os.path.realpath(path).startswith(f"{base}/")
    if ".." in parts:
        assert leads_through_link(base, path)
        assert path_below(base, name) is None


def test_a_folder_that_cannot_be_looked_into_may_hold_a_link(tmp_path: Path) -> None:
    closed = "x" * 300  # A name that no lookup takes: it fails for every user.
    assert leads_through_link(str(tmp_path), f"{tmp_path}/{closed}/a")


def test_the_base_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real" / "a").mkdir(parents=True)
    (tmp_path / "base").symlink_to(tmp_path / "real")
    assert not leads_through_link(f"{tmp_path}/base", f"{tmp_path}/base/a")
    assert leads_through_link(str(tmp_path), f"{tmp_path}/base/a")


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_regular_file_is_no_metadata(kind: str, tmp_path: Path) -> None:
    put_odd(tmp_path / "meta.json", kind)
    for read in (read_metadata, open_regular):
        with pytest.raises(CorruptFileError, match=r"meta\.json is not a regular file"):
            read(tmp_path / "meta.json")
    with pytest.raises(OSError, match=r"regular file|directory"):
        fetch_metadata(LocalStore(), f"{tmp_path}/meta.json")


def test_metadata_of_a_terabyte_is_not_read(tmp_path: Path) -> None:
    put_odd(tmp_path / "meta.json", "sparse")
    for read in (read_metadata, lambda path: fetch_metadata(LocalStore(), str(path))):
        with pytest.raises(CorruptFileError, match=r"1,099,511,627,776 bytes; metadata of more"):
            read(tmp_path / "meta.json")


def test_metadata_takes_the_memory_of_its_size_and_not_of_the_largest(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_bytes(b"{}" * 50)
    tracemalloc.start()
    try:
        assert len(read_metadata(tmp_path / "meta.json")) == 100
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_metadata_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "meta.json"
    path.write_bytes(b"{}\n")
    (tmp_path / "link").symlink_to(path)
    assert read_metadata(path) == read_metadata(tmp_path / "link", largest=3) == b"{}\n"
    assert fetch_metadata(LocalStore(), str(path)) == b"{}\n"
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert read_metadata("meta.json", dir_fd=folder) == b"{}\n"
    finally:
        os.close(folder)
    with pytest.raises(CorruptFileError, match="more than 2"):
        read_metadata(path, largest=2)
    with pytest.raises(FileNotFoundError):
        read_metadata(tmp_path / "none")


def test_metadata_in_a_store_has_a_limit_too(s3_server: S3Server, bucket: str) -> None:
    s3_server.put(bucket, "index/meta.json", b"{}")
    store, name = locate(
        f"s3://{bucket}/index/meta.json", StorageOptions(s3_server.storage_options)
    )
    assert fetch_metadata(store, name) == fetch_metadata(store, name, store.entry(name)) == b"{}"
    with pytest.raises(CorruptFileError, match="2 bytes; metadata of more than 1"):
        fetch_metadata(store, name, largest=1)


def test_of_a_link_only_the_link_is_removed(tmp_path: Path) -> None:
    mine, folder = tmp_path / "mine", tmp_path / "folder"
    mine.mkdir()
    (mine / "a").touch()
    before = tree(mine)
    (tmp_path / "link").symlink_to(mine)
    folder.mkdir()
    (folder / "link").symlink_to(mine)
    for path in (tmp_path / "link", folder, tmp_path / "none"):
        remove_tree(path)
    assert tree(mine) == before
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_folder_that_is_found_again_keeps_files_and_folders_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    put_odd(tmp_path / "folder", "folder")
    put_odd(tmp_path / "pipe", "pipe")
    put_odd(tmp_path / "device", "device")
    put_odd(tmp_path / "loop", "loop")
    remove_special(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
