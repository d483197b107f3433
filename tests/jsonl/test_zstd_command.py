"""The zstd command line reads our files, and we read what it writes."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from penstock.errors import TruncatedFileError
from penstock.jsonl import JsonlFile

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.system

RECORDS = [{"id": number, "text": "some text " * (number % 50)} for number in range(20_000)]
TEXT = b"".join(b'{"id":%d,"text":"%s"}\n' % (r["id"], str(r["text"]).encode()) for r in RECORDS)


def zstd(*arguments: object, given: bytes = b"") -> bytes:
    command = ["zstd", "-q", *map(str, arguments)]
    return subprocess.run(command, input=given, stdout=subprocess.PIPE, check=True).stdout


@pytest.mark.parametrize("frame_bytes", [1, 5000, 256 << 10])
def test_the_command_reads_our_files(frame_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    records = RECORDS[:500] if frame_bytes == 1 else RECORDS
    with JsonlFile(path).writer_sync(frame_bytes=frame_bytes) as w:
        w.write_many(records)
    zstd("-t", path)
    assert zstd("-dc", path) == b"".join(TEXT.splitlines(keepends=True)[: len(records)])


@pytest.mark.parametrize(
    "options",
    [
        ["-3"],
        ["-19"],
        ["--fast=5"],
        ["--no-check"],
        ["--long=27"],
        ["-T2", "-B1MB"],
        ["--no-content-size"],
    ],
    ids=" ".join,
)
def test_we_read_what_the_command_writes(options: list[str], tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zstd(*options, "-c", given=TEXT))
    assert list(JsonlFile(path).iter_records_sync()) == RECORDS


def test_we_read_files_of_both_put_together(tmp_path: Path) -> None:
    ours = tmp_path / "ours.jsonl.zst"
    with JsonlFile(ours).writer_sync() as w:
        w.write_many(RECORDS)
    both = tmp_path / "both.jsonl.zst"
    both.write_bytes(ours.read_bytes() + zstd("-c", given=TEXT) + ours.read_bytes())
    assert list(JsonlFile(both).iter_records_sync()) == RECORDS * 3
    assert zstd("-dc", both) == TEXT * 3


def test_a_file_of_the_command_that_was_cut_off_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zstd("-c", given=TEXT)[:-5])
    with pytest.raises(TruncatedFileError, match=r"a\.jsonl\.zst"):
        list(JsonlFile(path).iter_records_sync())
