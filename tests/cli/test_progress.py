from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING

import pytest

from penstock.cli._stream import texts_of
from penstock.cli._terminal import Progress, table
from penstock.cli._units import bytes_text
from penstock.index import BuildOptions, LineScanner, list_files, make_index
from penstock.jsonl import JsonlFile

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import time
from penstock.cli._terminal import Progress, echo
with Progress(4_000_000) as progress:
    for _ in range(4):
        time.sleep(0.3)
        progress.read(1_000_000)
        progress.show()
    echo("a line between")
"""


def seen_in_a_terminal(**environment: str) -> str:
    """Run the program above with a terminal as its stderr; return what appears there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stderr=theirs,
        stdout=theirs,
        env={**os.environ, **environment},
    ) as process:
        os.close(theirs)
        seen = b""
        try:
            while block := os.read(ours, 1 << 16):
                seen += block
        except OSError:
            pass  # The terminal is gone with its last process.
        os.close(ours)
        assert process.wait(60) == 0
    return seen.decode()


def test_a_terminal_gets_a_bar_with_bytes_rate_and_time() -> None:
    seen = seen_in_a_terminal(RANK="0")
    assert "4.00M/4.00M" in seen
    assert "B/s" in seen
    assert "a line between" in seen


def test_only_rank_0_shows_progress() -> None:
    assert seen_in_a_terminal(RANK="3") == "a line between\r\n"


def test_elsewhere_there_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(10_000_000, every=0) as progress:
        progress.show()
        progress.read(2_500_000)
        time.sleep(0.001)
        progress.show()
    first, second = capsys.readouterr().err.splitlines()
    assert first == "penstock: 0 B of 10.0 MB read, 0 B/s"
    assert second.startswith("penstock: 2.50 MB of 10.0 MB read, ")
    assert second.endswith(" s left")


def test_a_short_run_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(100) as progress:
        for _ in range(100):
            progress.read(1)
            progress.show()
    assert capsys.readouterr().err == ""


def test_lines_are_rank_0s_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    with Progress(100, every=0) as progress:
        progress.show()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("rank", ["", "0", "none"])
def test_without_a_rank_there_is_progress(
    rank: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", rank)
    with Progress(100, every=0) as progress:
        progress.show()
    assert "of 100 B read" in capsys.readouterr().err


def test_bytes_read_twice_do_not_pass_the_total(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(100, every=0) as progress:
        progress.read(90)
        progress.read(90)
        progress.show()
    assert "100 B of 100 B" in capsys.readouterr().err


def test_a_table_is_aligned() -> None:
    text = table(["name", "count", "kind"], [["long name", "1", "a"], ["x", "1,000", ""]])
    assert text.splitlines() == [
        "name       count  kind",
        "long name      1  a",
        "x          1,000",
    ]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_when_a_file_is_read_all_its_stored_bytes_were_counted(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = JsonlFile(tmp_path / name)
    with file.writer_sync() as writer:
        writer.write_many({"id": i, "hash": hash(str(i))} for i in range(50_000))
    size = file.size_sync()
    with Progress(size, every=0) as progress:
        assert sum(text.text.count(b"\n") for text in texts_of(file, progress)) == 50_000
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 5
    assert lines[0].startswith("penstock: ")
    assert lines[-1].startswith(f"penstock: {bytes_text(size)} of {bytes_text(size)} read")


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_building_an_index_moves_the_progress(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with JsonlFile(tmp_path / name).writer_sync() as writer:
        writer.write_many({"id": i, "hash": hash(str(i))} for i in range(50_000))
    listing = list_files(tmp_path / name)
    with Progress(listing.bytes, every=0) as progress:
        build = BuildOptions(progress=progress)
        make_index(listing, LineScanner(), "new", index=tmp_path / "index", build=build)
    size = bytes_text(listing.bytes)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"penstock: {size} of {size} read")
