from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
import pytest

from penstock.cli._app import app
from tests.cli.commands import document, invoke, options, run, succeed
from tests.cli.token_samples import bpe

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.s3_server import S3Server

READING = [
    "info", "show", "index", "check", "profile", "materialize", "plan", "bench", "convert",
    "tokenize",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.csv").write_text("id;x;note\n1;2,5;NA\n2;3,5;y\n")
    return tmp_path / "d" / "a.csv"


@pytest.mark.parametrize("verb", READING)
def test_every_verb_that_reads_takes_the_options_of_formats(verb: str) -> None:
    command = app.get_command(click.Context(app), verb)
    assert command is not None
    names = {name for param in command.params for name in param.opts}
    assert {"--format", "--delimiter", "--quote", "--no-header", "--columns", "--null"} <= names


def test_every_verb_finds_the_delimiter(table: Path, tmp_path: Path) -> None:
    assert json.loads(succeed("show", table, "0", "--json"))[0] == {
        "id": 1, "x": "2,5", "note": "NA"
    }  # fmt: skip
    assert "nothing wrong" in succeed("check", table)
    assert "delimiter ';'" in succeed("info", table)
    found = document("info", table)
    assert found["dialect"]["delimiter"] == ";"
    assert [column["name"] for column in found["columns"]] == ["id", "x", "note"]
    profile = document("profile", table)
    assert [field["path"] for field in profile["fields"]] == ["id", "x", "note"]
    succeed("convert", table, tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])["id"] == 1
    assert document("index", table.parent)["records"] == 2
    assert document("plan", table.parent, "--batch-size", "1")["steps"] == 2
    succeed("materialize", table.parent, "id:int64")


def test_columns_of_one_name_get_others(table: Path) -> None:
    table.write_text("a,b,b\n1,2,3\n")
    done = invoke("info", table)
    assert done.exit_code == 2
    assert "two columns are called 'b'" in done.stderr
    assert "--columns A,B,C" in done.stderr
    for verb in ("info", "check", "profile"):
        succeed(verb, table, "--columns", "a,b,c")
    shown = json.loads(succeed("show", table, "0", "--json", "--columns", "a,b,c"))
    assert shown == [{"a": 1, "b": 2, "c": 3}]


def test_given_options_are_used_by_every_verb(table: Path, tmp_path: Path) -> None:
    text = "1|'x|y'|?\n2|z|7\n"
    table.write_text(text)
    given = ["--delimiter", "|", "--quote", "'", "--no-header", "--null", "?"]
    first = {"f0": 1, "f1": "x|y", "f2": None}
    assert json.loads(succeed("show", table, "0", "--json", *given))[0] == first
    assert document("info", table, *given)["dialect"]["null_values"] == ["?"]
    assert "nothing wrong" in succeed("check", table, *given)
    succeed("convert", table, tmp_path / "out.jsonl", *given)
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0]) == first
    bpe(tmp_path / "tokenizer.json")
    tokens = [tmp_path / "tokens", "--tokenizer", tmp_path / "tokenizer.json", "--text-key", "f1"]
    assert document("tokenize", table, *tokens, *given)["documents"] == 2
    assert document("index", table.parent, *given)["records"] == 2
    # An index that is there needs no options any more.
    assert json.loads(succeed("show", table.parent, "0", "--json"))[0] == first


def test_a_tab_is_typed_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\tc\n1,2\t3\n")
    for sign in ("tab", "\\t", "\t"):
        shown = succeed("show", tmp_path / "a.csv", "--json", "--delimiter", sign)
        assert json.loads(shown) == [{"a,b": "1,2", "c": 3}]


def test_a_file_with_another_name_is_read_by_format(tmp_path: Path) -> None:
    (tmp_path / "table.txt").write_text("a;b\n1;2\n")
    done = run("show", tmp_path / "table.txt", "--format", "csv", "--json")
    assert json.loads(done.stdout) == [{"a": 1, "b": 2}]
    assert invoke("show", tmp_path / "table.txt", "--format", "cvs").exit_code == 2
    assert invoke("show", tmp_path / "table.txt", "--delimiter", "::").exit_code == 2


def test_check_reports_a_file_that_no_delimiter_cuts(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a;b;c\n1;2\n3\n4;5;6;7\n")
    done = invoke("check", tmp_path / "a.csv")
    assert done.exit_code == 1
    assert "malformed header" in done.stdout
    assert "--delimiter" in done.stdout
    assert invoke("check", tmp_path / "a.csv", "--delimiter", ",").exit_code == 0


def test_an_index_of_other_options_is_named_and_not_used(table: Path) -> None:
    succeed("index", table.parent)
    done = invoke("show", table.parent, "--no-header", "--json")
    assert len(json.loads(done.stdout)) == 3
    assert "was built with {'header': True}, not with {'header': False}" in done.stderr
    done = invoke("index", table.parent, "--update", "--no-header")
    assert done.exit_code != 0
    assert invoke("index", table.parent, "--overwrite", "--no-header").exit_code == 0
    assert document("info", table.parent)["records"] == 3


def test_an_update_keeps_the_dialect_of_the_index(table: Path) -> None:
    succeed("index", table.parent, "--null", "NA")
    with table.open("a") as file:
        file.write("3;4,5;NA\n")
    succeed("index", table.parent, "--update")
    shown = json.loads(succeed("show", table.parent, "2", "--json"))
    assert shown == [{"id": 3, "x": "4,5", "note": None}]


def test_the_delimiter_is_found_in_object_storage(s3_server: S3Server, bucket: str) -> None:
    s3_server.put(bucket, "d/a.csv", b"a;b\n1;2,5\n")
    given = options(s3_server.storage_options)
    shown = succeed("show", f"s3://{bucket}/d/a.csv", "--json", *given)
    assert json.loads(shown) == [{"a": 1, "b": "2,5"}]
