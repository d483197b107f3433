"""Weights of records: an array, a field or a field to balance by, kept as an alias table."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from penstock._words import counted
from penstock.datasets import (
    fingerprint_of,
    kept_arrays,
    lies_in_files,
    state_of,
    values_of,
    vocabulary,
)
from penstock.errors import ChangedSourceError, OptionError
from penstock.loading._order_choice import OrderChoice, check_shuffle
from penstock.order import ORDERS, Skips, Weighted, alias_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from penstock.datasets import Source
    from penstock.loading._feed import FeedOptions
    from penstock.order import Cursor, Skip

    Array = NDArray[np.float64]
    Table = NDArray[np.uint32]

_STRETCH = 65_536
"""Records whose values are read together; a table of fewer is made again rather than kept."""


@dataclass(frozen=True)
class WeightChoice(OrderChoice):
    """Records drawn with replacement, by their weights."""

    array: Array | None = None
    """A weight for each record; None where a field decides."""
    name: str = ""
    """Of the field."""
    is_balanced: bool = False
    """Whether each value of the field comes equally often; else its values are weights."""
    _known: dict[str, Table] = field(default_factory=dict, repr=False, compare=False)
    """The last table, by its key."""

    @classmethod
    def of(cls, source: Source, options: FeedOptions, skip: Skip) -> WeightChoice:
        """Return how records of a source are drawn; options that exclude each other raise."""
        check_shuffle(options.shuffle)
        if options.weights is not None and options.balance is not None:
            raise OptionError("weights and balance both say how often records come: give one.")
        if options.plan is not None:
            raise OptionError(
                "weights and balance draw records with replacement, and a plan places each record "
                "once: give a number as batch_size."
            )
        given, is_balanced = options.weights, options.balance is not None
        if is_balanced:
            given = options.balance
            if not isinstance(given, str):
                raise OptionError(f"balance={given!r}: give the name of a field.")
        weighted = given if isinstance(given, Weighted) else Weighted(given)
        name, array = "", None
        if isinstance(weighted.weights, str):
            name = weighted.weights
            by = f"each value of {name!r} equally often" if is_balanced else f"by {name!r}"
        else:
            by, array = "by weights", _array(weighted.weights, len(source))
            skips = Skips(skip, len(source))
            _check(array[skips.records(np.arange(skips.kept))], skips)
        why = f"drawn with replacement, {by}; shuffle does not matter"
        chosen = cls("weighted", why, {"draws": weighted.length}, array, name, is_balanced)
        known = chosen.fingerprint(source.fingerprint, len(source))
        return replace(chosen, own={"weights": known, **chosen.own})

    @property
    def is_by_field(self) -> bool:  # type: ignore[override]
        return self.array is None

    def fingerprint(self, of_source: str, length: int) -> str:
        """Return a fingerprint of the weights of a source with that one and so many records."""
        if self.array is None:
            how = "balance" if self.is_balanced else "weights"
            return fingerprint_of(how, self.name, of_source)
        numbers = self.array[:length].astype("<f8", copy=False)
        return hashlib.blake2b(numbers.data, digest_size=16).hexdigest()

    def continued(self, point: Cursor, source: Source, changed: str | None) -> Mapping[str, Any]:
        self.check_kind(point)
        if changed is None:
            return self.own
        own = {**self.own, "weights": self.fingerprint(point.fingerprint, point.length)}
        if own == point.own or changed == "continue":
            return own
        then, now = (f"{one['weights']}, length {one['draws']}" for one in (point.own, own))
        raise ChangedSourceError(
            f"the weights are not those that the state was saved with (fingerprint {then} then, "
            f"{now} now). Give those, or on_changed='continue' to go on at the same position with "
            "these."
        )

    def table(self, point: Cursor, source: Source) -> Callable[[], Table]:
        return partial(self._table, point, source)

    def _table(self, point: Cursor, source: Source) -> Table:
        skips = Skips(point.order_skip, point.length)
        facts = (point.own["weights"], str(ORDERS[self.kind].version), repr(point.order_skip))
        state = "" if self.array is not None else state_of(source)
        key = fingerprint_of("alias", *facts, state)
        if key not in self._known:
            find = partial(self._found, source, skips, point.length)
            is_kept = skips.kept > _STRETCH and (self.array is not None or lies_in_files(source))
            mapped = partial(_mapped, length=skips.kept)
            found = kept_arrays([key], find, mapped) if is_kept else find()
            self._known.clear()
            self._known[key] = found[0]
        return self._known[key]

    def _found(self, source: Source, skips: Skips, length: int) -> list[Table]:
        """Return the alias table of those of the first records that are not skipped."""
        if not skips.kept:
            raise OptionError("weights: there is no record to draw.")
        if self.is_balanced:
            weights = self._balanced(source, skips, length)
        else:
            values = self.array
            if values is None:
                values = values_of(source, self.name, np.float64)
            weights = values[skips.records(np.arange(skips.kept))]
        _check(weights, skips, self.name)
        return [alias_table(weights)]

    def _balanced(self, source: Source, skips: Skips, length: int) -> Array:
        """Return weights with which every value of the field comes equally often."""
        values = vocabulary(source, self.name, length)
        codes = np.empty(skips.kept, np.int64)
        for start in range(0, skips.kept, _STRETCH):
            ids = skips.records(np.arange(start, min(start + _STRETCH, skips.kept)))
            column = source.read(ids, {self.name: values.type}).column(0)
            codes[start : start + len(ids)] = pc.index_in(column, values).fill_null(-1)
        missing = np.flatnonzero(codes < 0)
        if missing.size:
            number = int(skips.records(missing[:1])[0])
            raise OptionError(
                f"balance={self.name!r}: {counted(missing.size, 'record', ('has', 'have'))} no "
                f"value there, record {number:,} first. Leave them out: "
                f"source.where('{self.name} is not null')."
            )
        shares: Array = 1 / np.maximum(1, np.bincount(codes))
        return shares[codes]


def _array(given: Any, length: int) -> Array:  # noqa: ANN401 (what a user gives)
    try:
        found = np.array(np.asarray(given), np.float64)  # A copy: nothing else may change it.
    except (TypeError, ValueError):
        found = np.empty((0, 0))
    if found.ndim != 1:
        raise OptionError(
            "weights: expected an array with a number for each record, or the name of a field."
        )
    if len(found) != length:
        raise OptionError(
            f"weights has {counted(len(found), 'number')}, and the source "
            f"{counted(length, 'record')}: give one for each."
        )
    return found


def _check(weights: Array, skips: Skips, name: str = "") -> None:
    """Raise for weights that cannot be, and name the record."""
    bad = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
    if bad.size:
        number, value = int(skips.records(bad[:1])[0]), weights[bad[0]]
        there = f" in the field {name!r}" if name else ""
        shown = "no number" if np.isnan(value) else f"{value:g}"
        raise OptionError(
            f"weights: record {number:,} has {shown}{there}; expected a number from 0 on. Correct "
            f"it, or leave the record out: skip=[{number}]."
        )
    if len(weights) and not weights.any():
        number = int(skips.records(np.zeros(1, np.int64))[0])
        raise OptionError(
            f"weights: record {number:,} has the weight 0, and so have all others: none can be "
            "drawn."
        )


def _mapped(path: Path, length: int) -> Table:
    """Map a table; a record in it that is not there raises when it is read."""
    table: Table = np.lib.format.open_memmap(path, mode="r")
    if table.dtype != np.uint32 or table.shape != (length, 2):
        raise ValueError(f"it does not hold the alias table of {length:,} records")
    return table
