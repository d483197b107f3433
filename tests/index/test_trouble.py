"""Indexes that are stale, cut, corrupt, foreign or gone: each a named error with a way out."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

import penstock
from penstock.datasets import JsonlDataset
from penstock.errors import (
    CorruptFileError,
    CorruptIndexError,
    MalformedLineError,
    ObjectNotFoundError,
    StaleIndexError,
)
from penstock.index import create_default_jsonl_indexer
from penstock.jsonl import JsonlFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    for name in "abc":
        (data / f"{name}.jsonl").write_text("".join(f'{{"{name}": {n}}}\n' for n in range(100)))
    create_default_jsonl_indexer(data)()
    return data


def opened(folder: Path) -> JsonlDataset:
    return JsonlDataset.create_from_index_on_filesystem(folder)


def edit_meta(folder: Path, **changes: object) -> None:
    path = folder / "index" / "meta.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def touch(path: Path) -> None:
    os.utime(path, (1, 1))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda f: (f / "b.jsonl").write_text('{"b": 0}\n'), "b.jsonl.*shrank"),
        (lambda f: (f / "b.jsonl").write_text("x" * 5000), "b.jsonl.*bytes then"),
        (lambda f: (f / "b.jsonl").open("a").write("{}\n"), "b.jsonl.*grew.*--update"),
        (lambda f: (f / "b.jsonl").unlink(), "b.jsonl.*gone"),
        (lambda f: (f / "b.jsonl").rename(f / "moved.jsonl"), "b.jsonl .is gone"),
    ],
)
@pytest.mark.parametrize("door", [opened, penstock.open])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_stale_index_names_the_file_and_the_command(
    change: Callable[[Path], object], told: str, door: Callable[[Path], object], folder: Path
) -> None:
    change(folder)
    with pytest.raises(StaleIndexError, match=told) as raised:
        door(folder)
    assert f"penstock index {folder} --" in str(raised.value)


def test_same_bytes_at_another_time_are_no_change_and_others_are(folder: Path) -> None:
    touch(folder / "b.jsonl")
    assert opened(folder)[100] == {"b": 0}
    text = (folder / "b.jsonl").read_text()
    (folder / "b.jsonl").write_text(text.replace('"b": 0', '"b": 9'))
    touch(folder / "b.jsonl")
    with pytest.raises(StaleIndexError, match="equal size"):
        opened(folder)


def test_new_files_do_not_make_an_index_stale(folder: Path) -> None:
    (folder / "d.jsonl").write_text("{}\n")
    assert len(opened(folder)) == len(penstock.open(folder)) == 300


@pytest.mark.parametrize(
    "read",
    [lambda d: d[150], lambda d: d[[150, 199]], lambda d: d.raw(199)],
    ids=["one", "many", "raw"],
)
def test_a_file_that_shrinks_under_us_is_a_named_error_not_a_crash(
    read: Callable[[JsonlDataset], object], folder: Path
) -> None:
    dataset = opened(folder)
    assert dataset[100] == {"b": 0}
    os.truncate(folder / "b.jsonl", 10)
    with pytest.raises(StaleIndexError, match=r"b\.jsonl shrank"):
        read(dataset)
    assert dataset[0] == {"a": 0}


def test_a_file_that_is_replaced_after_opening_is_seen_when_it_is_first_read(folder: Path) -> None:
    dataset = opened(folder)
    (folder / "b.jsonl").write_text("x" * len((folder / "b.jsonl").read_text()))
    (folder / "c.jsonl").unlink()
    with pytest.raises(StaleIndexError, match=r"b\.jsonl changed"):
        dataset[100]
    with pytest.raises(StaleIndexError, match=r"c\.jsonl is gone"):
        dataset[200]


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda f: os.truncate(f / "sample_locations.bin", 100), "cut off or damaged"),
        (lambda f: os.truncate(f / "sample_locations.bin", 240), "meta.json names 300"),
        (lambda f: (f / "meta.json").write_text("{"), "meta.json is damaged"),
        (lambda f: (f / "meta.json").write_text("[]"), "not the meta.json of an index"),
        (lambda f: (f / "file_location.txt").write_text("a.jsonl\n"), "holds 300 in 1"),
        (lambda f: os.truncate(f / "file_location.txt", 21),
         r"names 'c\.jsonl', where file_location\.txt has 'c\.jso'\. Build"),
        (lambda f: edit_meta(f.parent, version=99), "newer Penstock"),
        (lambda f: edit_meta(f.parent, runs=[{"file": 7, "records": 300, "fingerprint": ""}]),
         "does not list"),
        (lambda f: (f / "sample_schema.json").write_text("{}"), "extra arrays"),
    ],
)  # fmt: skip
def test_a_damaged_index_is_told_from_a_good_one(
    harm: Callable[[Path], object], told: str, folder: Path
) -> None:
    harm(folder / "index")
    with pytest.raises(CorruptIndexError, match=told) as raised:
        opened(folder)
    assert isinstance(raised.value, ValueError)


def test_rows_that_point_nowhere_are_refused(folder: Path) -> None:
    rows = np.fromfile(folder / "index" / "sample_locations.bin", "<u8").reshape(-1, 3)
    rows[0, 0] = 99
    rows[1, 1] = 1 << 60
    rows.tofile(folder / "index" / "sample_locations.bin")
    dataset = opened(folder)
    with pytest.raises(CorruptIndexError, match="file 99"):
        dataset[0]
    with pytest.raises(StaleIndexError, match="record ends at"):
        dataset[1]


@pytest.mark.parametrize("name", ["../outside.jsonl", "/etc/passwd", "a/../../x", "s3://b/x"])
def test_a_path_that_leaves_the_base_folder_is_refused(name: str, folder: Path) -> None:
    (folder / "index" / "meta.json").unlink()
    (folder / "index" / "file_location.txt").write_text(f"{name}\n")
    with pytest.raises(CorruptIndexError, match="does not lie below"):
        opened(folder)


def test_a_missing_index_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match="penstock index"):
        opened(tmp_path)


def test_a_foreign_index_is_checked_by_its_last_rows(folder: Path) -> None:
    (folder / "index" / "meta.json").unlink()
    assert opened(folder)[299] == {"c": 99}
    os.truncate(folder / "b.jsonl", 300)
    with pytest.raises(StaleIndexError, match=r"b\.jsonl has 300 bytes"):
        opened(folder)
    (folder / "b.jsonl").unlink()
    with pytest.raises(StaleIndexError, match=r"b\.jsonl is gone"):
        opened(folder)


def test_an_index_of_another_kind_is_not_overwritten(folder: Path) -> None:
    edit_meta(folder, kind="tokens")
    with pytest.raises(ValueError, match="output_base_path="):
        create_default_jsonl_indexer(folder, overwrite=True)()
    with pytest.raises(CorruptIndexError, match="one of tokens"):
        penstock.open(folder)


def test_a_line_that_does_not_parse_names_file_offset_and_record(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n{"a": oops}\n{"a": NaN}\n')
    create_default_jsonl_indexer(tmp_path)()
    dataset = opened(tmp_path)
    for read in (lambda: dataset[1], lambda: dataset[[0, 1]], lambda: dataset.arrow([0, 1])):
        with pytest.raises(MalformedLineError, match=r"record 1 .*a\.jsonl.*at byte 9.*oops") as it:
            read()
        assert it.value.path == str(tmp_path / "a.jsonl")
    assert str(dataset[2]["a"]) == "nan"


def test_a_damaged_zstd_frame_is_named(tmp_path: Path) -> None:
    with JsonlFile(tmp_path / "a.jsonl.zst").writer_sync(frame_bytes=1000) as writer:
        writer.write_many([{"id": n} for n in range(1000)])
    create_default_jsonl_indexer(tmp_path)()
    dataset = opened(tmp_path)
    data = bytearray((tmp_path / "a.jsonl.zst").read_bytes())
    data[100] ^= 0xFF
    time = (tmp_path / "a.jsonl.zst").stat().st_mtime_ns
    (tmp_path / "a.jsonl.zst").write_bytes(data)
    os.utime(tmp_path / "a.jsonl.zst", ns=(time, time))
    with pytest.raises(CorruptFileError, match="damaged"):
        dataset[0]
    assert dataset[999] == {"id": 999}
