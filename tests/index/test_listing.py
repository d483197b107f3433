from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.errors import ObjectNotFoundError, OptionError
from penstock.index import JSONL, list_files

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('{"id": 1}\n')


def names(folder: Path, pattern: str) -> list[str]:
    listing = list_files(f"{folder}/{pattern}", JSONL)
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
    assert len(penstock.open(pattern)) == 1  # Not stale: only new files came.


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
        list_files([], JSONL)
    write(tmp_path, "notes.txt")
    with pytest.raises(OptionError, match="another format"):
        penstock.open([tmp_path / "a.jsonl", tmp_path / "notes.txt"])
