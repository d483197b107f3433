from __future__ import annotations

import gzip
import os
from typing import TYPE_CHECKING

import pytest

from tests.cli.commands import document, invoke, succeed, written

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_wrong_is_one_line(logs: Path) -> None:
    text = succeed("check", logs)
    assert len(text.splitlines()) == 1
    assert f"{logs}: 3 files, 10 records" in text
    assert "nothing wrong" in text
    told = document("check", logs)
    assert (told["findings"], told["kinds"], told["shown"], told["records"]) == (0, {}, [], 10)


def test_every_bad_line_is_told_with_place_reason_and_beginning(tmp_path: Path) -> None:
    lines = ['{"id":0}', '{"id":', "", b'{"id":"\xff"}', "x" * 100, "", '{"id":1}']
    file = written(tmp_path / "a.jsonl", *lines)
    done = invoke("check", file)
    assert done.exit_code == 1
    first, second, third, summary = done.stdout.splitlines()
    assert first.startswith(f"{file}:2: malformed line: ")
    assert first.endswith("the line begins b'{\"id\":'")
    assert second.startswith(f"{file}:4: malformed line: not UTF-8 at byte 7")
    assert third.startswith(f"{file}:5: malformed line: ")
    assert third.endswith(f"the line begins b'{'x' * 60}' …")
    size = file.stat().st_size
    assert summary.endswith(f"2 records, {size} B of text: 3 findings: 3 malformed lines")


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ("[1]", "an array"),
        ('"text"', "a string"),
        ("12", "a number"),
        ("1.5", "a number"),
        ("NaN", "a number"),
        ("true", "true or false"),
        ("null", "null"),
    ],
)
def test_a_line_without_an_object_is_a_finding(tmp_path: Path, line: str, holds: str) -> None:
    file = written(tmp_path / "a.jsonl", "{}", line, '{"n":NaN}')
    told = document("check", file, code=1)
    (finding,) = told["shown"]
    assert finding == {
        "kind": "non-object line",
        "path": str(file),
        "line": 2,
        "reason": holds,
        "begins": f"b{line!r}",
    }
    assert told["records"] == 3


@pytest.mark.parametrize("name", ["a.jsonl.zst", "a.jsonl.gz"])
@pytest.mark.parametrize("damage", ["cut off", "flipped"])
def test_a_damaged_file_is_a_finding_and_the_others_are_checked(
    logs: Path, name: str, damage: str
) -> None:
    good = (logs / "part-00000.jsonl.zst").read_bytes()
    if name.endswith(".gz"):
        good = gzip.compress(b'{"id":0}\n' * 1000, mtime=0)
    middle = len(good) // 2
    flipped = good[:middle] + bytes([good[middle] ^ 0x55]) + good[middle + 1 :]
    (logs / name).write_bytes(good[:-20] if damage == "cut off" else flipped)
    done = invoke("check", logs)
    assert done.exit_code == 1
    assert f"{logs / name}: damaged file: is " in done.stdout
    told = document("check", logs, code=1)
    assert told["kinds"] == {"damaged file": 1}
    assert told["records"] >= 10


def test_a_dead_writers_leftover_is_a_finding(logs: Path, dead_draft: Path) -> None:
    told = document("check", logs, code=1)
    assert told["kinds"] == {"leftover": 1}
    assert told["shown"][0]["path"] == str(dead_draft)
    assert "penstock clean" in invoke("check", logs).stdout


def test_a_living_writers_draft_is_no_finding(logs: Path, living_draft: Path) -> None:
    assert living_draft.exists()
    assert invoke("check", logs).exit_code == 0


def test_all_findings_are_counted_and_only_the_first_shown(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", *["{oops"] * 30, "1", "2")
    done = invoke("check", file)
    assert len(done.stdout.splitlines()) == 21
    assert done.stdout.splitlines()[-1].endswith(
        "32 findings (12 not shown): 30 malformed lines, 2 non-object lines"
    )
    assert len(invoke("check", file, "--max", "3").stdout.splitlines()) == 4
    assert len(invoke("check", file, "--max", "0").stdout.splitlines()) == 1
    told = document("check", file, "--max", "5", code=1)
    assert (told["findings"], len(told["shown"])) == (32, 5)
    assert told["kinds"] == {"malformed line": 30, "non-object line": 2}


def test_a_sample_finds_its_share_and_is_the_same_for_a_seed(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", *["{oops", "{}"] * 5000)
    told = document("check", file, "--sample", "10%", "--max", "5000", code=1)
    assert told["sample"] == 0.1
    assert 350 < told["findings"] < 650
    assert 350 < told["records"] < 650
    assert told == document("check", file, "--sample", "10%", "--max", "5000", code=1)
    other = document("check", file, "--sample", "10%", "--seed", "1", "--max", "5000", code=1)
    assert told["shown"] != other["shown"]
    assert all(finding["line"] % 2 == 1 for finding in told["shown"])
    assert document("check", file, "--sample", "100%", code=1)["findings"] == 5000
    assert invoke("check", file, "--sample", "2").exit_code == 2


def test_a_sample_still_finds_damage(logs: Path) -> None:
    victim = logs / "part-00001.jsonl.zst"
    victim.write_bytes(victim.read_bytes()[:40])
    assert document("check", logs, "--sample", "1%", code=1)["kinds"] == {"damaged file": 1}


def test_a_file_that_cannot_be_read_at_all_is_an_error_not_a_finding(logs: Path) -> None:
    victim = logs / "part-00001.jsonl.zst"
    victim.unlink()
    os.mkfifo(victim)
    done = invoke("check", logs)
    assert done.exit_code == 3
    assert str(victim) in done.stderr
    assert "6 records" in done.stdout
    assert "not all could be read" in done.stdout
    told = document("check", logs, code=3)
    assert [error["path"] for error in told["errors"]] == [str(victim)]
