"""JSON arrays against Python's `json`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import penstock
from tests.fuzz._format import Door, Format, Refused, check
from tests.fuzz._lines import TYPES, all_good, lines, loaded, records_in, shown_typed, typed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fuzz._format import Values


class Array(Format):
    """One file, with space between some of its elements and inside of others."""

    name = "array"
    rounds = (100, 20_000)
    always = 2

    def make(self, folder: Path) -> None:
        first = b",\n".join(lines(0, 6).splitlines())
        indented = json.dumps([json.loads(line) for line in lines(6, 9).splitlines()], indent=1)
        (folder / "a.json").write_bytes(b"[" + first + b" , " + indented[1:].encode() + b"\n")

    def doors(self, folder: Path, damaged: str) -> list[Door]:
        return [
            Door("open", lambda: penstock.open(folder)[:]),
            check(folder),
            Door("typed", lambda: typed(penstock.open(folder), TYPES), shown_typed),
            Door("loader", lambda: loaded(penstock.open(folder), TYPES), shown_typed),
        ]

    def is_metadata(self, name: str) -> bool:
        return False

    def reference(self, folder: Path, damaged: str) -> Values:
        text = (folder / "a.json").read_bytes().removeprefix(b"\xef\xbb\xbf")
        if not text.lstrip(b" \t\r\n").startswith(b"["):
            return all_good(records_in(text))  # Lines, by the first byte.
        try:
            return json.loads(text.decode())
        except (ValueError, RecursionError):
            raise Refused from None
