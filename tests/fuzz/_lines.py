"""JSON Lines, however they are compressed: doors, and Python's `json` as the reference."""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

import penstock
from penstock.errors import MalformedLineError
from penstock.jsonl import JsonlFile
from tests.fuzz._format import Door, Format, Refused, check

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from penstock.datasets import Source
    from tests.fuzz._format import Values

BAD = "a line that cannot be read"
TYPES = {"id": "int64", "name": "string", "price": "float64"}


def lines(start: int, stop: int) -> bytes:
    """Return lines with some of everything that JSON has, and what Python has beyond it."""
    made = [
        {
            "id": n,
            "name": ["", "Köln", "東京\n", 'a"b\\', "\U0001f30a"][n % 5],
            "price": [n / 4, n, -0.0, 1e300][n % 4],
            "maybe": None if n % 3 else {"tags": ["x"] * (n % 4), "deep": [[n], []]},
            "large": [2**53 + 1, 2**63 - 1, -(2**63), n][n % 4],
        }
        for n in range(start, stop)
    ]
    made[0]["beyond"] = [2**64, 10**30, float("nan"), float("-inf")]
    made[-1][""] = {"": []}
    texts = [json.dumps(one, ensure_ascii=one["id"] % 2 > 0) for one in made]
    return "".join(f"{text}\n" for text in texts).encode()


def records_in(text: bytes) -> list[Any]:
    """Return what Python's `json` finds in lines; `BAD` in place of what it refuses."""
    found = []
    for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if not line.strip():
            continue
        try:
            found.append(json.loads(line.decode()))
        except (ValueError, RecursionError):
            found.append(BAD)
    return found


def all_good(records: list[Any]) -> list[Any]:
    """Return the records; `Refused` where one of them is bad."""
    if any(one is BAD for one in records):
        raise Refused
    return records


class Lines(Format):
    """Files of lines in a folder that has no index yet."""

    ending: str
    can_shuffle = True

    @abstractmethod
    def text(self, data: bytes) -> bytes:
        """Return the text of a file; `Refused` where another reader cannot read it."""

    def doors(self, folder: Path, damaged: str) -> list[Door]:
        paths = sorted(folder.glob(f"*{self.ending}"))
        return [
            Door("stream", lambda: _streamed(paths)),
            Door("open", lambda: penstock.open(folder)[:], all_good),
            Door("one by one", lambda: one_by_one(penstock.open(folder))),
            Door("typed", lambda: typed(penstock.open(folder), TYPES), shown_typed),
            Door("loader", lambda: self._loaded(folder), shown_typed),
            Door("arrow", lambda: _rows(paths), _shown_rows),
            Door("where", lambda: _where(folder), _shown_where),
            check(folder),
        ]

    def _loaded(self, folder: Path) -> Values:
        return loaded(penstock.open(folder), TYPES, shuffle=self.can_shuffle)

    def reference(self, folder: Path, damaged: str) -> Values:
        paths = sorted(folder.glob(f"*{self.ending}"))
        return [one for path in paths for one in records_in(self.text(path.read_bytes()))]


def _streamed(paths: list[Path]) -> Values:
    found: list[Any] = []
    for path in paths:
        lines = JsonlFile(path).iter_records_sync(on_error=lambda *_: found.append(BAD))
        found.extend(lines)
    return found


def one_by_one(source: Source) -> Values:
    """Return all records, with a sign for one that is bad."""
    return [_one(source, number) for number in range(len(source))]


def _one(source: Source, number: int) -> Values:
    try:
        return source[number]
    except MalformedLineError:
        return BAD


def typed(source: Source, types: dict[str, str]) -> Values:
    """Return all records as columns of these types."""
    batch = source.read(range(len(source)), types)
    batch.validate(full=True)
    return batch.to_pylist()


def plain(batch: pa.RecordBatch) -> Values:
    """Return rows; empty ones where values are none that Python has, such as text of odd bytes."""
    try:
        return batch.to_pylist()
    except (UnicodeDecodeError, OverflowError):
        return [{}] * batch.num_rows


def loaded(
    source: Source, types: dict[str, str], *, materialize: Any = False, shuffle: bool = True
) -> Values:
    """Return what a run gives, in the order of the records."""
    loader = penstock.DataLoader(
        source, types, batch_size=5, shuffle=shuffle, num_workers=0, output="arrow",
        materialize=materialize,
    )  # fmt: skip
    found: dict[int, Any] = {}
    for batch in loader:
        ids = np.frombuffer(batch.schema.metadata[b"penstock.ids"], np.int64)
        found.update(zip(ids.tolist(), plain(batch), strict=True))
    return [found[number] for number in sorted(found)]


def shown_typed(records: list[Any]) -> Values:
    """Return what typed columns have to show of records."""
    if not all(isinstance(one, dict) for one in records):
        raise Refused
    return [{name: _as(kind, one.get(name)) for name, kind in TYPES.items()} for one in records]


def _as(kind: str, value: Any) -> Any:
    if kind == "float64" and type(value) is int:
        return float(value)
    is_whole = kind == "int64" and type(value) is float and math.isfinite(value)
    return int(value) if is_whole else value


def _rows(paths: list[Path]) -> int:
    batches = [b for path in paths for b in JsonlFile(path).iter_arrow_batches_sync()]
    for batch in batches:
        batch.validate(full=True)
    return sum(batch.num_rows for batch in batches)


def _shown_rows(records: list[Any]) -> int:
    return len(shown_typed(records))


def _where(folder: Path) -> Values:
    return penstock.open(folder).where("id >= 3")[:]


def _shown_where(records: list[Any]) -> Values:
    shown_typed(records)
    return [one for one in records if _is_number(one.get("id")) and one["id"] >= 3]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
