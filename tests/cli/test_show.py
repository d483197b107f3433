from __future__ import annotations

import datetime as dt
import decimal
import gzip
import json
import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.commands import document, invoke, succeed, written

if TYPE_CHECKING:
    from pathlib import Path


def shown(path: Path, *arguments: str, code: int = 0) -> list[int]:
    return [record["id"] for record in document("show", path, *arguments, code=code)]


def test_the_first_five_records_are_shown_with_number_and_place(logs: Path) -> None:
    text = succeed("show", logs)
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads == [
        f"# 0 – {logs}/part-00000.jsonl.zst:1",
        f"# 1 – {logs}/part-00000.jsonl.zst:2",
        f"# 2 – {logs}/part-00000.jsonl.zst:3",
        f"# 3 – {logs}/part-00000.jsonl.zst:4",
        f"# 4 – {logs}/part-00001.jsonl.zst:1",
    ]
    bodies = text.split(heads[0])[1].split(heads[1])[0]
    assert json.loads(bodies) == {"id": 0, "user": {"name": "u0"}}


@pytest.mark.parametrize(
    ("which", "ids"),
    [
        ("0", [0]),
        ("7", [7]),
        ("-1", [9]),
        ("-10", [0]),
        ("2:4", [2, 3]),
        (":3", [0, 1, 2]),
        ("8:", [8, 9]),
        ("-3:", [7, 8, 9]),
        ("-3:-1", [7, 8]),
        (":-8", [0, 1]),
        ("3:-5", [3, 4]),
        ("-4:8", [6, 7]),
        ("8:100", [8, 9]),
        (":", list(range(10))),
    ],
)
def test_records_are_chosen_as_from_a_list(logs: Path, which: str, ids: list[int]) -> None:
    assert shown(logs, which) == ids


def test_a_negative_number_may_stand_anywhere_and_is_no_option(logs: Path) -> None:
    assert (
        invoke("show", logs, "--json", "-1").stdout == invoke("show", logs, "-1", "--json").stdout
    )
    assert invoke("show", "--fields", "id", logs, "-1").exit_code == 0
    assert len(shown(logs, "--seed", "-1", "--sample", "2")) == 2
    assert invoke("show", "--", logs, "-1").exit_code == 0


@pytest.mark.parametrize("which", ["10", "-11", "10:", "5:5", "100:200"])
def test_a_record_that_does_not_exist_is_a_finding(logs: Path, which: str) -> None:
    done = invoke("show", logs, which)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert "no such record" in done.stderr
    assert shown(logs, which, code=1) == []


def test_the_message_says_how_many_there_are(logs: Path) -> None:
    assert "holds 10 records" in invoke("show", logs, "10").stderr


@pytest.mark.parametrize("which", ["x", "1:2:3", "--", "1.5", "-"])
def test_a_number_that_is_none_is_refused(logs: Path, which: str) -> None:
    done = invoke("show", logs, "--", which)
    assert done.exit_code == 2
    assert "10:20" in done.stderr


def test_a_sample_is_the_same_for_a_seed_and_in_file_order(logs: Path) -> None:
    first = shown(logs, "--sample", "4", "--seed", "1")
    assert first == sorted(set(first))
    assert len(first) == 4
    assert shown(logs, "--sample", "4", "--seed", "1") == first
    assert {tuple(shown(logs, "--sample", "4", "--seed", str(seed))) for seed in range(8)} != {
        tuple(first)
    }
    assert shown(logs, "--sample", "99") == list(range(10))


def test_a_sample_and_a_number_exclude_each_other(logs: Path) -> None:
    assert invoke("show", logs, "1", "--sample", "2").exit_code == 2
    assert invoke("show", logs, "--sample", "0").exit_code == 2


def test_fields_are_picked_by_their_paths(logs: Path) -> None:
    (record,) = document("show", logs, "3", "--fields", "id, user.name,nope")
    assert record == {"id": 3, "user.name": "u3", "nope": None}


def test_a_field_that_no_record_has_is_a_warning(logs: Path) -> None:
    done = invoke("show", logs, "--fields", "id,usr.name")
    assert done.exit_code == 0
    assert done.stderr == "penstock: warning: none of the records shown has usr.name\n"


def test_bad_lines_have_no_number_and_are_told(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", '{"id":0}', "", "{oops", '{"id":1}', b"\xff", '{"id":2}')
    done = invoke("show", file, "--json")
    assert [record["id"] for record in json.loads(done.stdout)] == [0, 1, 2]
    assert done.exit_code == 0
    assert f"warning: skipped {file}, line 3: " in done.stderr
    assert f"warning: skipped {file}, line 5: not UTF-8" in done.stderr
    assert f"# 2 – {file}:6" in invoke("show", file, "2").stdout


def test_of_many_bad_lines_only_the_first_are_told(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", *["{oops"] * 100, '{"id":0}')
    done = invoke("show", file)
    assert len(done.stderr.splitlines()) == 11
    assert "100 malformed lines were skipped" in done.stderr


def test_values_are_those_of_the_file(tmp_path: Path) -> None:
    line = '{"big":123456789012345678901234567890,"nan":NaN,"lone":"\\ud800","text":"zażółć"}'
    file = written(tmp_path / "a.jsonl", line)
    text = succeed("show", file)
    assert "123456789012345678901234567890" in text
    assert '"nan": NaN' in text
    assert '"lone": "\\ud800"' in text
    assert "zażółć" in text


def test_json_is_json_even_with_nan(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", '{"n":[NaN,-Infinity,1.5],"big":' + "9" * 30 + "}", "[1]")
    done = invoke("show", file, "--json")
    assert "NaN" not in done.stdout
    assert json.loads(done.stdout) == [{"n": [None, None, 1.5], "big": int("9" * 30)}, [1]]
    assert "shown as null" in done.stderr


def test_a_record_of_any_depth_is_shown_or_said_to_be_too_deep(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    told = set()
    for depth in (*range(5, 1000, 15), 100_000):
        written(file, "[" * depth + "]" * depth)
        done = invoke("show", file)
        if done.stdout:
            told.add("shown")
            assert (done.exit_code, done.stderr) == (0, "")
        else:
            told.add("too deep")
            assert "nested too deeply" in done.stderr
            assert done.exit_code in (0, 1)
    assert told == {"shown", "too deep"}


def test_a_directory_without_files_shows_nothing(tmp_path: Path) -> None:
    done = invoke("show", tmp_path)
    assert (done.exit_code, done.stdout) == (0, "")
    assert document("show", tmp_path) == []


def test_a_damaged_file_ends_it_after_what_was_good(logs: Path) -> None:
    victim = logs / "part-00001.jsonl.zst"
    victim.write_bytes(victim.read_bytes()[:40])
    done = invoke("show", logs)
    assert done.exit_code == 3
    assert done.stdout.count("#") == 4
    assert str(victim) in done.stderr


@pytest.mark.parametrize("is_indexed", [False, True])
@pytest.mark.parametrize("which", ["0", "7", "-1", "2:4", ":3", "-3:", "3:-5", "8:100", ":"])
def test_an_index_changes_no_number(logs: Path, which: str, *, is_indexed: bool) -> None:
    if is_indexed:
        succeed("index", logs)
    bounds = [int(bound) if bound else None for bound in which.split(":")]
    expected = list(range(10))[slice(*bounds)] if ":" in which else [range(10)[int(which)]]
    assert shown(logs, which) == expected


def test_with_an_index_the_place_is_a_byte_and_nothing_else_is_read(logs: Path) -> None:
    succeed("index", logs)
    assert f"# 5 – {logs}/part-00001.jsonl.zst at byte 30\n" in succeed("show", logs, "5")
    victim = logs / "part-00000.jsonl.zst"
    status = victim.stat()
    victim.write_bytes(b"\0" * status.st_size)
    os.utime(victim, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert shown(logs, "5") == [5]
    assert invoke("show", logs, "0").exit_code == 3


def test_a_sample_is_the_same_with_and_without_an_index(logs: Path) -> None:
    seeds = [(size, seed) for size in (1, 4, 20) for seed in range(5)]
    before = [shown(logs, "--sample", str(size), "--seed", str(seed)) for size, seed in seeds]
    succeed("index", logs)
    assert [
        shown(logs, "--sample", str(size), "--seed", str(seed)) for size, seed in seeds
    ] == before


def test_looking_writes_nothing_beside_the_data(logs: Path, tmp_path: Path) -> None:
    written(tmp_path / "t" / "a.csv", "id", "1", "2")
    for folder in (logs, tmp_path / "t"):
        before = sorted(folder.iterdir())
        for verb in (["show"], ["show", "--where", "id > 1"], ["show", "--sample", "1"], ["info"]):
            succeed(verb[0], folder, *verb[1:])
        assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("is_indexed", [False, True])
@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        (["--where", "id > 3"], [4, 5, 6, 7, 8]),
        (["--where", "id >= 3 and user.name in ('u1', 'u9', 'u3')"], [3, 9]),
        (["5:8", "--where", "id != 6"], [5, 7]),
        (["-2:", "--where", "user.name starts with 'u'"], [8, 9]),
        (["--where", "id is not null", "--sample", "99"], list(range(10))),
        (["--where", "id < 2", "--sample", "1", "--seed", "3"], None),
    ],
)
def test_a_condition_chooses_records_with_and_without_an_index(
    logs: Path, arguments: list[str], ids: list[int] | None, *, is_indexed: bool
) -> None:
    if is_indexed:
        succeed("index", logs)
    found = shown(logs, *arguments)
    assert found == ids if ids else (len(found) == 1 and found[0] in (0, 1))


@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_condition_that_nothing_fulfils_is_a_finding(logs: Path, *, is_indexed: bool) -> None:
    if is_indexed:
        succeed("index", logs)
    done = invoke("show", logs, "--where", "id > 99")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"penstock: no record matches: {logs} holds 10 records.\n"
    for wrong in ("id >", "id > 'x'"):
        assert invoke("show", logs, "--where", wrong).exit_code == 2
    done = invoke("show", logs, "--where", "extra == 1")
    assert done.exit_code == 2
    assert "no record has a field 'extra'" in done.stderr


def test_fields_come_and_go_in_a_stream(tmp_path: Path) -> None:
    lines = [f'{{"id":{i}}}' for i in range(20_000)]
    lines[15_000] = '{"id":15000,"late":{"x":1.5}}'
    lines[15_001] = '["no object"]'
    file = written(tmp_path / "a.jsonl", *lines, "{oops")
    done = invoke("show", file, "--where", "late.x > 1", "--json")
    assert [record["id"] for record in json.loads(done.stdout)] == [15000]
    assert f"skipped {file}, line 20,001" in done.stderr
    assert shown(file, "--where", "late.x is null and id > 14998") == [
        14999,
        15002,
        15003,
        15004,
        15005,
    ]


def test_a_stream_is_read_no_further_than_its_first_matches(logs: Path) -> None:
    (logs / "part-00002.jsonl.zst").write_bytes(b"damaged")
    assert shown(logs, "--where", "id > 2") == [3, 4, 5, 6, 7]


def test_a_line_that_cannot_be_read_keeps_its_number_in_an_index(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", '{"id":0}', "{oops", '{"id":2}')
    succeed("index", file)
    done = invoke("show", file)
    assert done.exit_code == 0
    assert "skipped record 1 " in done.stderr
    assert f"# 2 – {file} at byte 15" in done.stdout


def test_a_stale_index_is_told_and_not_used(logs: Path) -> None:
    succeed("index", logs)
    (logs / "part-00000.jsonl.zst").unlink()
    done = invoke("show", logs, "0", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)[0]["id"] == 4
    assert "1 of 3 files changed since the index was built" in done.stderr
    assert f"penstock index {logs} --overwrite" in done.stderr


def test_a_damaged_index_is_told_and_not_used(logs: Path) -> None:
    succeed("index", logs)
    (logs / "index" / "meta.json").write_text("{")
    done = invoke("show", logs, "0", "--json")
    assert (done.exit_code, json.loads(done.stdout)[0]["id"]) == (0, 0)
    assert "meta.json" in done.stderr


def test_files_that_are_newer_than_the_index_are_told(logs: Path) -> None:
    succeed("index", logs)
    written(logs / "part-00009.jsonl", '{"id":10}')
    done = invoke("show", logs, "-1", "--json")
    assert json.loads(done.stdout)[0]["id"] == 9
    assert f"penstock index {logs} --update" in done.stderr


def test_csv_rows_are_records_with_types(tmp_path: Path) -> None:
    file = written(tmp_path / "t" / "a.csv", "id,price,note", '1,0.5,"two', 'lines"', "2,,x")
    rows = [{"id": 1, "price": 0.5, "note": "two\nlines"}, {"id": 2, "price": None, "note": "x"}]
    for path in (file, file.parent, f"{file.parent}/*.csv"):
        assert document("show", path) == rows
        assert document("show", path, "-1") == rows[1:]
        assert document("show", path, "--where", "price > 0") == rows[:1]
    assert f"# 1 – {file} at byte 32\n" in succeed("show", file, "1")
    assert "holds 2 records" in invoke("show", file, "2").stderr
    assert not (file.parent / "index").exists()
    succeed("index", file.parent)
    assert document("show", file.parent) == rows


def test_of_a_long_csv_file_only_the_beginning_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    with file.open("w") as text:
        text.write("id,text\n")
        text.writelines(f'{i},"row\n{i} {"x" * 100}"\n' for i in range(150_000))
        text.write('1,"never closed\n')
    assert file.stat().st_size > 16 << 20
    assert [row["id"] for row in document("show", file)] == [0, 1, 2, 3, 4]
    assert f"# 3 – {file} at byte " in succeed("show", file, "3")
    assert invoke("show", file, "-1").exit_code == 1


def test_parquet_rows_are_records_whatever_they_hold(tmp_path: Path) -> None:
    day = dt.datetime(2026, 1, 31, 12, 30, tzinfo=dt.UTC)
    table = pa.table(
        {
            "id": [1, 2, 3],
            "day": [day, None, day],
            "money": [decimal.Decimal("1.10")] * 3,
            "raw": [b"text", b"\xff", None],
            "inner": [{"x": [1, 2]}, None, {"x": []}],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    (record,) = document("show", tmp_path / "a.parquet", "0")
    assert record == {
        "id": 1,
        "day": "2026-01-31T12:30:00+00:00",
        "money": "1.10",
        "raw": "text",
        "inner": {"x": [1, 2]},
    }
    assert document("show", tmp_path, "1", "--fields", "id,raw") == [{"id": 2, "raw": "/w=="}]
    assert shown(tmp_path / "a.parquet", "--where", "id > 1") == [2, 3]
    assert shown(tmp_path / "a.parquet", "--sample", "2") == shown(tmp_path, "--sample", "2")
    text = succeed("show", f"{tmp_path}/*.parquet", "-1")
    assert f"# 2 – {tmp_path}/a.parquet, row 2\n" in text


def test_a_folder_of_csv_and_parquet_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "a.csv", "id", "1")
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    for verb in ("show", "info", "index"):
        done = invoke(verb, tmp_path)
        assert done.exit_code == 2
        assert "by a pattern" in done.stderr


def test_gzip_is_read_forwards_as_often_as_it_takes(tmp_path: Path) -> None:
    lines = [f'{{"id":{i}}}' for i in range(2000)]
    lines[3] = "{oops"
    file = tmp_path / "a.jsonl.gz"
    file.write_bytes(gzip.compress("\n".join(lines).encode()))
    succeed("index", file)
    assert shown(file, "-1") == [1999]
    done = invoke("show", file, "1:5", "--json")
    assert [record["id"] for record in json.loads(done.stdout)] == [1, 2, 4]
    file.write_bytes(gzip.compress("\n".join(lines[:3] + lines[4:]).encode()))
    succeed("index", file, "--overwrite")
    assert shown(file, "10:", "--where", "id < 13") == [11, 12]
