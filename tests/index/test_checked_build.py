"""Indexes whose records were all read: what is in them, and what an update makes of them."""

from __future__ import annotations

import gzip
import json
import os
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

import penstock
from penstock.errors import (
    CorruptFileError,
    CorruptIndexError,
    ObjectNotFoundError,
    OptionError,
    StaleIndexError,
)
from penstock.index import (
    IndexStore,
    create_default_jsonl_indexer,
    read_bad_lines,
    read_profile,
)
from penstock.jsonl import JsonlFile
from penstock.storage import _untrusted
from tests.index.checked import bad_of, build, hidden, meta_of, profile_of, rows_of

if TYPE_CHECKING:
    from pathlib import Path

TEXT = (
    b'\xef\xbb\xbf{"id": 0}\r\n\n{oops\n[1]\r\n {"id": 1, "n": NaN}\n\t\n'
    b'{"id": 2, "s": "\\ud800"}\n'
    b'{"id": 3, "t": "\xff"}\n{"id": %d}' % 10**30
)
BAD = [("a.jsonl", 3, 15, 6), ("a.jsonl", 4, 21, 5), ("a.jsonl", 8, 74, 20)]


@pytest.mark.parametrize(
    ("largest", "told"),
    [
        (900, r"meta\.json would have 2,\d+ bytes.*names 9 files: index fewer at once"),
        (1, r"profile\.json would have .* bytes, and metadata of more than 1 .*fewer columns"),
    ],
)
def test_metadata_that_could_not_be_read_again_is_not_written(
    largest: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        (tmp_path / f"{number}.jsonl").write_text('{"id": 1}\n')
    build(tmp_path)
    before = meta_of(tmp_path)
    monkeypatch.setattr(_untrusted, "LARGEST_METADATA", largest)
    with pytest.raises(OptionError, match=told):
        create_default_jsonl_indexer(tmp_path, profile=largest == 1, overwrite=True)()
    assert meta_of(tmp_path) == before
    assert hidden(tmp_path) == []


def test_bad_lines_are_no_samples_and_are_told_with_their_places(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(TEXT)
    build(tmp_path)
    plain, fingerprint = rows_of(tmp_path), IndexStore(tmp_path).load().fingerprint
    create_default_jsonl_indexer(tmp_path, validate=True, profile=True, overwrite=True)()
    assert bad_of(tmp_path) == BAD
    assert rows_of(tmp_path) == [row for row in plain if row[1] not in {15, 21, 74}]
    source = penstock.open(tmp_path)
    assert [record["id"] for record in source] == [0, 1, 2, 10**30]
    assert source.fingerprint != fingerprint
    meta = meta_of(tmp_path)
    assert (meta["validated"], meta["profiled"], meta["files"][0]["bad_lines"]) == (True, True, 3)
    (first, *_) = (tmp_path / "index" / "bad_lines.ndjson").read_text().splitlines()
    assert json.loads(first) == {
        "file": "a.jsonl", "line": 3, "offset": 15, "bytes": 6,
        "reason": "Expecting property name enclosed in double quotes at character 2 of the line",
    }  # fmt: skip
    assert profile_of(tmp_path) == read_profile(tmp_path / "index")
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("unit_bytes", [9, 1000])
def test_the_size_of_units_changes_nothing(unit_bytes: int, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(TEXT)
    (tmp_path / "b.jsonl").write_bytes(b"")
    (tmp_path / "c.jsonl").write_bytes(b'{"id": 7, "long": "' + b"x" * 300 + b'"}\n{')
    build(tmp_path, validate=True, profile=True)
    rows, bad, profile = rows_of(tmp_path), bad_of(tmp_path), profile_of(tmp_path)
    build(tmp_path, "overwrite", validate=True, profile=True, unit_bytes=unit_bytes)
    assert (rows_of(tmp_path), bad_of(tmp_path), profile_of(tmp_path)) == (rows, bad, profile)
    assert bad == [*BAD, ("c.jsonl", 2, 322, 1)]
    assert [file["path"] for file in meta_of(tmp_path)["empty"]] == ["b.jsonl"]


def test_so_do_worker_processes(tmp_path: Path) -> None:
    lines = [b'{"id": %d}\n' % n if n % 50 else b"{oops\n" for n in range(2000)]
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(TEXT))
    build(tmp_path, validate=True, profile=True)
    rows, bad, profile = rows_of(tmp_path), bad_of(tmp_path), profile_of(tmp_path)
    told: list[int] = []

    class Told:
        add = told.append

    build(
        tmp_path, "overwrite", validate=True, profile=True,
        num_workers=2, unit_bytes=4000, progress=Told(),
    )  # fmt: skip
    assert (rows_of(tmp_path), bad_of(tmp_path), profile_of(tmp_path)) == (rows, bad, profile)
    assert sum(told) == sum(path.stat().st_size for path in tmp_path.glob("*.jsonl*"))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_files_are_checked_by_their_text(suffix: str, tmp_path: Path) -> None:
    data = gzip.compress(TEXT) if suffix == ".gz" else zstandard.compress(TEXT)
    (tmp_path / f"a.jsonl{suffix}").write_bytes(data)
    build(tmp_path)
    plain = rows_of(tmp_path)
    build(tmp_path, "overwrite", validate=True, profile=True)
    assert [place[1:] for place in bad_of(tmp_path)] == [place[1:] for place in BAD]
    assert rows_of(tmp_path) == [row for row in plain if row[1] not in {15, 21, 74}]
    assert [record["id"] for record in penstock.open(tmp_path)] == [0, 1, 2, 10**30]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_file_ends_the_build_and_nothing_is_left(
    suffix: str, workers: int, tmp_path: Path
) -> None:
    with JsonlFile(tmp_path / "a.jsonl").writer_sync() as writer:
        writer.write({"id": 1})
    with JsonlFile(tmp_path / f"b.jsonl{suffix}").writer_sync() as writer:
        writer.write_many({"id": n, "hash": hash(str(n))} for n in range(5000))
    data = (tmp_path / f"b.jsonl{suffix}").read_bytes()
    (tmp_path / f"b.jsonl{suffix}").write_bytes(data[: len(data) // 2])
    with pytest.raises(CorruptFileError, match=r"b\.jsonl"):
        build(tmp_path, validate=True, num_workers=workers, unit_bytes=10)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", f"b.jsonl{suffix}"]


def test_a_line_of_20_megabytes_is_set_aside_unread(tmp_path: Path) -> None:
    with (tmp_path / "a.jsonl").open("wb") as file:
        file.write(b'{"id": 0}\n{"id": "' + b"x" * 20_000_000 + b'"}\n{"id": 2}\n')
    build(tmp_path, validate=True, max_line_bytes=1_000_000, unit_bytes=1 << 20)
    assert bad_of(tmp_path) == [("a.jsonl", 2, 10, 20_000_011)]
    assert next(read_bad_lines(tmp_path / "index")).reason == "longer than 1,000,000 bytes"
    assert penstock.open(tmp_path)[:] == [{"id": 0}, {"id": 2}]
    assert meta_of(tmp_path)["max_line_bytes"] == 1_000_000


@pytest.mark.parametrize("text", [b"", b"\n \n", b'{"id": 1}', b"{oops"])
def test_next_to_nothing_can_be_checked(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(text)
    build(tmp_path, validate=True, profile=True)
    assert len(penstock.open(tmp_path)) == (text == b'{"id": 1}') == profile_of(tmp_path)["records"]
    assert len(bad_of(tmp_path)) == (text == b"{oops")


def test_an_update_checks_what_is_new_and_numbers_lines_on(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"id": 0}\n\n{oops\n{"id": 1}')
    (tmp_path / "b.jsonl").write_bytes(b"[]\n")
    build(tmp_path, validate=True, profile=True, max_line_bytes=100)
    before = IndexStore(tmp_path).load()
    with (tmp_path / "a.jsonl").open("ab") as file:
        file.write(b'\n{"id": 2, "new": 1}\n\n{"id": "' + b"x" * 100 + b'"}\n')
    with (tmp_path / "b.jsonl").open("ab") as file:
        file.write(b'{"id": 3}\n7\n')
    (tmp_path / "c.jsonl").write_bytes(b"\n?\n")
    create_default_jsonl_indexer(tmp_path, update=True)()
    assert bad_of(tmp_path) == [
        ("a.jsonl", 3, 11, 6),
        ("a.jsonl", 7, 48, 111),
        ("b.jsonl", 1, 0, 3),
        ("b.jsonl", 3, 13, 2),
        ("c.jsonl", 2, 1, 2),
    ]
    after = IndexStore(tmp_path).load()
    assert after.meta is not None
    assert after.meta.fingerprint_at(2) == before.fingerprint
    assert {f.path: f.bad_lines for f in [*after.meta.files, *after.meta.empty]} == {
        "a.jsonl": 2, "b.jsonl": 2, "c.jsonl": 1,
    }  # fmt: skip
    assert [record["id"] for record in penstock.open(tmp_path)] == [0, 1, 2, 3]
    updated = profile_of(tmp_path)
    create_default_jsonl_indexer(tmp_path, update=True)()
    assert len(bad_of(tmp_path)) == 5
    build(tmp_path, "overwrite", validate=True, profile=True, max_line_bytes=100)
    assert sorted(bad_of(tmp_path)) == bad_of(tmp_path)
    assert profile_of(tmp_path) == updated


@pytest.mark.parametrize(
    ("asked", "remedy"),
    [
        ({"validate": True}, "--overwrite --validate"),
        ({"profile": True}, "--overwrite --profile"),
        ({"validate": True, "max_line_bytes": 9}, "--overwrite"),
    ],
)
def test_an_update_cannot_check_what_it_does_not_read(
    asked: dict[str, Any], remedy: str, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"{}\n")
    build(tmp_path, validate="max_line_bytes" in asked)
    with pytest.raises(OptionError, match=remedy):
        create_default_jsonl_indexer(tmp_path, update=True, **asked)()


@pytest.mark.parametrize(
    "options",
    [
        {"validate": True, "max_line_bytes": 0},
        {"validate": True, "max_line_bytes": -1},
        {"validate": True, "max_line_bytes": True},
        {"validate": True, "max_line_bytes": 1.5},
        {"profile": True, "max_line_bytes": 100},
        {"validate": True, "num_workers": -1},
        {"validate": True, "num_workers": "two"},
    ],
    ids=str,
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"{}\n")
    name = "max_line_bytes" if "max_line_bytes" in options else "num_workers"
    with pytest.raises(OptionError, match=name):
        create_default_jsonl_indexer(tmp_path, **options)


def test_a_damaged_state_is_named_and_not_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"{}\n")
    build(tmp_path, profile=True)
    (tmp_path / "b.jsonl").write_bytes(b"{}\n")
    (tmp_path / "index" / "profile.state").write_bytes(b"x")
    with pytest.raises(CorruptIndexError, match=r"profile\.state is damaged.*--overwrite"):
        build(tmp_path, "update")
    (tmp_path / "index" / "profile.json").write_text("[]")
    with pytest.raises(CorruptIndexError, match=r"profile\.json is damaged"):
        read_profile(tmp_path / "index")
    (tmp_path / "index" / "bad_lines.ndjson").write_text("[]\n")
    with pytest.raises(CorruptIndexError, match=r"bad_lines\.ndjson is damaged"):
        list(read_bad_lines(tmp_path / "index"))


def test_bad_lines_are_read_from_the_folder_of_an_index_only(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"{}\n")
    build(tmp_path)
    assert [*read_bad_lines(tmp_path / "index")] == []
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ObjectNotFoundError, match="holds no index: expected") as raised:
            read_bad_lines(folder)
        assert str(raised.value).startswith(f"{folder} ")


def columns_in(folder: Path) -> Path:
    """Put something like a column into an index, and return a file of it."""
    column = folder / "index" / "columns" / "id-int64" / "values.bin"
    column.parent.mkdir(parents=True)
    column.write_bytes(b"12345678")
    return column


@pytest.mark.parametrize("mode", ["update", "overwrite"])
@pytest.mark.parametrize("checks", [{}, {"validate": True}], ids=["plain", "validated"])
def test_columns_stay_with_the_records_that_they_are_of(
    mode: Any, checks: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"id": 0}\n')
    build(tmp_path, **checks)
    column = columns_in(tmp_path)
    number = column.stat().st_ino
    (column.parent.parent / ".on-its-way").mkdir()
    if mode == "update":
        (tmp_path / "b.jsonl").write_bytes(b'{"id": 1}\n')
    build(tmp_path, mode, **checks)
    assert column.read_bytes() == b"12345678"
    assert column.stat().st_ino == number
    assert (column.parent.parent / ".on-its-way").is_dir()
    (tmp_path / "a.jsonl").write_bytes(b'{"id": 2}\n')
    os.utime(tmp_path / "a.jsonl", (1, 1))
    build(tmp_path, "overwrite", **checks)
    assert not column.exists()


def test_columns_are_copied_where_links_are_not_to_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"id": 0}\n')
    build(tmp_path)
    column = columns_in(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    build(tmp_path, "overwrite")
    assert column.read_bytes() == b"12345678"


def test_the_command_that_repairs_a_checked_index_checks_again(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\nno\n')
    build(tmp_path, validate=True, profile=True)
    (tmp_path / "a.jsonl").write_bytes(b"{}\n")
    with pytest.raises(StaleIndexError, match="--validate --profile --overwrite"):
        penstock.open(tmp_path)


def test_lines_that_are_set_aside_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\nno\n')
    create_default_jsonl_indexer(tmp_path, validate=True)()
    assert "bad lines set aside, which are no records: 1" in caplog.text
    assert "bad_lines.ndjson" in caplog.text
