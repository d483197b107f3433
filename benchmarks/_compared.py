"""Ratios of one work to others, asked in turn, and the table of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from _rounds import Contender, run_rounds
from _table import RATIO_HEAD, ratio_cells, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class Against:
    """What a work is measured against, and the ratio that it must reach."""

    label: str
    contender: Contender
    must_reach: float | None = None


class RatioRow(TypedDict):
    """One line of the table; rates in thousand records a second."""

    key: str
    work: str
    ours: float
    reference: str
    reference_rate: float
    ratio: float
    median_ratio: float
    least_ratio: float
    most_ratio: float
    must_reach: float | None
    reached: bool | None


class LimitRow(TypedDict):
    """A number that stands for itself, and what it must reach or stay below."""

    key: str
    what: str
    value: float
    unit: str
    must: str
    reached: bool | None


@dataclass(frozen=True)
class Comparison:
    """One work of ours, and those it is measured against."""

    key: str
    work: str
    ours: Contender
    others: Sequence[Against]

    def measure(self, rounds: int, records: int) -> list[RatioRow]:
        """Let all work in turn; return one row a reference."""
        run_rounds([self.ours, *(other.contender for other in self.others)], rounds, records)
        return [self._row(other, records) for other in self.others]

    def _row(self, other: Against, records: int) -> RatioRow:
        ratio = self.ours.ratio_to(other.contender)
        must = other.must_reach
        return RatioRow(
            key=self.key,
            work=self.work,
            ours=rate(self.ours, records),
            reference=other.label,
            reference_rate=rate(other.contender, records),
            ratio=ratio.best,
            median_ratio=ratio.median,
            least_ratio=ratio.least,
            most_ratio=ratio.most,
            must_reach=must,
            reached=None if must is None else round(ratio.best, 2) >= must,
        )


def rate(contender: Contender, records: int) -> float:
    """Return thousand records a second of the best round."""
    return records / min(contender.seconds) / 1000


def ratio_table(rows: Iterable[RatioRow]) -> str:
    """Return the table of all works and their references."""
    return table(RATIO_HEAD, map(ratio_cells, rows))


def limit_table(rows: Iterable[LimitRow]) -> str:
    """Return the table of numbers that stand for themselves."""
    return table(
        ["what", "value", "unit", "must", "reached"],
        (
            (row["what"], _short(row["value"]), row["unit"], row["must"], _said(row["reached"]))
            for row in rows
        ),
    )


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _said(reached: bool | None) -> str:  # noqa: FBT001 (what a row says)
    return {True: "yes", False: "no", None: ""}[reached]
