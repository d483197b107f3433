from __future__ import annotations

import csv
import io
import logging
import pickle
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.datasets import CsvRows, Source
from penstock.datasets.text._csv import CsvParser
from penstock.errors import (
    CorruptIndexError,
    MalformedLineError,
    ObjectNotFoundError,
    SchemaMismatchError,
    StaleIndexError,
)
from penstock.index.csv._types import Dialect
from tests.datasets.sample import Record, flat_records
from tests.datasets.source_contract import SourceContract
from tests.index.test_csv_scan import rows_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.servers.s3_server import S3Server


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))


def csv_text(records: list[Record], names: list[str] | None = None) -> bytes:
    """Write records as Python does: numbers bare, texts in quotes where they need them."""
    written = io.StringIO(newline="")
    writer = csv.DictWriter(written, names or list(records[0]))
    writer.writeheader()
    writer.writerows(records)
    return written.getvalue().encode()


class TestOneFile(SourceContract):
    has_raw = True

    @pytest.fixture
    def expected(self) -> list[Record]:
        return flat_records(60)

    @pytest.fixture
    def open_source(self, tmp_path: Path, expected: list[Record]) -> Callable[[], Source]:
        (tmp_path / "a.csv").write_bytes(csv_text(expected))
        return lambda: CsvRows(tmp_path / "a.csv")


class TestFilesWithColumnsInAnotherOrder(SourceContract):
    has_raw = True

    @pytest.fixture
    def expected(self) -> list[Record]:
        records = flat_records(60)
        for record in records[:20]:
            record["maybe"] = None
        return records

    @pytest.fixture
    def open_source(self, tmp_path: Path, expected: list[Record]) -> Callable[[], Source]:
        folder = tmp_path / "data"
        folder.mkdir()
        first = [{k: v for k, v in record.items() if k != "maybe"} for record in expected[:20]]
        (folder / "part-1.csv").write_bytes(csv_text(first))
        names = ["maybe", "name", "id", "flag", "score"]
        (folder / "part-2.csv").write_bytes(csv_text(expected[20:30], names))
        (folder / "Part-10.csv").write_bytes(csv_text(expected[30:]))
        return lambda: CsvRows(folder)


class TestRemote(SourceContract):
    has_raw = True
    start_methods = ("forkserver", "spawn")

    @pytest.fixture
    def expected(self) -> list[Record]:
        return flat_records(40)

    @pytest.fixture
    def open_source(
        self, s3_server: S3Server, bucket: str, expected: list[Record]
    ) -> Callable[[], Source]:
        s3_server.put(bucket, "d/a.csv", csv_text(expected[:25]))
        s3_server.put(bucket, "d/b.csv", csv_text(expected[25:]))
        options = s3_server.storage_options
        return lambda: CsvRows(f"s3://{bucket}/d", storage_options=options)


def opened(tmp_path: Path, text: str, **options: object) -> CsvRows:
    (tmp_path / "a.csv").write_text(text, newline="")
    return CsvRows(tmp_path / "a.csv", **options)  # type: ignore[arg-type]


def test_empty_is_null_and_a_quoted_empty_text_is_a_text(tmp_path: Path) -> None:
    rows = opened(tmp_path, 'n,t\n1,\n,""\n"",x\n')
    assert rows[:] == [{"n": 1, "t": None}, {"n": None, "t": ""}, {"n": None, "t": "x"}]


def test_line_ends_quotes_and_delimiters_inside_quotes_belong_to_the_value(tmp_path: Path) -> None:
    rows = opened(tmp_path, 'a,b\r\n"x, ""y""\r\nz",1\r\n\r\nplain,2')
    assert rows[:] == [{"a": 'x, "y"\r\nz', "b": 1}, {"a": "plain", "b": 2}]
    assert rows.raw(0) == b'"x, ""y""\r\nz",1\r\n'


def test_delimiter_quote_and_escape_can_be_chosen(tmp_path: Path) -> None:
    text = "a;b\n'x;y';1\nit\\'s\\;so;2\n"
    rows = opened(tmp_path, text, delimiter=";", quote="'", escape="\\")
    assert rows[:] == [{"a": "x;y", "b": 1}, {"a": "it's;so", "b": 2}]
    rows = opened(tmp_path, 'a\tb\n5" pipe\t"x\n', delimiter="\t", quote=None)
    assert rows[0] == {"a": '5" pipe', "b": '"x'}


def test_without_a_header_columns_are_numbered_or_named(tmp_path: Path) -> None:
    assert opened(tmp_path, "1,x\n", header=False)[0] == {"f0": 1, "f1": "x"}
    named = opened(tmp_path, "1,x\n", header=False, column_names=["a", "b"])
    assert named[0] == {"a": 1, "b": "x"}


def test_an_integer_beyond_64_bits_stays_exact(tmp_path: Path) -> None:
    rows = opened(tmp_path, "a,b\n1,x\n18446744073709551617,y\n")
    assert [row["a"] for row in rows] == ["1", "18446744073709551617"]


def test_types_asked_for_are_read_from_the_text(tmp_path: Path) -> None:
    rows = opened(tmp_path, "zip,day,flag,x\n01234,2024-05-01,1,0.1\n,,0,\n")
    batch = rows.read(
        [0, 1], {"zip": "string", "day": "date32", "flag": "bool", "x": "float32", "no": "int8"}
    )
    assert batch.schema.types == [
        pa.string(),
        pa.date32(),
        pa.bool_(),
        pa.float32(),
        pa.int8(),
    ]
    assert batch["zip"].to_pylist() == ["01234", None]
    assert batch["flag"].to_pylist() == [True, False]
    assert batch["no"].null_count == 2


def test_a_value_that_does_not_fit_names_file_record_field_and_value(tmp_path: Path) -> None:
    rows = opened(tmp_path, "a,b\n" + "1,2\n" * 50 + "1,oops\n" + "1,2\n" * 50)
    with pytest.raises(SchemaMismatchError, match=r"record 50 \(.*a\.csv.*'b' holds 'oops'.*int64"):
        rows.read(range(101), {"b": "int64"})
    with pytest.raises(SchemaMismatchError, match=r"record 3\b.*'a'.*not fit .*list"):
        rows.read([3], {"a": "list<int8>"})


def test_a_number_too_large_for_its_type_does_not_become_infinite(tmp_path: Path) -> None:
    rows = opened(tmp_path, "a\n1\n1e300\n")
    with pytest.raises(SchemaMismatchError, match=r"record 1.*1e\+300.*does not fit float"):
        rows.read([0, 1], {"a": "float32"})


@pytest.mark.parametrize("row", ["3", "3,4,5"])
def test_a_row_with_other_fields_is_an_error_and_shifts_nothing(
    row: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "penstock"):
        rows = opened(tmp_path, f"a,b\n1,2\n{row}\n6,7\n")
    assert "1 row has another number of fields" in caplog.text
    assert "byte 8" in caplog.text
    assert rows[::2] == [{"a": 1, "b": 2}, {"a": 6, "b": 7}]
    for ask in (lambda: rows[1], lambda: rows[:], lambda: rows.read([0, 1], ["a"])):
        with pytest.raises(
            MalformedLineError, match=r"record 1 \(.*a\.csv.*byte 8.*its file has 2 columns"
        ):
            ask()


def test_bytes_that_are_no_utf_8_are_an_error_that_names_the_record(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,b\n1,fine\n2,\xff\xfe\n")
    rows = CsvRows(tmp_path / "a.csv")
    assert rows[0] == {"a": 1, "b": "fine"}
    assert rows.read([0, 1], {"a": "int8"})["a"].to_pylist() == [1, 2]
    with pytest.raises(SchemaMismatchError, match=r"record 1 .*'b' holds '\\\\xff"):
        rows[:]


def test_types_of_several_files_unify(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b,c\n1,,true\n")
    (tmp_path / "2.csv").write_text("a,b,c\n0.5,2,7\n")
    rows = CsvRows([tmp_path / "1.csv", tmp_path / "2.csv"])
    assert rows.schema.types == [pa.float64(), pa.int64(), pa.string()]
    assert rows[:] == [{"a": 1.0, "b": None, "c": "true"}, {"a": 0.5, "b": 2, "c": "7"}]


def test_files_without_a_common_column_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("3,4\n5,6\n")
    (tmp_path / "0.csv").write_text("no,rows\n")
    for opens in (CsvRows, penstock.open):
        with pytest.raises(SchemaMismatchError, match=r"1\.csv and 2\.csv have no column in commo"):
            opens(str(tmp_path / "*.csv"))


def test_files_of_other_widths_without_a_header_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("1,2\n")
    (tmp_path / "2.csv").write_text("3,4,5\n")
    with pytest.raises(SchemaMismatchError, match=r"1\.csv has 2 columns and 2\.csv 3"):
        CsvRows(str(tmp_path / "*.csv"), header=False)


def test_a_file_that_is_not_there_and_a_folder_without_rows_are_named(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match=r"nothing\.csv"):
        CsvRows(tmp_path / "nothing.csv")
    (tmp_path / "d").mkdir()
    with pytest.raises(ObjectNotFoundError, match="d"):
        CsvRows(tmp_path / "d")


def test_a_file_with_only_a_header_has_no_records(tmp_path: Path) -> None:
    rows = opened(tmp_path, "a,b\n")
    assert len(rows) == 0
    assert rows[:] == []


def test_a_file_that_changed_is_read_as_it_is_at_the_next_opening(tmp_path: Path) -> None:
    rows = opened(tmp_path, "a\n1\n2\n")
    (tmp_path / "a.csv").write_text("a\n1\n")
    with pytest.raises(StaleIndexError, match=r"a\.csv"):
        rows[1]
    assert CsvRows(tmp_path / "a.csv")[:] == [{"a": 1}]


def test_rows_open_from_the_index_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "a.csv").write_text("a;b\n1;2\n")
    assert CsvRows(folder, delimiter=";")[0] == {"a": 1, "b": 2}
    again = CsvRows.create_from_index_on_filesystem(folder)
    assert again[0] == {"a": 1, "b": 2}
    assert pickle.loads(pickle.dumps(again))[0] == {"a": 1, "b": 2}


def test_an_index_of_other_options_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "a.csv").write_text("a;b\n1;2\n")
    CsvRows(folder, delimiter=";")
    with pytest.raises(CorruptIndexError, match="delimiter"):
        CsvRows(folder, delimiter=",")
    with pytest.raises(CorruptIndexError, match="null_values"):
        penstock.open(folder, format_options={"null_values": ["NA"]})


VALUES = st.text(st.sampled_from("ab1 ,;\n\r\"'\\é"), max_size=6)


@given(
    table=st.lists(st.lists(VALUES, min_size=2, max_size=3), min_size=1, max_size=6),
    dialect=st.sampled_from([Dialect(), Dialect(";", "'", "\\"), Dialect(",", '"', "\\")]),
)
def test_values_are_those_that_pythons_csv_wrote(table: list[list[str]], dialect: Dialect) -> None:
    table = [row for row in table if len(row) == len(table[0])]
    written = io.StringIO(newline="")
    csv.writer(
        written,
        delimiter=dialect.delimiter,
        quotechar=dialect.quote,
        escapechar=dialect.escape,
        quoting=csv.QUOTE_ALL,
    ).writerows(table)
    rows = rows_in(written.getvalue().encode(), dialect)
    names = [f"f{number}" for number in range(len(table[0]))]
    schema = pa.schema([(name, pa.string()) for name in names])
    found = CsvParser(names, dialect).columns(rows, schema)
    assert [list(row.values()) for row in found.to_pylist()] == table


def test_a_byte_order_mark_inside_a_file_reads_alone_as_in_a_batch(tmp_path: Path) -> None:
    rows = opened(tmp_path, "\ufeffa,b\n1,2\n\ufeff3,4\n\ufeff\ufeff5,6\n")
    expected = [{"a": "1", "b": 2}, {"a": "\ufeff3", "b": 4}, {"a": "\ufeff\ufeff5", "b": 6}]
    assert rows[:] == expected
    assert [rows[number] for number in range(3)] == expected


def test_a_ragged_row_that_is_no_utf_8_is_told_of_like_any_other(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,b\n1,2\ncaf\xe9,3,4\n5,6\n")
    rows = CsvRows(tmp_path / "a.csv")
    assert rows[[0, 2]] == [{"a": 1, "b": 2}, {"a": 5, "b": 6}]
    with pytest.raises(
        MalformedLineError, match=r"record 1 .*3 fields, and its file has 2 columns"
    ):
        rows[1]
    assert "ignored" not in capfd.readouterr().err


def test_wide_rows_hold_every_column_in_any_order(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(3000)]
    rows = opened(tmp_path, f"{','.join(names)}\n{','.join(map(str, range(3000)))}\n")
    assert rows[0] == {name: number for number, name in enumerate(names)}
    assert rows.read([0], names[::-1]).column(0).to_pylist() == [2999]
