from __future__ import annotations

import json
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.cli._profile import bars_text
from penstock.errors import SchemaMismatchError
from penstock.index._load import read_meta
from penstock.jsonl import JsonlDir
from tests.cli.commands import document, invoke, options, succeed, written
from tests.unprivileged import as_nobody, folder_for_all

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.s3_server import S3Server


def record(n: int) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": n,
        "flag": n % 4 == 0,
        "city": ["Como", "Graz"][n % 2],
        "tags": [n % 5] * (n % 3),
        "user": {"age": n % 90 if n % 10 else None},
        "code": n if n < 1500 else str(n),
    }
    return told if n < 1200 else {**told, "late": n / 2}


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A folder of 2,000 records whose fields drift, without an index."""
    written(tmp_path / "lines" / "a.jsonl", *(json.dumps(record(n)) for n in range(2000)))
    return tmp_path / "lines"


def fields(*arguments: object) -> dict[str, str]:
    """Return the dict that is printed, as Python reads it."""
    types: dict[str, str] = eval(succeed("profile", *arguments, "--as", "fields"))
    return types


def load_all(path: Path, types: dict[str, str]) -> int:
    """Load every record under these types; return how many there were."""
    source = penstock.open(path)
    loader = penstock.DataLoader(source, types, batch_size=256, num_workers=0, shuffle=True)
    return sum(len(batch) for batch in loader)


def test_a_profile_is_a_table_with_a_line_a_field(lines: Path) -> None:
    text = succeed("profile", lines)
    heading, _, header, *rows = text.splitlines()
    assert heading == f"{lines}: 2,000 records, read just now"
    columns = "field type null missing distinct min median max spread length example"
    assert " ".join(header.split()) == columns
    cells = {row.lstrip("! ").split()[0]: row for row in rows[: rows.index("")]}
    assert cells["id"].lstrip().startswith("id ")
    assert cells["id"].split()[5:8:2] == ["0", "1999"]
    assert "▇▇▇" in cells["id"]
    assert "true 25 %" in cells["flag"]
    assert cells["user.age"].split()[2] == "10"  # Per cent that are null.
    assert "0 … 1 … 2" in cells["tags"]
    assert '"Como"' in cells["city"] or '"Graz"' in cells["city"]
    assert "int 75 %, string 25 %" in cells["code"]
    assert "60 %" in cells["late"]  # Are missing.


def test_drift_is_marked_and_told_below(lines: Path) -> None:
    rows = succeed("profile", lines).splitlines()
    assert [row.split()[1] for row in rows if row.startswith("!") and "…" in row + "…"][:2] == [
        "code",
        "late",
    ]
    assert rows[-2:] == [
        "! code is int in records 0 to 1,499, and string from record 1,500 on",
        "! late is missing or null before record 1,200 (800 values since)",
    ]


def test_a_profile_is_made_once_with_the_index_and_kept_there(lines: Path) -> None:
    assert "read just now" in succeed("profile", lines)
    kept = (lines / "index" / "profile.json").read_bytes()
    assert "profile of a moment ago" in succeed("profile", lines)
    assert document("profile", lines) == json.loads(kept)
    assert json.loads(succeed("profile", lines, "--as", "json")) == json.loads(kept)
    assert len(penstock.open(lines)) == 2000


def test_an_index_gets_a_profile_and_nothing_else_of_it_changes(lines: Path) -> None:
    written(lines / "b.jsonl", "{oops", json.dumps(record(2000)), "")
    assert invoke("index", lines, "--validate", "--full-hash").exit_code == 1
    succeed("materialize", lines, "id:int64")
    before = read_meta(str(lines / "index"))
    assert "2,001 records, read just now" in succeed("profile", lines)
    after = read_meta(str(lines / "index"))
    assert before is not None
    assert after is not None
    assert (after.profiled, after.validated, after.bad_lines) == (True, True, 1)
    assert after.fingerprint == before.fingerprint
    assert [file.hash for file in after.files] == [file.hash for file in before.files]
    assert not document("materialize", lines, "--list")["columns"][0]["stale"]
    assert "profile of" in succeed("profile", lines)


def test_records_keep_their_numbers_where_a_new_index_would_change_them(
    lines: Path, cache: Path
) -> None:
    succeed("index", lines)
    written(lines / "0.jsonl", json.dumps(record(2000)))
    succeed("index", lines, "--update")
    fingerprint = penstock.open(lines).fingerprint
    told = document("profile", lines)
    assert told["records"] == 2001
    assert [field["last"] for field in told["fields"] if field["path"] == "id"] == [2000]
    assert penstock.open(lines).fingerprint == fingerprint
    assert not (lines / "index" / "profile.json").exists()
    assert len([*(cache / "profiles").glob("*.json")]) == 1
    assert "profile of" in succeed("profile", lines)
    os.utime(lines / "a.jsonl")  # Something in the middle of it may be another now.
    assert "read just now" in succeed("profile", lines)


def test_a_stale_index_is_told_and_the_files_are_profiled_as_they_are(lines: Path) -> None:
    succeed("index", lines, "--profile")
    written(lines / "a.jsonl", '{"id": "x"}')
    done = invoke("profile", lines)
    assert done.exit_code == 0
    assert "1 record, read just now" in done.stdout
    assert "--overwrite --profile repairs it" in done.stderr


def test_the_dict_for_a_loader_can_be_pasted_and_nothing_fails_under_it(lines: Path) -> None:
    types = fields(lines)
    assert types == {
        "id": "int64",
        "flag": "bool",
        "code": "json",
        "city": "category",
        "tags": "list<int64>",
        "user.age": "int64?",
        "late": "float64",
    }
    assert load_all(lines, types) == 2000
    text = succeed("profile", lines, "--as", "fields")
    assert '    "code": "json",  # code is int in records 0 to 1,499, and string from' in text
    assert fields(lines, "--fields", "user,id") == {"id": "int64", "user.age": "int64?"}


def test_a_few_odd_values_are_a_comment_behind_the_type_of_all_others(tmp_path: Path) -> None:
    records = [{"price": n / 7, "tags": [n]} for n in range(5000)]
    records[17]["price"] = "n/a"
    lines = written(tmp_path / "a.jsonl", *map(json.dumps, records), '{"tags": null}')
    text = succeed("profile", lines, "--as", "fields")
    assert '"price": "float64",  # except: price is string in record 17 (1 of 5,000 values)' in text
    assert '"tags": "list<int64>",  # 1 null list is an empty one' in text
    source = penstock.open(lines)
    assert len(source.read(range(18, 5001), fields(lines))) == 4983
    with pytest.raises(SchemaMismatchError, match="record 17 "):
        source.read([17], fields(lines))


def test_tables_have_the_types_of_their_schema_and_null_where_there_is_some(
    tmp_path: Path,
) -> None:
    table = pa.table(
        {
            "n": pa.array([1, None, 3], pa.int16()),
            "when": pa.array([1, 2, 3], pa.timestamp("ns")),
            "v": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32(), 2)),
            "at": [{"x": 1}, {"x": None}, None],
            "odd": pa.array([1, 2, 3]).cast(pa.decimal128(30, 2)),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    types = fields(tmp_path / "t.parquet")
    assert types == {"n": "int16?", "when": "timestamp[ns]", "v": "float32[2]", "at.x": "int64?"}
    assert load_all(tmp_path / "t.parquet", types) == 3
    assert "profile of" in succeed("profile", tmp_path / "t.parquet")
    written(tmp_path / "t.csv", "id,x,name", "1,,ann", "2,1.5,", "3,word,bob")
    types = fields(tmp_path / "t.csv")
    assert types == {"id": "int64", "x": "string", "name": "string"}
    assert load_all(tmp_path / "t.csv", types) == 3
    written(tmp_path / "t.tsv", "id\tname", "1\tann")
    assert fields(tmp_path / "t.tsv") == {"id": "int64", "name": "string"}


def test_columns_of_integers_and_floats_are_float64_where_that_changes_no_number(
    tmp_path: Path,
) -> None:
    integers = {"id": [1, None], "n": [2**53 + 1, 2], "s": [{"x": 1}, {"x": 2}], "l": [[1], [2]]}
    floats = {"id": [3.5, 2.0], "n": [1.5, 2.0], "s": [{"x": 1.5}, {"x": 2.0}], "l": [[0.5], []]}
    for name, columns in (("a", integers), ("b", floats)):
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    types = fields(tmp_path)
    assert types == {"id": "float64", "s.x": "float64", "l": "list<float64>"}
    (batch,) = penstock.DataLoader(tmp_path, types, batch_size=4, num_workers=0, shuffle=False)
    assert batch["s.x"].tolist() == [1, 2, 1.5, 2]
    text = succeed("profile", tmp_path, "--as", "fields")
    assert '# "n" is left out: no tensor stands for float and int' in text


def test_many_records_are_profiled_by_processes_and_give_the_same(tmp_path: Path) -> None:
    table = pa.table({"id": range(3000), "x": [n / 7 for n in range(3000)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=500)
    pq.write_table(table, tmp_path / "b.parquet", row_group_size=500)
    one = document("profile", tmp_path / "a.parquet", "--workers", "0")
    two = document("profile", tmp_path / "b.parquet", "--workers", "2")
    assert one == two
    assert one["records"] == 3000


def test_lines_that_are_no_records_are_counted(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", '{"id": 1}', "[1]", "{oops")
    text = succeed("profile", file)
    assert "3 records, read just now; 2 of them no objects (list 1, unreadable 1)" in text
    assert fields(file) == {"id": "int64"}


def test_of_nothing_nothing_is_known(tmp_path: Path) -> None:
    empty = written(tmp_path / "empty.jsonl")
    assert "0 records" in succeed("profile", empty)
    assert fields(empty) == {}
    assert document("profile", empty)["fields"] == []
    assert invoke("profile", tmp_path / "nothing").exit_code == 3


def test_a_command_line_that_is_wrong_is_refused(lines: Path) -> None:
    for arguments, said in [
        (("--json", "--as", "fields"), "either --json or --as fields"),
        (("--fields", "nothing"), "no record has a field 'nothing'; there are: id, flag"),
        (("--as", "sentences"), "--as"),
    ]:
        done = invoke("profile", lines, *arguments)
        assert done.exit_code == 2
        assert said in done.stderr


def test_names_and_texts_of_any_kind_stay_on_their_line(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", json.dumps({"a\nb": "c\nd", "\ud800": "\u202e", "é": "ü"}))
    text = succeed("profile", file)
    assert len(text.splitlines()) == 6
    assert "a\\nb" in text
    types = fields(file)
    assert set(types) == {"a\nb", "\\ud800", "é"}


def test_a_folder_that_may_not_be_written_to_has_its_profile_in_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with folder_for_all() as place:
        cache = place / "cache"
        cache.mkdir()
        cache.chmod(0o777)
        monkeypatch.setenv("PENSTOCK_CACHE", str(cache))
        written(place / "bare" / "a.jsonl", '{"id": 1}')
        assert as_nobody(partial(document, "profile", place / "bare"))["records"] == 1
        assert [*cache.glob("indexes/*/profile.json")]
        written(place / "indexed" / "a.jsonl", '{"id": 1}')
        succeed("index", place / "indexed")
        assert as_nobody(partial(document, "profile", place / "indexed"))["records"] == 1
        assert not (place / "indexed" / "index" / "profile.json").exists()
        assert len([*cache.glob("profiles/*.json")]) == 1


def test_remote_data_is_profiled_and_nothing_is_written_beside_it(
    s3_server: S3Server, bucket: str, cache: Path
) -> None:
    url, given_options = f"s3://{bucket}/data", options(s3_server.storage_options)
    with JsonlDir(url, s3_server.storage_options).writer_sync() as writer:
        writer.write_many(record(n) for n in range(50))
    keys = s3_server.list_keys(bucket)
    assert document("profile", url, *given_options)["records"] == 50
    assert s3_server.list_keys(bucket) == keys
    assert [*cache.glob("indexes/*/profile.json")]
    assert fields(url, *given_options)["user.age"] == "int64?"
    succeed("index", url, *given_options)
    succeed("index", url, "--overwrite", "--profile", *given_options)
    assert document("profile", url, *given_options)["records"] == 50


@given(counts=st.lists(st.integers(0, 1000), max_size=16))
def test_bars_show_every_count_and_nothing_where_there_is_none(counts: list[int]) -> None:
    bars = bars_text(counts)
    assert len(bars) == (len(counts) if any(counts) else 0)
    for bar, count in zip(bars, counts, strict=False):
        assert (bar == " ") == (count == 0)
    assert not any(counts) or "█" in bars


def test_help_says_what_the_signs_mean() -> None:
    text = " ".join(succeed("profile", "--help").split())
    assert "A field marked ! changes on the way" in text
    assert "Marked ? it may mean nothing" in text
