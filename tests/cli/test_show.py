from __future__ import annotations

import json
from typing import TYPE_CHECKING

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
    assert f"warning: skipped {file}:3: " in done.stderr
    assert f"warning: skipped {file}:5: not UTF-8" in done.stderr
    assert f"# 2 – {file}:6" in invoke("show", file, "2").stdout


def test_of_many_bad_lines_only_the_first_are_told(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", *["{oops"] * 100, '{"id":0}')
    done = invoke("show", file)
    assert len(done.stderr.splitlines()) == 11
    assert "100 bad lines were skipped" in done.stderr


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
