"""MDS folders, plain and compressed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import penstock
from tests.datasets.mds_files import write_mds
from tests.fuzz._format import Door, Format, check, command
from tests.fuzz._lines import loaded

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.datasets import Source
    from tests.fuzz._format import Values

_COLUMNS = {
    "id": "int", "score": "float64", "name": "str", "user": "json", "small": "int8",
    "raw": "bytes", "any": "ndarray", "typed": "ndarray:int16", "fixed": "ndarray:uint8:2,2",
    "sum": "str_decimal", "count": "str_int",
}  # fmt: skip


class Mds(Format):
    """Shards as they are, and shards in each compression that the format has."""

    name = "mds"
    rounds = (100, 20_000)
    always, more = 0, 3

    def make(self, folder: Path) -> None:
        rows = [_row(n) for n in range(6)]
        write_mds(folder / "plain", _COLUMNS, rows, samples=4)
        for kind in ("zstd", "gz", "br", "bz2", "snappy"):
            some = {name: _COLUMNS[name] for name in ("id", "name", "typed")}
            write_mds(folder / kind, some, rows, samples=4, compression=kind)

    def targets(self, files: list[str]) -> list[str]:
        return [*files, *(name for name in files * 2 if name.startswith("plain"))]

    def doors(self, folder: Path, damaged: str) -> list[Door]:
        path = folder / damaged.partition("/")[0]
        types = {"id": "int64", "name": "string"}
        return [
            Door("open", lambda: _plain(penstock.open(path)[:])),
            Door("one by one", lambda: _one_by_one(penstock.open(path))),
            Door("arrow", lambda: _arrow(penstock.open(path))),
            Door("loader", lambda: loaded(penstock.open(path), types)),
            Door("raw", lambda: _raw(penstock.open(path))),
            Door("info", lambda: command("info", path)),
            check(path),
        ]

    def difference(
        self, seen: Mapping[str, Values], sound: Mapping[str, Values], damaged: str
    ) -> str | None:
        if (
            "open" in seen
            and "one by one" in seen
            and repr(seen["open"]) != repr(seen["one by one"])
        ):
            return f"rows differ by door: {seen['open']!r:.200} and {seen['one by one']!r:.200}"
        many = {name: len(seen[name]) for name in seen if isinstance(seen[name], list)}
        return f"rows by door: {many}" if len({*many.values()}) > 1 else None


def _row(n: int) -> dict[str, Any]:
    return {
        "id": n,
        "score": n / 4,
        "name": f"Köln {n}" * (n % 3),
        "user": {"age": n, "tags": ["a"] * n},
        "small": n - 3,
        "raw": bytes(n),
        "any": np.arange(n + 1, dtype=np.float32),
        "typed": np.arange(6, dtype=np.int16).reshape(2, 3),
        "fixed": np.full((2, 2), n, np.uint8),
        "sum": f"{n}.25",
        "count": n * 10**20,
    }


def _plain(value: Any) -> Values:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def _one_by_one(source: Source) -> Values:
    return [_plain(source[number]) for number in range(len(source))]


def _arrow(source: Source) -> Values:
    batch = source.arrow(range(len(source)))
    batch.validate(full=True)
    return batch.to_pylist()


def _raw(source: Source) -> Values:
    return [source.raw(number) for number in range(len(source))]
