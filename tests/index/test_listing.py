from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.errors import ObjectNotFoundError, OptionError, TruncatedFileError
from penstock.index import LINES, create_default_jsonl_indexer, list_files

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('{"id": 1}\n')


def names(folder: Path, pattern: str) -> list[str]:
    listing = list_files(f"{folder}/{pattern}", LINES.endings)
    return [listing.relative(found) for found in listing.files]


def test_a_pattern_passes_over_what_is_no_data(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", "b/c.jsonl", "b/_d.jsonl", ".e/f.jsonl", "notes.txt")
    penstock.open(tmp_path)  # Puts an index there.
    assert names(tmp_path, "**") == ["a.jsonl", "b/c.jsonl"]
    assert names(tmp_path, "*/*.jsonl") == ["b/c.jsonl"]
    assert names(tmp_path, "[ab].jsonl") == ["a.jsonl"]
    assert len(penstock.open(f"{tmp_path}/**")) == 2
    with pytest.raises(ObjectNotFoundError, match="no file"):
        names(tmp_path, "*.nope")


def test_the_base_of_a_pattern_does_not_depend_on_its_matches(tmp_path: Path) -> None:
    write(tmp_path, "x/a.jsonl")
    pattern = f"{tmp_path}/**/*.jsonl"
    assert penstock.open(pattern)[0] == {"id": 1}
    write(tmp_path, "y/b.jsonl")
    assert len(penstock.open(pattern, refresh="never")) == 1  # Not stale: only new files came.
    assert len(penstock.open(pattern)) == 2


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(tmp_path: Path) -> None:
    write(tmp_path, "a[1].jsonl", "a1.jsonl")
    assert penstock.open(tmp_path / "a[1].jsonl").files == [str(tmp_path / "a[1].jsonl")]


def test_lists_of_paths_keep_their_order_and_name_each_file_once(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", "b/c.jsonl")
    source = penstock.open([tmp_path / "b", tmp_path / "a.jsonl"])
    assert source.files == [str(tmp_path / "b/c.jsonl"), str(tmp_path / "a.jsonl")]
    with pytest.raises(OptionError, match="more than once"):
        penstock.open([tmp_path / "b", tmp_path / "b/c.jsonl"])
    with pytest.raises(OptionError, match="empty list"):
        list_files([], LINES.endings)
    write(tmp_path, "notes.txt")
    with pytest.raises(OptionError, match="another format"):
        penstock.open([tmp_path / "a.jsonl", tmp_path / "notes.txt"])


def test_a_link_back_to_its_own_folder_doubles_no_record(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", "b/c.jsonl")
    (tmp_path / "loop").symlink_to(".")
    (tmp_path / "b" / "again").symlink_to("..")
    assert names(tmp_path, "**/*.jsonl") == ["a.jsonl", "b/c.jsonl"]
    assert len(penstock.open(f"{tmp_path}/**/*.jsonl")) == len(penstock.open(tmp_path)) == 2


def test_links_to_files_and_folders_elsewhere_are_read(tmp_path: Path) -> None:
    write(tmp_path, "blobs/0123", "more/b.jsonl")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.jsonl").symlink_to("../blobs/0123")
    (tmp_path / "d" / "more").symlink_to("../more")
    assert len(penstock.open(f"{tmp_path}/d/**/*.jsonl")) == 2
    assert len(penstock.open(tmp_path / "d")) == 2


@pytest.mark.parametrize("name", ["b.jsonl", "b.jsonl.zst", "b.csv", "b.parquet"])
@pytest.mark.parametrize("what", ["", "/*"], ids=["folder", "pattern"])
def test_a_link_that_leads_nowhere_is_no_empty_file(tmp_path: Path, name: str, what: str) -> None:
    if "jsonl" in name:
        write(tmp_path, "a.jsonl")
    (tmp_path / name).symlink_to("nowhere")
    (tmp_path / "notes.txt").symlink_to("nowhere")  # No data.
    with pytest.raises(ObjectNotFoundError, match=f"{name}: it is a link to nowhere"):
        penstock.open(f"{tmp_path}{what}")


@pytest.mark.parametrize("ending", [".zst", ".gz"])
@pytest.mark.parametrize("options", [{}, {"validate": True}], ids=["plain", "checked"])
def test_a_compressed_file_of_no_bytes_is_not_indexed(
    tmp_path: Path, ending: str, options: dict[str, bool]
) -> None:
    write(tmp_path, "a.jsonl")
    (tmp_path / f"b.jsonl{ending}").touch()
    with pytest.raises(TruncatedFileError, match=f"b.jsonl{ending} is cut off"):
        create_default_jsonl_indexer(tmp_path, progress=False, **options)()  # type: ignore[arg-type]
