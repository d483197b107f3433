"""Quotes, escapes and nulls of CSV: no value is changed without a word, against other readers."""

from __future__ import annotations

import csv
import io
import logging
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv as pacsv

import penstock
from penstock.datasets import CsvRows
from penstock.errors import MalformedLineError
from penstock.index.csv._dialect import dialect_of
from penstock.index.csv._quotes import find_misquoted
from penstock.index.csv._types import Dialect
from tests.cli.commands import document, succeed
from tests.index.test_csv_scan import rows_by_letter

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.datasets import Source


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))


def written(path: Path, text: str) -> Path:
    path.write_text(text, newline="", encoding="utf-8")
    return path


TITLES = ['"Weird" title', 'The "Big" one', '"Whole"', '"Open', 'shut"', "plain", "it's", '5" pipe']
BEHIND_THE_HEAD = "7\tplain\t3\n" * 10_000


def test_a_table_between_tabs_whose_quotes_are_none_keeps_all_rows_and_values(
    tmp_path: Path,
) -> None:
    rows = [(n, TITLES[n % len(TITLES)], n % 5) for n in range(4000)]
    text = "id\ttitle\tn\n" + "".join("\t".join(map(str, row)) + "\n" for row in rows)
    ds = penstock.open(written(tmp_path / "a.tsv", text))
    assert [(*row.values(),) for row in ds] == rows
    assert ds.arrow().column("title").to_pylist() == [row[1] for row in rows]
    assert "quote None, escape None, header True" in succeed("info", tmp_path / "a.tsv")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("a.csv", ("id,t,n\n1,x,2\n", '2,"Weird" title,3\n', "4,y,5\n")),
        ("a.csv", ("id,t,n\n1,x,2\n", '2,"open,3\n4,"b",5\n', "6,y,7\n")),
        ("a.tsv", ("id\tt\tn\n" + BEHIND_THE_HEAD, '2\t"Weird" title\t3\n', "4\ty\t5\n")),
        ("a.csv", ("id,t,n\n" + "7,x,3\n" * 20_000, '2,"a \\"b\\" c",3\n', "4,y,5\n")),
    ],
)
def test_a_row_with_quotes_that_are_none_is_named_like_any_bad_row(
    name: str, parts: tuple[str, str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path / name, "".join(parts))
    head, odd, _ = parts
    at, place = head.count("\n") - 1, len(head)
    with caplog.at_level(logging.WARNING, "penstock"):
        ds = penstock.open(path)
    assert f"1 row has quotes that do not enclose whole fields, the first at byte {place} of" in (
        caplog.text
    )
    assert len(ds) == at + 2
    assert ds[at + 1]["t"] == ds[at + 1 : at + 2][0]["t"] == "y"
    for ask in (lambda: ds[at], lambda: ds[at - 1 : at + 2], lambda: ds.read([at], ["id"])):
        with pytest.raises(MalformedLineError, match=rf"record {at:,} .*do not enclose whole") as e:
            ask()
        assert "quote=" in e.value.remedy
    found = document("check", path, code=1)
    assert found["kinds"] == {"malformed row": 1}
    assert found["shown"][0]["line"] == head.count("\n") + 1
    made = document("index", path, "--validate", "--overwrite", code=1)
    assert (made["records"], made["bad_lines"]) == (at + 1, 1)
    whole = penstock.open(path, format_options={"quote": None})
    assert len(whole) == at + 1 + odd.count("\n")


def test_lines_that_quotes_merge_between_tabs_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "id\tt\tn\n" + BEHIND_THE_HEAD + '2\t"open\t3\n4\tshut"\t5\n'
    path = written(tmp_path / "a.tsv", text)
    assert penstock.open(path)[-1] == {"id": 2, "t": "open\t3\n4\tshut", "n": 5}
    assert "1 row has quotes around lines that have all fields by themselves" in caplog.text
    assert f"byte {text.index('2')} of" in caplog.text
    assert len(penstock.open(path, format_options={"quote": None})) == 10_002


def test_a_header_with_quotes_that_are_none_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", '"Weird" id,t\n1,x\n')
    with pytest.raises(MalformedLineError, match=r"a\.csv: its header .* do not enclose whole"):
        penstock.open(path)
    assert penstock.open(path, format_options={"quote": None})[0] == {'"Weird" id': 1, "t": "x"}


def test_an_update_counts_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path / "a.csv", 'a,b\n1,"x" y\n2,z\n')
    penstock.open(path)
    with path.open("a") as file:
        file.write('3,"q"r\n')
    with caplog.at_level(logging.WARNING, "penstock"):
        assert len(penstock.open(path)) == 3
    assert "2 rows have quotes that do not enclose whole fields, the first at byte 4" in caplog.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\n'x',1\nit's,2\n", (",", '"', None)),
        ("a,b\n'x',1\ny,2\n", (",", '"', None)),
        ("a,b\n'x',1\n'y',2\nz,3\n", (",", '"', None)),
        ("a,b\n'x',1\n'y',2\n", (",", "'", None)),
        ("a,b\n'x,z',1\ny,2\n", (",", '"', None)),
        ("a,b\n'x,z',1\n'y,z',2\n", (",", "'", None)),
        ('a,b\n5\\" pipe,1\n6,2\n', (",", '"', None)),
        ('a,b\n"say \\"hi\\"",1\nc:\\new,2\n', (",", '"', "\\")),
        ('a\tb\n"x" y\t1\n', ("\t", None, None)),
        ('a\tb\n"x"\t1\n"y"\t2\n', ("\t", '"', None)),
        ('a\tb\n"x\ny"\t1\n', ("\t", '"', None)),
        ('a\tb\tc\n1\t"x\t2\n3\ty"\t4\n', ("\t", None, None)),
        ('a;b\n"x" y;1\n', (";", None, None)),
    ],
)
def test_quotes_and_escapes_are_guessed_where_values_need_them(
    text: str, expected: tuple[str | None, ...]
) -> None:
    assert (*dialect_of(text.encode(), is_whole=True)[0].values(),) == expected


def test_what_stands_behind_an_escape_without_need_is_kept(tmp_path: Path) -> None:
    text = 'a,b,n\n"say \\"hi\\"",\\N,1\n\\N,c:\\new\\,dir,\\N\n"x \\\\N",d,3\n'
    ds = penstock.open(written(tmp_path / "a.csv", text))
    assert [row["a"] for row in ds] == ['say "hi"', "\\N", "x \\N"]
    assert [row["b"] for row in ds] == ["\\N", "c:\\new,dir", "d"]
    nulls = {"null_values": ["\\N"]}
    null = penstock.open(tmp_path / "a.csv", format_options=nulls)
    assert [row["n"] for row in null] == [1, None, 3]
    assert [row["b"] for row in null] == [None, "c:\\new,dir", "d"]
    assert null.read([1], {"n": "int64", "a": "string"}).to_pylist() == [{"n": None, "a": None}]


def test_the_whole_dialect_stands_in_info(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", 'a;b\n"x\\"";1\n')
    row = "delimiter ';', quote '\"', escape '\\\\', header True"
    for _ in range(2):  # Without an index, and with one.
        assert row in succeed("info", path)
        assert document("info", path)["dialect"] == {
            "delimiter": ";", "quote": '"', "escape": "\\", "header": True, "column_names": None
        }  # fmt: skip
        penstock.open(path)


@given(text=st.text(st.sampled_from("a,\t\n\"'\\"), max_size=24), sign=st.sampled_from(",\t"))
def test_misquoted_rows_are_those_that_python_refuses_to_read_strictly(
    text: str, sign: str
) -> None:
    dialect = Dialect(sign)
    rows, is_open = rows_by_letter(text, dialect)
    for row in rows[:-1] if is_open else rows:
        try:
            [*csv.reader(io.StringIO(row, newline=""), delimiter=sign, strict=True)]
        except csv.Error:
            assert find_misquoted(row.encode(), [row.encode()], dialect) == [0]
        else:
            assert not find_misquoted(row.encode(), [row.encode()], dialect)


@pytest.mark.parametrize(
    ("row", "value"), [('"a" ,b', "a "), ('"a","b"  ', "a"), ('"a" b,c', None), ('"" ",c', None)]
)
def test_spaces_behind_a_quote_do_no_harm(row: str, value: str | None, tmp_path: Path) -> None:
    rows = CsvRows(written(tmp_path / "a.csv", f"x,y\n{row}\n"), quote='"')
    if value is not None:
        assert rows[0]["x"] == value
        return
    with pytest.raises(MalformedLineError, match="do not enclose whole"):
        rows[0]


CELLS = st.text(st.sampled_from("ab1.0 ,;\t\n\"'\\é"), max_size=6)
STYLES: list[dict[str, Any]] = [
    {"delimiter": ","},
    {"delimiter": "\t"},
    {"delimiter": ";", "quotechar": "'"},
    {"delimiter": "|", "quoting": csv.QUOTE_ALL},
]


@given(
    table=st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=6),
    style=st.sampled_from(STYLES),
)
def test_values_are_those_of_python_pyarrow_polars_and_duckdb(
    table: list[list[str]], style: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("d") / "a.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n", **style).writerows([["x", "y"], *table])
    sign, quote = style["delimiter"], style.get("quotechar", '"')
    types = {"types": {"x": "string", "y": "string"}}
    ds = CsvRows(path, delimiter=sign, quote=quote, escape=None, **types)  # type: ignore[arg-type]
    assert read_every_way(ds) == table
    assert filled(pl.read_csv(path, separator=sign, quote_char=quote, infer_schema=False)) == table
    parse = pacsv.ParseOptions(delimiter=sign, quote_char=quote, newlines_in_values=True)
    convert = pacsv.ConvertOptions(column_types={"x": pa.string(), "y": pa.string()})
    assert filled(pacsv.read_csv(path, parse_options=parse, convert_options=convert)) == table
    found = duckdb.read_csv(
        str(path), header=True, sep=sign, quotechar=quote, escapechar=quote, all_varchar=True
    )
    assert [[cell or "" for cell in row] for row in found.fetchall()] == table


def filled(table: Any) -> list[list[str]]:
    return [[cell or "" for cell in row.values()] for row in pl.DataFrame(table).to_dicts()]


def read_every_way(ds: Source) -> list[list[str] | None]:
    """Return the texts of rows, None for bad ones; one by one, together and as columns."""
    rows: list[list[str] | None] = []
    for number in range(len(ds)):
        try:
            record = ds[number]
        except MalformedLineError:
            record = None
            with pytest.raises(MalformedLineError):
                ds.read([number], ["x"])
        else:
            assert ds.read([number], ["x", "y"]).to_pylist() == [record]
        rows.append(None if record is None else [cell or "" for cell in record.values()])
    facts = ds.index_meta.files[0].facts if ds.index_meta and ds.index_meta.files else {}
    bad = rows.count(None)
    assert max(facts.get("ragged", 0), facts.get("misquoted", 0)) <= bad
    assert bad <= facts.get("ragged", 0) + facts.get("misquoted", 0)
    if not bad:
        assert [[cell or "" for cell in row.values()] for row in ds[:]] == rows
        assert filled(ds.arrow()) == rows or not len(ds)
    return rows


@pytest.mark.parametrize("sign", [",", "\t"])
@given(text=st.text(st.sampled_from("aN,\t\n\"'\\"), max_size=40))
def test_nasty_rows_are_read_as_python_reads_them_or_named(
    sign: str, text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows, is_open = rows_by_letter(text, Dialect(sign))
    path = written(tmp_path_factory.mktemp("d") / "a.csv", f"x{sign}y\n{text}")
    types = {"x": "string", "y": "string"}

    def opened() -> CsvRows:
        return CsvRows(path, delimiter=sign, quote='"', escape=None, types=types)

    if is_open:
        with pytest.raises(MalformedLineError, match="never closed"):
            opened()
        return
    expected: list[list[str] | None] = []
    for row in rows:
        try:
            (cells,) = csv.reader(io.StringIO(row, newline=""), delimiter=sign, strict=True)
        except csv.Error:
            cells = []
        expected.append(cells if len(cells) == 2 else None)
    assert read_every_way(opened()) == expected
