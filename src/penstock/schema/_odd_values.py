"""Values of another structure than a query expects: counted, and named once a leaf."""

from __future__ import annotations

import reprlib
import warnings
from typing import TYPE_CHECKING, NamedTuple

from penstock.datasets import own_numbers, record_place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from penstock.datasets import Source

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
LIST, OBJECT = "a list", "an object"
NULL, PADDED = "its value is null", "its slots are padded"


def in_short(value: object) -> str:
    """Return a value as messages show it.

    >>> in_short([1, "no"]), len(in_short("no" * 100))
    ("[1, 'no']", 80)
    """
    return _SHORT.repr(value)


class OddValue(NamedTuple):
    """A value of another structure than a query expects."""

    row: int
    text: str
    """The value, in short."""
    expected: str
    """`LIST` or `OBJECT`."""
    outcome: str
    """`NULL` or `PADDED`."""

    @property
    def fact(self) -> str:
        return f"{self.text} stands where {self.expected} is expected"


class OddRecords:
    """The records with such values that one loader handed over."""

    def __init__(self, warned: set[str], home: Source | None = None) -> None:
        self.count = 0
        self._warned = warned
        """The leaves that warned already; schemas of all splits share them."""
        self._home = home
        """Where the records lie; None where they lie in no files."""

    def add(
        self,
        odd: Mapping[str, Sequence[OddValue]],
        ids: NDArray[np.int64],
        valid: NDArray[np.bool_] | None,
    ) -> None:
        """Count the records of a batch, given their values by leaf, that count at all."""
        rows: set[int] = set()
        numbers = ids if self._home is None else own_numbers(ids)
        for address, values in odd.items():
            counting = [value for value in values if valid is None or valid[value.row]]
            rows.update(value.row for value in counting)
            if counting and address not in self._warned:
                self._warned.add(address)
                self._warn(address, counting[0], int(numbers[counting[0].row]))
        self.count += len(rows)

    def _warn(self, address: str, value: OddValue, number: int) -> None:
        place = None if self._home is None else record_place(self._home, number)
        where = f"record {number:,}" if place is None else f"record {number:,} ({place})"
        warnings.warn(
            f"{address}: {value.fact} in {where}; {value.outcome}. Others like it are counted as "
            "'odd_records' by stats() of the loader and listed by penstock check --schema. "
            "Schema(…, strict=True) refuses them.",
            stacklevel=2,
        )
