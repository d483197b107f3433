from __future__ import annotations

import csv
import io
import pickle
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import MalformedLineError, OptionError
from penstock.index.csv._rows import RowFinder
from penstock.index.csv._scan import CsvScanner
from penstock.index.csv._types import Dialect, wider_type

if TYPE_CHECKING:
    from collections.abc import Sequence

Rows = list[bytes]


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    borders = [0, *sorted({min(place, len(data)) for place in places}), len(data)]
    return [data[start:stop] for start, stop in pairwise(borders)]


def scanned(
    data: bytes, scanner: CsvScanner | None = None, places: Sequence[int] = ()
) -> tuple[Rows, dict[str, object]]:
    scan = (scanner or CsvScanner()).begin("a.csv")
    found = [scan.add(block) for block in cut(data, places)]
    rows = np.concatenate([*found, scan.finish()])
    assert rows.dtype == np.int64
    return [data[start : start + size] for start, size in rows.tolist()], scan.facts()


def rows_in(data: bytes, dialect: Dialect, places: Sequence[int] = ()) -> Rows:
    finder = RowFinder(dialect, "a.csv")
    found = [finder.add(block) for block in cut(data, places)]
    rows = np.concatenate([*found, finder.finish()])
    return [data[start : start + size] for start, size in rows.tolist()]


def read_by_python(text: str, dialect: Dialect) -> list[list[str]]:
    rows = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=dialect.delimiter,
        quotechar=dialect.quote,
        escapechar=dialect.escape,
        quoting=csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE,
    )
    return [row for row in rows if row]


def rows_by_letter(text: str, dialect: Dialect) -> tuple[list[str], bool]:
    """Cut a text into rows letter by letter; say whether a quote is open at its end."""
    rows, state, is_escaped = [""], "start", False
    for at, letter in enumerate(text):
        rows[-1] += letter
        if is_escaped or letter == dialect.escape:
            is_escaped = not is_escaped
            state = "quoted" if state == "quoted" else "field"
        elif state == "quoted":
            state = "closed" if letter == dialect.quote else state
        elif letter == dialect.quote and state in ("start", "closed"):
            state = "quoted"
        elif letter in (dialect.delimiter, "\n", "\r"):
            state = "start"
            if letter == "\n" or (letter == "\r" and text[at + 1 : at + 2] != "\n"):
                rows.append("")
        else:
            state = "field"
    return [row for row in rows if row.strip("\r\n")], state == "quoted"


DIALECTS = [
    Dialect(),
    Dialect(";", "'", None),
    Dialect("\t", '"', "\\"),
    Dialect(",", None, None),
    Dialect("|", None, "\\"),
]
CUTS = st.lists(st.integers(0, 60), max_size=8)
VALUES = st.text(st.sampled_from("ab ,;|\t\n\r\"'\\é"), max_size=6)


@given(
    table=st.lists(st.lists(VALUES, min_size=3, max_size=3), max_size=8),
    # Written with quotes only where needed, a line end that is not the file's own goes without.
    style=st.sampled_from(
        [
            ("\n", csv.QUOTE_ALL),
            ("\r", csv.QUOTE_ALL),
            ("\r\n", csv.QUOTE_ALL),
            ("\r\n", csv.QUOTE_MINIMAL),
        ]
    ),
    dialect=st.sampled_from([Dialect(), Dialect(";", "'", None), Dialect("\t", '"', None)]),
    ends=st.tuples(st.sampled_from([b"", b"\xef\xbb\xbf"]), st.booleans()),
    places=CUTS,
)
def test_rows_are_those_of_pythons_csv_however_the_blocks_are_cut(
    table: list[list[str]],
    style: tuple[str, int],
    dialect: Dialect,
    ends: tuple[bytes, bool],
    places: list[int],
) -> None:
    (line_end, quoting), (mark, has_last_end) = style, ends
    written = io.StringIO(newline="")
    csv.writer(
        written,
        delimiter=dialect.delimiter,
        quotechar=dialect.quote,
        quoting=quoting,  # type: ignore[arg-type]
        lineterminator=line_end,
    ).writerows(table)
    text = written.getvalue()
    text = text if has_last_end else text.removesuffix(line_end)
    data = mark + text.encode()
    rows = rows_in(data, dialect, places)
    assert b"".join(rows) == text.encode()
    assert [read_by_python(row.decode(), dialect) for row in rows] == [[row] for row in table]


@pytest.mark.parametrize("dialect", DIALECTS)
@given(text=st.text(st.sampled_from("a,;\t|\n\r\"'\\"), max_size=24), places=CUTS)
def test_any_text_is_cut_into_rows_as_pythons_csv_cuts_it(
    dialect: Dialect, text: str, places: list[int]
) -> None:
    expected, is_open = rows_by_letter(text, dialect)
    if is_open:
        with pytest.raises(MalformedLineError, match="never closed"):
            rows_in(text.encode(), dialect, places)
        return
    rows = [row.decode() for row in rows_in(text.encode(), dialect, places)]
    assert rows == expected
    # Right after a closing quote Python takes an escape for a letter; Arrow does not.
    if dialect.escape is None or f"{dialect.quote}{dialect.escape}" not in text:
        assert [row for one in rows for row in read_by_python(one, dialect)] == (
            read_by_python(text, dialect)
        )
        assert all(len(read_by_python(one, dialect)) == 1 for one in rows)


TYPED = st.sampled_from(
    ["", "1", "-7", "2.5", "nan", "true", "False", "x", "99999999999999999999", "0x1f", '""', "+1"]
)


@given(values=st.lists(TYPED, min_size=1, max_size=8), places=st.lists(st.integers(0, 7)))
def test_types_are_those_of_all_values_however_they_are_grouped(
    values: list[str], places: list[int]
) -> None:
    from penstock.index.csv._types import TypesSeen

    def kind(groups: list[list[str]]) -> str:
        seen = TypesSeen(["a", "b"], Dialect())
        for group in groups:
            seen.add("".join(f"{value},k\n" for value in group).encode())
        return seen.kinds[0]

    borders = [0, *sorted({min(place, len(values)) for place in places}), len(values)]
    groups = [values[start:stop] for start, stop in pairwise(borders)]
    assert kind([group for group in groups if group]) == kind([values])
    assert kind([values]) == wider_type(kind([[value]]) for value in values)


def test_the_header_gives_the_names_and_is_no_record() -> None:
    rows, facts = scanned(b'\xef\xbb\xbfid,"a, b"\r\n1,x\r\n\r\n2,y')
    assert rows == [b"1,x\r\n", b"2,y"]
    assert facts == {
        "columns": ["id", "a, b"],
        "types": ["int64", "string"],
        "large": [],
        "misquoted": 0,
    }


def test_without_a_header_columns_are_numbered_or_named() -> None:
    assert scanned(b"1,x\n", CsvScanner(header=False))[1]["columns"] == ["f0", "f1"]
    rows, facts = scanned(b"1,x\n", CsvScanner(header=False, column_names=["id", "word"]))
    assert rows == [b"1,x\n"]
    assert facts["columns"] == ["id", "word"]


def test_given_names_stand_in_for_those_of_the_header() -> None:
    rows, facts = scanned(b"a,a\n1,2\n", CsvScanner(column_names=["x", "y"]))
    assert rows == [b"1,2\n"]
    assert facts["columns"] == ["x", "y"]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (["1", "-2", ""], "int64"),
        (["1", "2.5", "1e9"], "float64"),
        (["true", "", "FALSE"], "bool"),
        (["true", "1"], "string"),
        (["", ""], "null"),
        (["2024-01-01", "2024-01-02"], "string"),
        (["12:30", ""], "string"),
        (["1", '""'], "int64"),
        (['""', '""'], "null"),
        (["x", '""'], "string"),
        (["NA", "NULL"], "string"),
        (["1", "18446744073709551616"], "integer"),
        (["1.5", "18446744073709551616"], "float64"),
        (["1.5", "9007199254740992"], "float64"),
        (["1.5", "9007199254740993"], "string"),
        (["-9007199254740993", "1.5"], "string"),
        (["18446744073709551617", "1.5"], "string"),
        (["1" * 400, "1.5"], "string"),
        (["0x10", "1.5"], "string"),
    ],
)
def test_a_column_has_the_narrowest_type_that_holds_every_value(
    column: list[str], expected: str
) -> None:
    data = "a,b\n" + "".join(f"{value},k\n" for value in column)
    assert scanned(data.encode())[1]["types"] == [expected, "string"]


def test_a_value_late_in_a_large_file_counts_too() -> None:
    data = b"a,b\n" + b"100000000000000000,\n" * 250_000 + b"2,late\nx,\n"
    _, facts = scanned(data, places=range(0, len(data), 1 << 20))
    assert facts["types"] == ["string", "string"]


def test_rows_with_another_number_of_fields_are_counted_and_found() -> None:
    data = b'a,b\n1,2\n\n"x\ny",3,4\n5\n6,7\n'
    rows, facts = scanned(data)
    assert len(rows) == 4
    assert facts["ragged"] == 2
    assert facts["first_ragged"] == data.index(b'"x')


def test_a_quote_that_is_never_closed_is_named_with_file_and_place() -> None:
    data = b'a,b\n1,"fine ""so far"""\n2,"it ""begins'
    with pytest.raises(MalformedLineError, match=r"a\.csv: the quote at byte 26") as failure:
        scanned(data, places=range(0, 60, 7))
    assert data[failure.value.offset :] == b'"it ""begins'  # type: ignore[attr-defined]


def test_a_quote_that_swallows_the_file_is_told_before_memory_is_full() -> None:
    finder = RowFinder(Dialect(), "a.csv", largest_row=1000)
    finder.add(b'1,"')
    finder.add(b"x,\n" * 200)
    with pytest.raises(MalformedLineError, match=r"longer than 1,000 bytes.*byte 2 is not closed"):
        finder.add(b"x,\n" * 200)


@pytest.mark.parametrize("data", [b"a\n1\n\0", b"a\n1\nx\0", b"a\n1\n\0\n", b"a\n1\n2\0\0"])
def test_a_zero_byte_at_the_end_belongs_to_the_last_row(data: bytes) -> None:
    finder = RowFinder(Dialect(), "a.csv")
    found = [*finder.add(data).tolist(), *finder.finish().tolist()]
    assert [data[offset : offset + size] for offset, size in found] == data.splitlines(
        keepends=True
    )


def test_utf_16_is_refused_with_the_remedy() -> None:
    with pytest.raises(MalformedLineError, match="iconv"):
        scanned("a,b\n1,2\n".encode("utf-16"))


@pytest.mark.parametrize("data", [b"", b"\n", b"\r\n\n", b"\xef\xbb\xbf", b"a,b", b"a,b\n"])
def test_a_file_without_rows_has_no_records(data: bytes) -> None:
    for places in ((), range(10)):
        rows, facts = scanned(data, places=places)
        assert rows == []
        assert facts["types"] == ["null"] * len(facts["columns"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": ",,"}, "delimiter=',,': expected one ASCII character"),
        ({"escape": "\0"}, r"escape='\\x00': expected one ASCII character"),
        ({"delimiter": "\n"}, "delimiter="),
        ({"quote": "»"}, "quote="),
        ({"escape": '"'}, "must differ"),
        ({"column_names": ["a", "a"]}, "two columns are called 'a'"),
        ({"column_names": "ab"}, "expected a list of names"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        CsvScanner(**options)  # type: ignore[arg-type]


def test_a_name_that_stands_twice_in_a_header_is_refused_with_the_remedy() -> None:
    with pytest.raises(OptionError, match=r"header of a\.csv: two columns .* column_names="):
        scanned(b"a,b,a\n1,2,3\n")


def test_a_header_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(MalformedLineError, match=r"a\.csv: its first row cannot be read.*UTF-8"):
        scanned(b"a,\xff\n1,2\n")


def test_names_that_do_not_fit_the_first_row_are_refused() -> None:
    with pytest.raises(OptionError, match="gives 3 names, its first row has 2 fields"):
        scanned(b"a,b\n1,2\n", CsvScanner(column_names=["x", "y", "z"]))


def test_a_scanner_is_small_to_send_and_says_what_makes_an_index_differ() -> None:
    scanner = CsvScanner(";", column_names=["a"], header=False)
    text = pickle.dumps(scanner)
    assert len(text) < 300
    assert pickle.loads(text).options() == scanner.options()
    assert CsvScanner().options() != scanner.options()


def test_what_was_appended_to_a_file_is_scanned_under_its_old_names() -> None:
    was = b"a,b\n1,2\n"
    scan = CsvScanner().begin("a.csv", scanned(was)[1], len(was))
    rows = np.concatenate([scan.add(b"4,5.5\n3\n"), scan.finish()])
    assert rows.tolist() == [[0, 6], [6, 2]]
    facts = scan.facts()
    assert facts == {
        "columns": ["a", "b"],
        "types": ["int64", "float64"],
        "large": [],
        "ragged": 1,
        "first_ragged": 14,
        "misquoted": 0,
    }
    # An earlier release has not looked at quotes: what it knows nothing of stays unknown.
    known = {"columns": ["a", "b"], "types": ["int64", "int64"]}
    scan = CsvScanner().begin("a.csv", known, len(was))
    scan.finish()
    assert "misquoted" not in scan.facts()
