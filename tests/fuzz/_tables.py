"""What files of tables have in common: the values of a sample, and the doors that read them."""

from __future__ import annotations

from abc import abstractmethod
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import penstock
from tests.fuzz._format import Door, Format, Refused, check

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.datasets import Source
    from tests.fuzz._format import Values


SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "small": pa.int16(),
        "price": pa.float32(),
        "name": pa.string(),
        "word": pa.dictionary(pa.int32(), pa.string()),
        "flag": pa.bool_(),
        "day": pa.date32(),
        "when": pa.timestamp("us", tz="UTC"),
        "sum": pa.decimal128(12, 2),
        "bytes": pa.binary(),
        "tags": pa.list_(pa.int32()),
        "user": pa.struct({"age": pa.int8(), "names": pa.list_(pa.string())}),
    }
)


class Tables(Format):
    """Each folder of the sample holds one file; the reference is a reader of another library."""

    @abstractmethod
    def read(self, path: Path, names: list[str] | None) -> pa.Table:
        """Return some columns of a file, or all, by a reader that is not ours."""

    def doors(self, folder: Path, damaged: str) -> list[Door]:
        path = (folder / damaged).parent
        return [
            Door("open", lambda: penstock.open(path)[:], _all),
            Door("one by one", lambda: [*map(penstock.open(path).__getitem__, _order(path))], _all),
            Door("loader", lambda: _loaded(penstock.open(path)), _ids),
            Door("where", lambda: _where(penstock.open(path)), _shown_where),
            check(path),
        ]

    def reference(self, folder: Path, damaged: str) -> Values:
        """Return what reads some columns, or all."""
        return partial(self._by_reader, folder / damaged)

    def _by_reader(self, path: Path, names: list[str] | None = None) -> Values:
        try:
            table = self.read(path, names)
            table.validate(full=True)
            return table.to_pylist()
        except (pa.ArrowException, OSError, ValueError, LookupError, ArithmeticError):
            raise Refused from None


def row(n: int) -> dict[str, Any]:
    return {
        "id": n * 10**12,
        "small": n - 4,
        "price": n / 4,
        "name": f"Köln {n}" if n % 4 else None,
        "word": "ab"[n % 2],
        "flag": n % 3 == 0,
        "day": date(2024, 1, n + 1),
        "when": datetime(2024, 5, n + 1, 1, 2, 3, n, UTC),
        "sum": Decimal(n) / 4,
        "bytes": bytes(n),
        "tags": None if n == 5 else [n] * (n % 3),
        "user": None if n == 2 else {"age": n, "names": ["x", None][: n % 3]},
    }


def _all(read: Callable[..., Values]) -> Values:
    return read()


def _order(path: Path) -> range:
    return range(len(penstock.open(path)))


def _loaded(source: Source) -> Values:
    """Return the ids of a shuffled run, in the order of the records."""
    loader = penstock.DataLoader(
        source, {"id": "int64"}, batch_size=4, shuffle=True, num_workers=0, output="arrow",
        materialize=False,
    )  # fmt: skip
    found: dict[int, Any] = {}
    for batch in loader:
        numbers = np.frombuffer(batch.schema.metadata[b"penstock.ids"], np.int64)
        found.update(zip(numbers.tolist(), batch.column(0).to_pylist(), strict=True))
    return [found[number] for number in sorted(found)]


def _ids(read: Callable[..., Values]) -> Values:
    return [one["id"] for one in read(["id"])]


def _where(source: Source) -> Values:
    view = source.where("id >= 3000000000000")
    return view.read(range(len(view)), ["id"]).column(0).to_pylist()


def _shown_where(read: Callable[..., Values]) -> Values:
    return [one["id"] for one in read(["id"]) if one["id"] is not None and one["id"] >= 3 * 10**12]
