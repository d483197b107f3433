from __future__ import annotations

import bz2
import gzip
import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.datasets import CsvRows
from penstock.index import (
    BuildOptions,
    CsvScanner,
    Found,
    Profile,
    list_files,
    make_index,
    read_bad_lines,
)
from penstock.index._parts import FilePart
from penstock.index.checked._build import ScanUnit
from penstock.index.checked._checks import Checks
from penstock.storage import LocalStore
from penstock.work import UnitResults
from tests.index.checked import bad_of, meta_of, profile_of

if TYPE_CHECKING:
    from penstock.index import Mode

TEXT = (
    b'\xef\xbb\xbfid,text,price\r\n1,"two\nlines",0.5\r\n\r\n2,a,b,c\r\n3,x,\r\n4\r\n'
    b'5,"\xff",1\r\n6,"6",2'
)


def build(folder: Path, mode: Mode = "new", scanner: CsvScanner | None = None, **how: Any) -> None:
    options = BuildOptions(**({"num_workers": 0, "progress": False} | how))
    make_index(list_files(folder), scanner or CsvScanner(), mode, build=options)


def types_of(folder: Path) -> dict[str, str]:
    return {field["path"]: field["type"] for field in profile_of(folder)["fields"]}


def test_rows_with_other_fields_are_set_aside_with_both_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.csv").write_bytes(TEXT)
    build(tmp_path, validate=True)
    assert bad_of(tmp_path) == [
        ("a.csv", 5, TEXT.index(b"2,a,b"), 9),
        ("a.csv", 7, TEXT.index(b"4\r"), 3),
        ("a.csv", 8, TEXT.index(b"5,"), 9),
    ]
    assert [bad.reason for bad in read_bad_lines(tmp_path / "index")] == [
        "4 fields, and its file has 3 columns",
        "1 field, and its file has 3 columns",
        "not UTF-8 at byte 3 of the line",
    ]
    caplog.set_level(logging.WARNING)
    assert penstock.open(tmp_path)[:] == [
        {"id": 1, "text": "two\nlines", "price": 0.5},
        {"id": 3, "text": "x", "price": None},
        {"id": 6, "text": "6", "price": 2.0},
    ]
    assert caplog.text == ""


FIELDS = st.sampled_from(["1", "x", "", '"a,b"', '"two\nlines"', '""', "0.5", "ü"])
ROWS = st.lists(st.tuples(st.lists(FIELDS, min_size=1, max_size=4), st.booleans()), max_size=20)


@given(ROWS, st.sampled_from(["\n", "\r\n", "\r"]))
def test_rows_are_kept_if_and_only_if_they_have_the_fields_of_the_header(
    rows: list[tuple[list[str], bool]], end: str
) -> None:
    text = f"a,b{end}"
    expected, lines = [], []
    for fields, is_blank_before in rows:
        text += end * is_blank_before
        line = ",".join(fields)
        if not line:
            continue  # A blank line.
        place = [len(text.encode()), len((line + end).encode())]
        if len(fields) == 2:
            expected.append(place)
        else:
            breaks = text.count(end) + (text.count("\n") if end == "\r" else 0)
            within = 0 if end != "\r\n" else text.count("two\nlines")
            lines.append((breaks + within, *place))
        text += line + end
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/a.csv"
        Path(path).write_bytes(text.encode())
        found = Found(LocalStore(), LocalStore().entry(path))
        checks = Checks(validate=True, profile=True)
        part = FilePart(found, 0, found.entry.size)
        unit = ScanUnit(UnitResults(folder), 0, (part,), CsvScanner(), checks)
        unit.run(lambda _: None)
        unit_found, rows = unit.result_of()
        (scanned,) = unit_found.parts
        assert unit_found.profile is not None
        profile = Profile.from_bytes(unit_found.profile)
        assert rows.tolist() == expected
    assert [(bad.newlines, bad.offset, bad.size) for bad in scanned.aside] == lines
    assert profile.records == len(expected)


def test_without_bad_rows_validation_changes_no_record(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,text\n1,x\n2,\n")
    build(tmp_path)
    plain = CsvRows(tmp_path)
    records, fingerprint = plain[:], plain.fingerprint
    build(tmp_path, "overwrite", validate=True, profile=True)
    checked = CsvRows(tmp_path)
    assert (checked[:], checked.fingerprint) == (records, fingerprint)


def test_an_update_numbers_lines_on(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'id,text\n1,"two\nlines"\n\n')
    build(tmp_path, validate=True, profile=True)
    with (tmp_path / "a.csv").open("ab") as file:
        file.write(b"2\n3,x\n4,y,z\n")
    build(tmp_path, "update")
    assert bad_of(tmp_path) == [("a.csv", 5, 23, 2), ("a.csv", 7, 29, 6)]
    assert meta_of(tmp_path)["files"][0]["bad_lines"] == 2
    assert profile_of(tmp_path)["records"] == len(penstock.open(tmp_path)) == 2
    updated = profile_of(tmp_path)
    build(tmp_path, "overwrite", validate=True, profile=True)
    assert profile_of(tmp_path) == updated


def test_long_rows_are_set_aside(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,text\n1,%s\n2,x\n" % (b"x" * 100))
    build(tmp_path, validate=True, max_line_bytes=50)
    assert bad_of(tmp_path) == [("a.csv", 2, 8, 103)]


def test_a_profile_tells_each_field_by_its_own_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'n,f,b,t,e,m\n1,1.5,true,x,,1\n2,-3e2,FALSE,"",,y\n3,7\n')
    (tmp_path / "b.csv").write_bytes(b"n,other\n99999999999999999999,z\n")
    build(tmp_path, profile=True)
    assert types_of(tmp_path) == {
        "n": "int", "f": "float", "b": "bool", "t": "string", "e": "null", "m": "int | string",
        "other": "string",
    }  # fmt: skip
    profile = profile_of(tmp_path)
    assert profile["records"] == 4
    assert profile["record_types"]["unreadable"] == {"count": 1, "first": 2, "last": 2}
    fields = {field["path"]: field for field in profile["fields"]}
    assert (fields["n"]["max"], fields["f"]["missing"]) == (99999999999999999999, 1)
    assert (fields["f"]["min"], fields["e"]["nulls"]) == (-300.0, 2)


def test_a_number_among_words_is_no_drift_but_a_change_for_good_is(tmp_path: Path) -> None:
    rows = [f"{n % 3 or 'x'},{n if n < 50 else 'w'},{n if n % 2 else 0.5}" for n in range(100)]
    (tmp_path / "a.csv").write_text("code,changed,number\n" + "\n".join(rows))
    build(tmp_path, profile=True)
    found = {d["path"]: d["level"] for d in profile_of(tmp_path)["drift"]}
    assert found == {"changed": "warning", "code": "note"}


def test_a_file_without_rows_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,text\n")
    (tmp_path / "b.csv").write_bytes(b"")
    (tmp_path / "c.csv").write_bytes(b"id,text\n1\n2\n")
    build(tmp_path, validate=True, profile=True)
    assert [bad[:2] for bad in bad_of(tmp_path)] == [("c.csv", 2), ("c.csv", 3)]
    assert profile_of(tmp_path)["records"] == 0


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".zst"])
def test_rows_of_compressed_files_are_set_aside_alike(ending: str, tmp_path: Path) -> None:
    packed = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstandard.compress}[ending]
    (tmp_path / "a.csv").write_bytes(TEXT)
    build(tmp_path, validate=True, profile=True)
    plain, facts = bad_of(tmp_path), meta_of(tmp_path)["files"][0]["facts"]
    other = tmp_path / "other"
    other.mkdir()
    (other / f"a.csv{ending}").write_bytes(packed(TEXT))
    build(other, validate=True, profile=True)
    assert [bad[1:] for bad in bad_of(other)] == [bad[1:] for bad in plain]
    assert meta_of(other)["files"][0]["facts"] == facts
    assert [record["id"] for record in penstock.open(other)[:]] == [1, 3, 6]
