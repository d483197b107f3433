from __future__ import annotations

import gzip
import json
import os
from typing import TYPE_CHECKING

import pytest
import zstandard

from penstock.jsonl import JsonlDir
from tests.cli.commands import document, invoke, succeed, written

if TYPE_CHECKING:
    from pathlib import Path


def records(directory: Path) -> list[object]:
    return list(JsonlDir(directory).iter_records_sync())


def test_a_directory_is_summed_up_and_its_files_listed(logs: Path) -> None:
    text = succeed("info", logs)
    assert text.splitlines()[0] == str(logs)
    assert "files        3" in text
    assert "records      10" in text
    assert "zstd, seekable" in text
    assert [line.split()[:2] for line in text.splitlines() if "part-" in line] == [
        ["part-00000.jsonl.zst", "4"],
        ["part-00001.jsonl.zst", "4"],
        ["part-00002.jsonl.zst", "2"],
    ]


def test_json_tells_everything_of_every_file(logs: Path) -> None:
    told = document("info", logs)
    files = [logs / f"part-0000{i}.jsonl.zst" for i in range(3)]
    text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records(logs))
    assert (told["path"], told["files"], told["records"]) == (str(logs), 3, 10)
    assert told["bytes"] == sum(file.stat().st_size for file in files)
    assert told["text_bytes"] == len(text)
    assert [one["path"] for one in told["per_file"]] == [str(file) for file in files]
    assert [one["records"] for one in told["per_file"]] == [4, 4, 2]
    assert [one["modified"] for one in told["per_file"]] == [f.stat().st_mtime for f in files]
    assert {(one["compression"], one["seekable"]) for one in told["per_file"]} == {("zstd", True)}
    assert (told["leftovers"], told["errors"]) == ([], [])


def test_every_compression_is_told_apart(tmp_path: Path) -> None:
    text = b'{"a":1}\n\n{"a":2}'
    (tmp_path / "a.jsonl").write_bytes(text)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(text))
    (tmp_path / "c.jsonl.zst").write_bytes(zstandard.compress(text))
    (tmp_path / "d.jsonl.zst").write_bytes(b"")
    told = document("info", tmp_path)
    seen = [(f["compression"], f["seekable"], f["records"]) for f in told["per_file"]]
    assert seen == [("none", True, 2), ("gzip", False, 2), ("zstd", False, 2), ("zstd", False, 0)]
    assert [f["text_bytes"] for f in told["per_file"]] == [len(text)] * 3 + [0]


def test_without_records_nothing_is_decompressed(tmp_path: Path, logs: Path) -> None:
    told = document("info", logs, "--no-records")
    assert told["records"] is None
    assert told["text_bytes"] == document("info", logs)["text_bytes"]
    broken = tmp_path / "broken.jsonl.gz"
    broken.write_bytes(b"this is not gzip")
    told = document("info", broken, "--no-records")
    assert (told["records"], told["text_bytes"], told["bytes"]) == (None, None, 16)
    assert "not counted" in succeed("info", broken, "--no-records")


@pytest.mark.parametrize("damage", ["damaged", "unreadable"])
def test_a_file_that_cannot_be_read_is_named_and_the_others_are_shown(
    logs: Path, damage: str
) -> None:
    victim = logs / "part-00001.jsonl.zst"
    if damage == "damaged":
        victim.write_bytes(victim.read_bytes()[:40])
    else:
        victim.unlink()
        os.mkfifo(victim)
    done = invoke("info", logs)
    assert done.exit_code == 3
    assert str(victim) in done.stderr
    assert "Traceback" not in done.output
    assert "records      6" in done.stdout
    assert "1 unreadable" in done.stdout
    told = document("info", logs, code=3)
    assert [error["path"] for error in told["errors"]] == [str(victim)]
    assert [one["records"] for one in told["per_file"]] == [4, 2]


def test_many_files_are_not_listed_one_by_one(tmp_path: Path) -> None:
    with JsonlDir(tmp_path).writer_sync(max_records_per_shard=1) as writer:
        writer.write_many({"id": i} for i in range(21))
    assert "part-00000" not in succeed("info", tmp_path)
    assert len(document("info", tmp_path)["per_file"]) == 21


def test_a_leftover_is_told_with_its_writer_gone(logs: Path, dead_draft: Path) -> None:
    text = succeed("info", logs)
    assert f"{dead_draft}, 100 B, writer gone" in text
    assert "penstock clean" in text
    (leftover,) = document("info", logs)["leftovers"]
    assert (leftover["path"], leftover["bytes"], leftover["writer"]) == (
        str(dead_draft),
        100,
        "gone",
    )


def test_a_leftover_is_told_with_its_writer_at_work(logs: Path, living_draft: Path) -> None:
    text = succeed("info", logs)
    assert f"{living_draft}, 100 B, writer at work" in text
    assert "penstock clean" not in text


@pytest.mark.parametrize("verb", ["info", "check", "show"])
def test_an_empty_directory_is_no_error_but_said_so(tmp_path: Path, verb: str) -> None:
    written(tmp_path / "nested" / "a.jsonl", "{}")
    done = invoke(verb, tmp_path)
    assert done.exit_code == 0
    assert done.stderr == (
        f"penstock: warning: {tmp_path} itself holds no JSON Lines files; "
        f"'{tmp_path}/**/*.jsonl' reads those below it\n"
    )
    assert invoke(verb, f"{tmp_path}/**/*.jsonl").stderr == ""


def test_a_single_file_needs_no_table(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", "{}", "", "  ", "{}")
    text = succeed("info", file)
    assert "records      2" in text
    assert "compression  none" in text
    assert len(text.splitlines()) == 6
