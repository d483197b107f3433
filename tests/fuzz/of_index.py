"""Index folders: of lines, plain and compressed, with bad lines and a profile; and of CSV."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

import penstock
from penstock.jsonl import JsonlFile
from tests.fuzz._format import Door, Format, check, command
from tests.fuzz._lines import loaded, one_by_one, typed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.datasets import Source
    from tests.fuzz._format import Values

_TYPES = {"id": "int64", "name": "string"}
_BESIDE = ("bad_lines.ndjson", "profile.json", "profile.state", ".gitignore", "CACHEDIR.TAG")
"""Files that say nothing of where records lie."""


class Index(Format):
    """Damages the index and, where nobody can see it, what is indexed."""

    name = "index"
    rounds = (100, 40_000)
    always = 2
    check_tells = False  # An index that was made with other options is none that is damaged.

    def make(self, folder: Path) -> None:
        rows = [{"id": n, "name": f"Köln {n}"} for n in range(12)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        for name in ("lines", "csv", "foreign"):
            (folder / name).mkdir()
        (folder / "lines" / "a.jsonl").write_text(text + "{bad\n\n")
        with JsonlFile(folder / "lines" / "b.jsonl.zst").writer_sync(frame_bytes=100) as writer:
            writer.write_raw(text.replace(": ", ": 1").encode())
        (folder / "csv" / "a.csv").write_text(
            "id,name\n" + "".join(f"{n},x{n}\n" for n in range(9))
        )
        (folder / "foreign" / "a.jsonl").write_text(text)
        for path in folder.glob("*/*"):
            os.utime(path, (1_700_000_000, 1_700_000_000))
            if path.suffix != ".zst":
                command("index", path.parent, "--validate", "--profile", "--full-hash")
        for path in (folder / "foreign" / "index").iterdir():
            if path.name not in {"file_location.txt", "sample_locations.bin"}:
                path.unlink()  # What data-forager writes.

    def targets(self, files: list[str]) -> list[str]:
        often = ("meta.json", "sample_locations.bin", "frames.bin", "file_location.txt")
        return [*files, *(name for name in files * 3 if name.endswith(often))]

    def doors(self, folder: Path, damaged: str) -> list[Door]:
        path = folder / damaged.partition("/")[0]
        return [
            Door("open", lambda: len(penstock.open(path))),
            Door("read", lambda: one_by_one(penstock.open(path))),
            Door("typed", lambda: typed(penstock.open(path), _TYPES)),
            Door("loader", lambda: loaded(penstock.open(path), _TYPES)),
            Door("where", lambda: _where(penstock.open(path))),
            Door("places", lambda: _places(penstock.open(path))),
            Door("profile", lambda: command("profile", path)),
            Door("info", lambda: command("info", path)),
            Door("update", lambda: _updated(path)),
            check(path),
        ]

    def difference(
        self, seen: Mapping[str, Values], sound: Mapping[str, Values], damaged: str
    ) -> str | None:
        records = seen.get("read")
        if damaged.endswith(_BESIDE) and records is not None and records != sound["read"]:
            return f"{records!r:.300} by an index whose places are whole"
        if records is None:
            return None
        rows = [row if isinstance(row, dict) else {} for row in records]
        for name in seen.keys() & {"typed", "loader"}:
            expected = [{field: row.get(field) for field in _TYPES} for row in rows]
            if seen[name] != expected:
                return f"{name} has {seen[name]!r:.300}, one by one it is {expected!r:.300}"
        if "where" in seen:
            expected = [n for n, row in enumerate(rows) if _is_large(row.get("id"))]
            if seen["where"] != expected:
                return f"where finds {seen['where']}, and it is {expected}"
        return None


def _where(source: Source) -> Values:
    return source.where("id >= 3").ids.tolist()


def _places(source: Source) -> Values:
    places = source.location(np.arange(len(source)))
    return [np.asarray(part).tolist() for part in (places.offset, places.bytes, source.blocks)]


def _updated(path: Path) -> int:
    """Append a record and have it indexed, which goes on with what the index holds."""
    names = sorted(p.name for p in path.iterdir() if p.suffix in {".jsonl", ".csv"})
    with (path / names[0]).open("a") as file:
        file.write('{"id": 99, "name": "new"}\n' if names[0].endswith("l") else "99,new\n")
    return command("index", path, "--update")


def _is_large(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 3
