"""Plain JSON Lines against Python's `json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz._lines import Lines, lines

if TYPE_CHECKING:
    from pathlib import Path


class Jsonl(Lines):
    """Two files, one with a mark, blank lines and other line ends."""

    name = "jsonl"
    rounds = (100, 30_000)
    ending = ".jsonl"

    def make(self, folder: Path) -> None:
        (folder / "a.jsonl").write_bytes(lines(0, 9))
        other = lines(9, 12).replace(b"\n", b"\r\n").replace(b"\r\n", b"\n \t\n\n", 1)
        (folder / "b.jsonl").write_bytes(b"\xef\xbb\xbf" + other.rstrip())

    def text(self, data: bytes) -> bytes:
        return data
