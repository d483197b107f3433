"""The records of a batch, for predictions."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.decode import inferred_batch
from penstock.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.datasets import Source


class Observations(Sequence[Any]):
    """Records, each in a list of one, read when they are first looked at.

    >>> records = Observations(2, lambda: [[{"x": 1}], [{"x": 2}]])
    >>> len(records), records[1], records == [[{"x": 1}], [{"x": 2}]]
    (2, [{'x': 2}], True)
    """

    def __init__(
        self,
        count: int,
        read: Callable[[], list[Any]],
        columns: Callable[[], pa.RecordBatch] | None = None,
    ) -> None:
        self._count, self._read, self._columns = count, read, columns

    def arrow(self) -> pa.RecordBatch:
        """Return the records that count, with the types of their source where it has some."""
        if self._columns is not None:
            with suppress(SchemaMismatchError):  # No type holds what the files of a source have.
                return self._columns()
        return inferred_batch([one[0] for one in self._rows if one is not None])

    @cached_property
    def _rows(self) -> list[Any]:
        return self._read()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, which: Any) -> Any:
        return self._rows[which]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._rows == [*other]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._rows)

    def __reduce__(self) -> tuple[type[list[Any]], tuple[list[Any]]]:
        return list, (self._rows,)


def numbered_observations(
    source: Source, ids: NDArray[np.int64], valid: NDArray[np.bool_] | None
) -> Observations:
    """Return records of a source; None for those that do not count."""
    counted = ids if valid is None else ids[valid]

    def read() -> list[Any]:
        records = iter(source.read(counted))
        return [[next(records)] if valid is None or valid[row] else None for row in range(len(ids))]

    return Observations(len(ids), read, lambda: source.arrow(counted))


def pickled_observations(records: list[bytes], valid: NDArray[np.bool_] | None) -> Observations:
    """Return records that came with the columns of a batch, likewise."""

    def read() -> list[Any]:
        counts = [True] * len(records) if valid is None else valid.tolist()
        return [
            [pickle.loads(one)] if is_valid else None  # noqa: S301 (of our own process or worker)
            for one, is_valid in zip(records, counts, strict=True)
        ]

    return Observations(len(records), read)
