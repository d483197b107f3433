from __future__ import annotations

import csv
import gzip
import io
import logging
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.index import list_files
from penstock.index.csv._dialect import DELIMITERS, dialect_of, found_options

if TYPE_CHECKING:
    from pathlib import Path


def found(text: str, **given: object) -> tuple[str | None, str | None, str | None]:
    dialect, _ = dialect_of(text.encode(), is_whole=True, given=given)
    return dialect["delimiter"], dialect["quote"], dialect["escape"]


@pytest.mark.parametrize("sign", DELIMITERS)
def test_the_delimiter_is_the_one_that_cuts_all_rows_alike(sign: str) -> None:
    rows = [["id", "name", "note"], ["1", "Ada", "x"], ["2", "Emmy", ""]]
    assert found("\n".join(sign.join(row) for row in rows)) == (sign, '"', None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a;b\n1,5;2,5\n3,5;4,5\n", (";", '"', None)),
        ("1,5;2,5\n3,5;4,5\n", (";", '"', None)),
        ('a|b\n"x|y";1|2\n', ("|", '"', None)),
        ("a;b\n'x;y';1\n'it''s';2\n", (";", "'", None)),
        ('a,b\n"say \\"hi, you\\" now",1\n', (",", '"', "\\")),
        ('a,b\n"C:\\dir\\",1\n', (",", '"', None)),
        ('a\tb\n"x\t1\ny\t2\n', ("\t", None, None)),
        ("a;b\r1;2\r", (";", '"', None)),
        ("\ufeffa;b\n1;2\n", (";", '"', None)),
        ("a;b\n", (";", '"', None)),
        # The rows of these show no delimiter that cuts them alike.
        ("", (",", '"', None)),
        ("text\nhello, world\nfine; so\n", (",", '"', None)),
        ("a;b;c\n1;2\n3\n4;5;6;7\n", (",", '"', None)),
        ("don't,'t\nwon't,'n\n", (",", '"', None)),
        ('a,b\n1,"x\n2,y\n', (",", '"', None)),
    ],
)
def test_the_dialect_of_a_head(text: str, expected: tuple[str | None, ...]) -> None:
    assert found(text) == expected


def test_a_few_ragged_rows_do_not_hide_the_delimiter() -> None:
    text = "a;b;c\n" + "1;2;3\n" * 30 + "4;5\n"
    assert found(text)[0] == ";"


def test_given_signs_are_kept_and_the_others_are_found() -> None:
    assert found("a;b\n'x;y';1\n", quote="'") == (";", "'", None)
    assert found("a;b|c\n1;2|3\n", delimiter="|")[0] == "|"


def test_the_last_row_of_a_head_may_be_cut_off() -> None:
    head = b"a;b;c\n1;2;3\n4;"
    assert dialect_of(head, is_whole=False)[0]["delimiter"] == ";"


def test_two_delimiters_that_fit_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.csv").write_text("a,b;c\nd,e;f\n")
    with caplog.at_level(logging.WARNING, "penstock"):
        options = found_options(list_files(tmp_path / "a.csv").files, {})
    assert options["delimiter"] == ","
    assert "delimiter ';' as with ','" in caplog.text


def test_what_is_found_is_logged_once_and_the_usual_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.csv").write_text("a;b\n1;2\n")
    (tmp_path / "b.tsv").write_text("a\tb\n1\t2\n")
    with caplog.at_level(logging.INFO, "penstock"):
        found_options(list_files(tmp_path / "a.csv").files, {})
        found_options(list_files(tmp_path / "b.tsv").files, {})
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}/a.csv: found delimiter ';' in its first rows"
    ]


@pytest.mark.parametrize("rows", [1, 50_000])
def test_the_head_of_a_compressed_file_is_looked_at(rows: int, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"a;b\n" + b"1;2\n" * rows))
    assert found_options(list_files(tmp_path / "a.jsonl.gz").files, {})["delimiter"] == ";"


def test_a_hostile_head_is_looked_at_in_time() -> None:
    for text in (b',""x' * 20_000, b"'x,'" * 20_000, b'\\"' * 30_000, b",;|\t" * 16_000):
        dialect_of(text, is_whole=False)


FIELDS = st.text(st.sampled_from("ab 1.é,;|\t\"'\n"), min_size=0, max_size=6)


@given(
    table=st.lists(st.lists(FIELDS, min_size=3, max_size=3), min_size=2, max_size=8),
    sign=st.sampled_from(DELIMITERS),
)
def test_a_text_that_pythons_csv_wrote_is_read_back(table: list[list[str]], sign: str) -> None:
    rows = [["id", "name", "note"], *table]
    written = io.StringIO(newline="")
    csv.writer(written, delimiter=sign, quoting=csv.QUOTE_ALL).writerows(rows)
    dialect, _ = dialect_of(written.getvalue().encode(), is_whole=True)
    assert dialect == {"delimiter": sign, "quote": '"', "escape": None}
