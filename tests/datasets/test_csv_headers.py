"""Files of CSV without a header: when `penstock.open` says so, and who never guesses."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock import _words
from penstock.datasets import CsvRows
from penstock.errors import CorruptIndexError, SchemaMismatchError
from penstock.schema import Number
from tests.cli.commands import document, succeed
from tests.lightning.small_models import SchemaModel
from tests.lightning.streaming_files import module

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))


def folder_of(tmp_path: Path, *texts: str) -> Path:
    (tmp_path / "d").mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        (tmp_path / "d" / f"part-{number}.csv").write_text(text)
    return tmp_path / "d"


RECORDS = {
    "a number over numbers": (["7,ada\n8,bob\n9,cy\n"], 3),
    "a number in a file of one row": (["7,ada\n"], 1),
    "numbers alone": (["1,2\n3,4\n5,6\n"], 3),
    "a fraction, and nulls below": (["x,0.5\ny,NA\nz,\nv,-1e3\n"], 4),
    "a date over dates": (["ada,2024-01-31\nbob,2024-02-01\n"], 2),
    "decimal commas": (["ada;1,5\nbob;2,5\n"], 2),
    "files that share a value": (["1,red,10\n2,blue,11\n", "3,red,12\n4,blue,13\n"], 4),
    "files of one row": (["1,red\n", "2,red\n", "3,blue\n"], 3),
    "files of one row of text": (["ada,red\n", "bob,blue\n"], 2),
    "texts that differ by file": (["ada,red\nbob,blue\n", "cy,pink\ndi,gold\n"], 4),
    "a text that comes again": (["ada,red\nbob,red\n", "cy,red\ndi,gold\n"], 4),
    "an empty file among others": (["", "1,a\n2,b\n"], 2),
}
NAMES = {
    "a text over numbers": (["id,name\n7,ada\n"], 1),
    "texts alone": (["name,city\nada,Rome\nbob,Rome\n"], 2),
    "one text of two that stand over numbers": (["1,x\n2,3\n4,5\n"], 2),
    "years": (["country,2019,2020\nde,1,2\nfr,3,4\n"], 2),
    "numbers of columns, as pandas writes them": (["0,1,2\n0.5,1.5,2.5\n"], 1),
    "an index of pandas": ([",0,1\n0,0.5,1.5\n1,2.5,3.5\n"], 2),
    "dates over numbers": (["country,2020-01-22,2020-01-23\nde,1,2\n"], 1),
    "the same in all files": (["name,city\nada,Rome\n", "name,city\nbob,Bern\n"], 2),
    "one more column": (["name\nada\n", "name,city\nbob,Bern\n"], 2),
    "another order": (["name,city\nada,Rome\n", "city,name\nBern,bob\n"], 2),
    "another name": (["user,comment\nada,x y\n", "user,text\nbob,z\n"], 2),
    "a header that was written twice": (["name,city\nada,Rome\nname,city\nbob,Bern\n"], 3),
    "nothing but names": (["name,city\n"], 0),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_first_row_that_is_a_record_is_one(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts, count = RECORDS[name]
    folder = folder_of(tmp_path, *texts)
    with caplog.at_level(logging.WARNING, "penstock"):
        ds = penstock.open(folder)
    assert len(ds) == count
    assert [record.getMessage() for record in caplog.records if "header=" in record.getMessage()]
    assert set(ds.schema.names) <= {"f0", "f1", "f2"}
    rows = [row.replace(";", ",") for text in texts for row in text.splitlines()]
    if name != "decimal commas":
        assert [str(row["f0"]) for row in ds] == [row.split(",")[0] for row in rows]


@pytest.mark.parametrize("name", NAMES)
def test_a_first_row_without_proof_is_the_header(name: str, tmp_path: Path) -> None:
    texts, count = NAMES[name]
    ds = penstock.open(folder_of(tmp_path, *texts))
    assert len(ds) == count
    assert "f0" not in ds.schema.names


def test_header_decides(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "7,ada\n8,bob\n")
    file = folder / "part-0.csv"
    named = penstock.open(file, format_options={"header": True})
    assert named[:] == [{"7": 8, "ada": "bob"}]
    assert (
        len(penstock.open(folder_of(tmp_path, "a,b\n1,2\n"), format_options={"header": False})) == 2
    )
    with pytest.raises(CorruptIndexError, match="refresh='rebuild'"):
        penstock.open(folder, format_options={"header": True})
    rebuilt = penstock.open(folder, format_options={"header": True}, refresh="rebuild")
    assert rebuilt[:] == [{"a": 1, "b": 2}]
    assert len(penstock.open(folder)) == 1


def test_names_that_the_caller_knows_are_the_header(tmp_path: Path) -> None:
    file = folder_of(tmp_path, "user,101,7\nann,1,2\n") / "part-0.csv"
    assert len(penstock.open(file)) == 2
    assert len(penstock.open(file, format_options={"types": {"101": "float64"}})) == 1


def test_who_says_nothing_of_a_header_never_guesses(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "7,ada\n8,bob\n")
    assert CsvRows(folder / "part-0.csv")[:] == [{"7": 8, "ada": "bob"}]
    own = module(folder, "csv", model=SchemaModel(Number("7"), batch_size=4), test=".")
    (batch,) = own.dataloader("test")
    assert batch["record/7"].content[:, 0].tolist()[0] == 8


@pytest.mark.parametrize("is_folder", [True, False])
def test_an_index_that_is_there_decides(
    is_folder: bool,  # noqa: FBT001
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = folder_of(tmp_path, "7,ada\n8,bob\n")
    path = folder if is_folder else folder / "part-0.csv"
    CsvRows(path)  # As an earlier version has left it.
    _words._warned.clear()  # noqa: SLF001 (as another process begins)
    caplog.clear()
    ds = penstock.open(path)
    assert ds[:] == [{"7": 8, "ada": "bob"}]
    assert "has columns that are called 7, ada, as a record may begin" in caplog.text
    assert ds.fingerprint == CsvRows(path).fingerprint


@pytest.mark.parametrize("what", ["d", "d/*.csv", "d/part-0.csv"])
def test_an_index_of_records_alone_stays_one(what: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "ada,7\nbob,8\n")
    first = penstock.open(tmp_path / what)
    assert len(first) == 2
    # By its own rows this file has a header, which no opening of it alone would miss.
    with (folder / "part-0.csv").open("a") as file:
        file.write("cy,x\n")
    folder_of(tmp_path, (folder / "part-0.csv").read_text(), "name,n\ndi,9\n")
    again = penstock.open(tmp_path / what)
    assert again[:3] == [
        {"f0": "ada", "f1": "7"},
        {"f0": "bob", "f1": "8"},
        {"f0": "cy", "f1": "x"},
    ]
    assert again.was(first.fingerprint, 2)


def test_files_with_and_without_a_header_are_not_joined(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = folder_of(tmp_path, "name,n\nada,1\n", "name,2\nbob,3\n")
    with pytest.raises(SchemaMismatchError, match=r"part-0\.csv .*part-1\.csv") as caught:
        penstock.open(folder)
    assert "header=" in caught.value.remedy
    assert len(CsvRows(folder)) == 2
    assert "part-1.csv has columns that are called name, 2" in caplog.text


def test_every_command_takes_the_first_row_alike(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "7,ada\n8,bob\n")
    file = folder / "part-0.csv"
    assert document("info", file)["dialect"]["header"] is False
    assert "header False" in succeed("info", file)
    assert json.loads(succeed("show", file, "0", "--json")) == [{"f0": 7, "f1": "ada"}]
    assert document("check", file)["records"] == 2
    assert document("profile", file)["records"] == 2
    assert document("index", folder)["records"] == 2
    assert document("index", folder, "--overwrite")["records"] == 2
    named: list[dict[str, Any]] = json.loads(succeed("show", file, "0", "--json", "--header"))
    assert named == [{"7": 8, "ada": "bob"}]
    assert document("index", folder, "--overwrite", "--header")["records"] == 1
