from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import penstock
from penstock.datasets import CsvRows
from penstock.errors import (
    CorruptIndexError,
    MalformedLineError,
    OptionError,
    PenstockError,
    SchemaMismatchError,
)
from penstock.index import digest
from tests.rounds import rounds

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.s3_server import S3Server

PLAIN = {"delimiter": ",", "quote": '"', "escape": None, "header": True, "column_names": None}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, newline="", encoding="utf-8")
    return path


@pytest.mark.parametrize("sign", [";", "\t", "|"])
@pytest.mark.parametrize("is_folder", [False, True])
def test_another_delimiter_is_found(sign: str, is_folder: bool, tmp_path: Path) -> None:  # noqa: FBT001
    file = written(tmp_path / "d" / "a.csv", f"id{sign}x\n1{sign}2,5\n")
    for _ in range(2):  # Found, and out of the index.
        rows = penstock.open(file.parent if is_folder else file)
        assert rows[0] == {"id": 1, "x": "2,5"}
    assert CsvRows(file)[0] == {"id": 1, "x": "2,5"}


def test_another_delimiter_is_found_in_object_storage(s3_server: S3Server, bucket: str) -> None:
    s3_server.put(bucket, "d/a.csv", b"a;b\n1;2,5\n")
    rows = penstock.open(f"s3://{bucket}/d", storage_options=s3_server.storage_options)
    assert rows[:] == [{"a": 1, "b": "2,5"}]


def test_a_dialect_is_given_by_format_options(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", "1;'x;y'\n")
    given = {"delimiter": ";", "quote": "'", "header": False, "column_names": ["a", "b"]}
    assert penstock.open(file, format_options=given)[0] == {"a": 1, "b": "x;y"}
    with pytest.raises(OptionError, match=r"CSV has no option 'separator'; .*delimiter"):
        penstock.open(file, format_options={"separator": ";"})
    for odd in ({"delimiter": 5}, {"quote": ""}, {"types": "int64"}, {"null_values": 5}):
        with pytest.raises(OptionError, match=f"{next(iter(odd))}=.*expected"):
            penstock.open(file, format_options=odd)
    with pytest.raises(OptionError, match="for files"):
        penstock.open([{"a": 1}], format_options=given)
    lines = written(tmp_path / "a.jsonl", '{"a": 1}\n')
    with pytest.raises(OptionError, match="JSON Lines has no option 'delimiter'; it has none"):
        penstock.open(lines, format_options={"delimiter": ";"})


def test_a_format_is_given_by_its_name(tmp_path: Path) -> None:
    file = written(tmp_path / "d" / "table.txt", "a;b\n1;2\n")
    assert penstock.open(file, format="csv")[0] == {"a": 1, "b": 2}
    assert penstock.open(file.parent, format="csv")[0] == {"a": 1, "b": 2}
    lines = written(tmp_path / "odd.csv", '{"a": 1}\n')
    assert penstock.open(lines, format="jsonl")[0] == {"a": 1}
    with pytest.raises(OptionError, match=r"format='cvs': there is no such format.*csv"):
        penstock.open(file, format="cvs")
    with pytest.raises(OptionError, match="holds no MDS"):
        penstock.open(file.parent, format="MDS")


def test_a_format_that_is_given_takes_its_own_files_of_a_folder(tmp_path: Path) -> None:
    written(tmp_path / "d" / "a.csv", "a,b\n1,2\n")
    written(tmp_path / "d" / "b.jsonl", '{"a": 1}\n')
    assert len(penstock.open(tmp_path / "d", format="csv")) == 1


def test_a_file_that_no_delimiter_cuts_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = written(tmp_path / "a.csv", "a;b;c\n1;2\n3\n4;5;6;7\n")
    rows = penstock.open(file)
    assert rows.schema.names == ["a;b;c"]
    assert "a.csv has one column, 'a;b;c', with the delimiter ','" in caplog.text


def test_quoted_empty_cells_are_null_in_columns_that_are_no_text(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", 'n,x,t\n1,"",""\n"","2.5",y\n')
    rows = penstock.open(file)
    assert rows.schema.types == [pa.int64(), pa.float64(), pa.string()]
    assert rows[:] == [{"n": 1, "x": None, "t": ""}, {"n": None, "x": 2.5, "t": "y"}]
    assert rows[1] == {"n": None, "x": 2.5, "t": "y"}
    lists = rows.read([1], {"n": "list<int64>", "t": "string"})
    assert lists.to_pylist() == [{"n": None, "t": "y"}]
    texts = rows.read([0, 1], {"n": "text", "t": "text"}).to_pylist()
    assert texts == [{"n": "1", "t": ""}, {"n": None, "t": "y"}]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("materialize", [False, True])
def test_field_types_take_empty_quoted_cells(
    workers: int,
    materialize: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    text = "n,x,t\n" + "".join(
        f'"{i % 3 or ""}","{i / 2 if i % 2 else ""}","w"\n' for i in range(9)
    )
    rows = penstock.open(written(tmp_path / "a.csv", text))
    fields = {"n": "int64 = -1", "x": "float32", "t": "string"}
    loader = penstock.DataLoader(
        rows, fields, batch_size=4, num_workers=workers, materialize=materialize
    )
    batches = list(loader)
    assert [n for b in batches for n in b["n"].tolist()] == [i % 3 or -1 for i in range(9)]
    assert [x == x for b in batches for x in b["x"].tolist()] == [bool(i % 2) for i in range(9)]  # noqa: PLR0124
    (batch,) = penstock.DataLoader(rows, {"n": "int64?"}, batch_size=9)
    assert "n" in batch


@pytest.mark.parametrize(
    ("nulls", "texts"),
    [
        ([], ["", "", "NA", "NA", "z", None]),
        (["NA"], ["", "", None, "NA", "z", None]),
        (["", "NA"], [None, "", None, "NA", "z", None]),
    ],
)
def test_empty_fields_of_text_are_texts_where_that_is_asked_for(
    nulls: list[str], texts: list[str | None], tmp_path: Path
) -> None:
    files = [
        written(tmp_path / "a.csv", 't,n,no,end\n,1,,x\n"","",,y\nNA,,,x\n"NA",2,,""\nz,4,,x\n'),
        written(tmp_path / "b.csv", "n,end\n3,\n"),
    ]
    own = {"empty_text": True, "null_values": nulls}
    for rows in (penstock.open(files, format_options=own), CsvRows(files, **own)):  # type: ignore[arg-type]
        assert [row["t"] for row in rows] == texts
        assert [row["n"] for row in rows] == [1, None, None, 2, 4, 3]
        assert [row["no"] for row in rows] == [None] * 6
        assert [row["end"] for row in rows] == ["x", "y", "x", "", "x", None if "" in nulls else ""]
        assert rows.read([0, 2, 5], {"t": "text", "n": "text"}).to_pylist() == [
            {"t": texts[0], "n": "1"},
            {"t": texts[2], "n": None},
            {"t": None, "n": "3"},
        ]


@pytest.mark.parametrize("more", [{}, {"empty_text": True}, {"null_values": ["-"]}])
def test_nulls_of_numbers_are_texts_in_columns_of_text(more: Any, tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", 'n,x,b,t\n1,NA,true,NA\nNA,2.5,NA,x\n"NA",,,"NA"\n')
    rows = penstock.open(file, format_options={"number_nulls": ["NA"], **more})
    assert rows.schema.types == [pa.int64(), pa.float64(), pa.bool_(), pa.string()]
    assert [list(row.values()) for row in rows] == [
        [1, None, True, "NA"],
        [None, 2.5, None, "x"],
        [None, None, None, "NA"],
    ]


def test_own_spellings_of_null_are_null(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", 'n,x,t\n1,"NA",x\nNULL,2.5,NA\n,,"NA"\n')
    plain = penstock.open(file)
    assert plain.schema.types == [pa.string()] * 3
    rows = penstock.open(file, format_options={"null_values": ["NA", "NULL"]})
    assert rows.schema.types == [pa.int64(), pa.float64(), pa.string()]
    assert rows[:] == [
        {"n": 1, "x": None, "t": "x"},
        {"n": None, "x": 2.5, "t": None},
        {"n": None, "x": None, "t": "NA"},
    ]
    assert plain[0] == {"n": "1", "x": "NA", "t": "x"}, "the two have indexes of their own"
    assert plain.fingerprint != rows.fingerprint
    assert rows.read([0, 1], {"x": "float32", "n": "int8"}).to_pylist() == [
        {"x": None, "n": 1},
        {"x": 2.5, "n": None},
    ]
    with pytest.raises(SchemaMismatchError, match=r"'x' holds 'NA'.*null_values="):
        plain.read([0], {"x": "float32"})
    with pytest.raises(OptionError, match="null_values='NA': expected a list"):
        penstock.open(file, format_options={"null_values": "NA"})


def test_types_of_columns_are_given(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", "zip,day,n\n01234,2024-05-01,7\n")
    types = {"zip": "string", "day": "date32"}
    rows = penstock.open(file, format_options={"types": types})
    assert rows.schema.types == [pa.string(), pa.date32(), pa.int64()]
    assert rows[0]["zip"] == "01234"
    assert len(penstock.open(file)) == 1
    with pytest.raises(OptionError, match="no type is called"):
        penstock.open(file, format_options={"types": {"zip": "strin"}})
    with pytest.raises(OptionError, match="expected a text"):
        penstock.open(file, format_options={"types": {"zip": pa.string()}})
    with pytest.raises(OptionError, match=r"types= names 'zap', .*: zip, day, n"):
        _ = penstock.open(file, format_options={"types": {"zap": "string"}}).schema


def test_indexes_of_other_options_lie_apart_and_the_plain_one_where_it_lay(
    tmp_path: Path, cache: Path
) -> None:
    file = written(tmp_path / "a.csv", "a,b\n1,NA\n")
    penstock.open(file)
    (old,) = (cache / "indexes").glob("*/meta.json")
    assert old.parent.name == digest(["csv", PLAIN, [str(file)]])
    assert json.loads(old.read_text())["options"] == PLAIN
    for options in ({"null_values": ["NA"]}, {"header": False}, {"types": {"a": "string"}}):
        penstock.open(file, format_options=options)
    assert len([*(cache / "indexes").glob("*/meta.json")]) == 4


def test_the_options_of_an_index_that_is_there_hold(tmp_path: Path) -> None:
    folder = written(tmp_path / "d" / "a.csv", "a;b\n1;NA\n").parent
    penstock.open(folder, format_options={"null_values": ["NA"], "header": False})
    rows = penstock.open(folder)
    assert rows[1] == {"f0": "1", "f1": None}
    with pytest.raises(CorruptIndexError, match="header"):
        penstock.open(folder, format_options={"header": True})
    # An index of one column, as 0.1.0 made it of this file.
    shutil.rmtree(folder / "index")
    penstock.open(folder, format_options={"delimiter": ","})
    assert penstock.open(folder).schema.names == ["a;b"]


ODD = {
    "ragged": b"a,b\n1\n2,3,4\n5,6\n",
    "a lone quote": b'a,b\n1,"x\n2,y\n',
    "NUL": b"a\x00,b\n1\x00,2\n",
    "Latin-1": "a,b\né,1\n".encode("latin-1"),
    "a header in Latin-1": "é,b\n1,2\n".encode("latin-1"),
    "UTF-16": "a,b\n1,2\n".encode("utf-16"),
    "UTF-16 without a mark": "a,b\n1,2\n".encode("utf-16-be"),
    "UTF-32": "a,b\n1,2\n".encode("utf-32"),
    "two names alike": b"a,a\n1,2\n",
    "two names empty": b"a,,\n1,2,3\n",
    "a surrogate": b"a,b\n\xed\xa0\x80,1\n",
    "bytes of another format": b"PK\x03\x04" + bytes(range(256)) * 4,
    "a long field": b"a,b\n" + b"x" * 300_000 + b",1\n",
}
WITHOUT_ERROR = {"NUL", "a long field"}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_file_is_read_or_named_with_a_remedy(name: str, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(ODD[name])
    if name in WITHOUT_ERROR:
        assert len(penstock.open(file)[:]) == 1
        return
    with pytest.raises(PenstockError, match=r"a\.csv") as caught:
        penstock.open(file)[:]
    assert not isinstance(caught.value, pa.ArrowException)


def test_text_in_another_encoding_is_named_with_the_command_that_converts_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes("a,b\né,1\n".encode("latin-1"))
    with pytest.raises(SchemaMismatchError, match=r"'a' holds .*not UTF-8.*iconv -f WINDOWS-1252"):
        penstock.open(file)[0]
    file = tmp_path / "b.csv"
    file.write_bytes("a,b\n1,2\n".encode("utf-16-le"))
    with pytest.raises(MalformedLineError, match=r"b\.csv is UTF-16LE.*iconv -f UTF-16LE"):
        penstock.open(file)


TYPES = [
    *("bool", "int8", "uint64", "float16", "float32", "string", "binary", "large_string"),
    *("date32", "timestamp[us]", "timestamp[ns, UTC]", "duration[ms]", "list<int64>", "int64[2]"),
]


def test_no_file_and_no_type_raises_an_error_of_arrow(tmp_path: Path) -> None:
    chance = random.Random(7)
    signs = [
        *(b'"', b"'", b",", b";", b"\n", b"\r", b"\t", b"|", b"\\", b"a", b"1", b"1.5", b" "),
        *(b"\x00", b"\xff", "é".encode(), b"NA", b"true", b'""', b'","', b"2024-01-01"),
    ]
    for number in range(rounds(40, 1000)):
        file = tmp_path / f"{number}.csv"
        file.write_bytes(b"".join(chance.choices(signs, k=chance.randrange(1, 40))))
        try:
            rows = penstock.open(file, format_options={"null_values": ["NA"]} if number % 2 else {})
        except PenstockError:
            continue
        for type_ in [None, *chance.sample(TYPES, 3)]:
            try:
                names = rows.schema.names[:1] if type_ else []
                _ = rows.read(range(len(rows)), {names[0]: type_}) if names else rows[:]
            except PenstockError:
                continue


def test_a_bad_row_and_a_bad_value_are_named_by_file_line_field_and_value(tmp_path: Path) -> None:
    text = 'a,b\r\n"x\ny",1\r\n\r\nz,oops\r\n1,2,3\r\n'
    rows = penstock.open(written(tmp_path / "a.csv", text))
    with pytest.raises(
        SchemaMismatchError, match=r"record 1 \(.*a\.csv, line 5, .*'b' holds 'oops'"
    ):
        rows.read([0, 1], {"b": "int64"})
    with pytest.raises(MalformedLineError, match=r"record 2 \(.*a\.csv, line 6, ") as caught:
        rows[:]
    assert caught.value.line_number == 6
    assert "delimiter=" in caught.value.remedy


def test_a_header_alone_has_columns(tmp_path: Path) -> None:
    rows = penstock.open(written(tmp_path / "a.csv", "a;b\n"))
    assert rows.schema.names == ["a", "b"]
    assert list(penstock.DataLoader(rows, {"a": "int64"}, batch_size=2)) == []


def test_a_row_is_refused_by_its_own_bytes_too(tmp_path: Path) -> None:
    rows = CsvRows(written(tmp_path / "a.csv", "a,b\n1,2\n"))
    with pytest.raises(MalformedLineError, match=r"b'1,2,3'.*3 fields, and its file has 2 columns"):
        rows._process_sample(b"1,2,3")  # noqa: SLF001 (as code written for data-forager calls it)
