"""The same job with ten times the records: what grows with them, and what does not."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from _compared import rate
from _load_epochs import Epochs
from _rounds import Contender, Side, run_rounds
from _samples import repeat
from _table import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_BUILDS = 2


class GrowthRow(TypedDict):
    """One number of records; rates in thousand records a second."""

    records: int
    built: float
    """Seconds."""
    column_bytes: int
    build_memory: int
    """Private bytes of the largest process that builds."""
    gather: float
    gather_to_bare: float
    loader: float
    loader_to_bare: float
    reader_memory: int
    """Private bytes that an epoch adds to those of its first batch."""


@dataclass(frozen=True)
class Growth:
    """Where and how it is measured."""

    source: Path
    folder: Path
    records: int
    """In the source."""
    rounds: int

    def measure(self, times: int) -> Iterator[GrowthRow]:
        """Yield a row for the records once, and one for that many times of them."""
        for factor in (1, times):
            print(f"measuring {factor * self.records:,} records", file=sys.stderr)
            yield self._row(factor)

    def _row(self, factor: int) -> GrowthRow:
        records = factor * self.records
        data, arrays = self.folder / f"times-{factor}", str(self.folder / f"bare-{factor}")
        repeat(self.source, data, factor)
        path = str(data)
        with ExitStack() as stack:
            # New processes for each size, so that none has the memory of another one's.
            ours = stack.enter_context(Side("_columns_ours.py"))
            bare = stack.enter_context(Side("_columns_bare.py"))
            ours.ask("index", path=path)
            build = Contender(ours, "materialize", {"path": path}, before="drop")
            run_rounds([build], _BUILDS, records)
            _, build_memory = ours.ask("build_memory", path=path)
            with Side("_columns_ours.py") as reader:
                _, (before, most) = reader.ask("memory", path=path)
            bare.ask("convert", source=path, target=arrays)
            gathers, loads = self._rates(ours, path, bare, arrays, records)
            mine = set(ours.ask("digests", path=path, records=records)[1])
            if mine != set(bare.ask("digests", path=arrays, records=records)[1]):
                raise RuntimeError(f"{records:,} records: columns are not what decoding gives")
            _, (column_bytes, _) = ours.ask("sizes", path=path)
        return GrowthRow(
            records=records,
            built=min(build.seconds),
            column_bytes=column_bytes,
            build_memory=build_memory,
            gather=rate(gathers[0], records),
            gather_to_bare=gathers[0].ratio_to(gathers[1]).best,
            loader=rate(loads[0], records),
            loader_to_bare=loads[0].ratio_to(loads[1]).best,
            reader_memory=most - before,
        )

    def _rates(
        self, ours: Side, path: str, bare: Side, arrays: str, records: int
    ) -> tuple[list[Contender], list[Epochs]]:
        where = [(ours, {"path": path}), (bare, {"path": arrays, "mapped": True})]
        gathers = [Contender(side, "gather", {**how, "records": records}) for side, how in where]
        run_rounds(gathers, self.rounds, records)
        loads = [
            Epochs(side, "epoch", {**how, "workers": 0, "seconds": 600.0}, records=records)
            for side, how in where
        ]
        run_rounds(loads, self.rounds, records)
        return gathers, loads


def growth_table(rows: Iterable[GrowthRow]) -> str:
    """Return the table of all sizes."""
    head = [
        "records", "built: s", "÷ the first", "columns: MB", "a builder's MB", "gather", "÷ bare",
        "loader", "÷ bare ", "an epoch's MB",
    ]  # fmt: skip
    found = list(rows)
    return table(head, (_cells(row, found[0]) for row in found))


def _cells(row: GrowthRow, first: GrowthRow) -> list[str]:
    return [
        f"{row['records']:,}",
        f"{row['built']:.2f}",
        f"{row['built'] / first['built']:.1f}",
        f"{row['column_bytes'] / 1e6:,.0f}",
        f"{row['build_memory'] / 1e6:.0f}",
        f"{row['gather']:,.0f}",
        f"{row['gather_to_bare']:.2f}",
        f"{row['loader']:,.0f}",
        f"{row['loader_to_bare']:.2f}",
        f"{row['reader_memory'] / 1e6:.1f}",
    ]
