"""The contract of whatever turns columns into a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.batch._batch import Batch


@dataclass(frozen=True, slots=True, eq=False)
class BatchPosition:
    """Where in a run a batch stands: all that an encoder may take randomness from."""

    seed: int
    epoch: int
    positions: NDArray[np.int64]
    """Where each row stands in the order of the epoch, int64[B]."""
    ids: NDArray[np.int64]
    """Which record each row is, int64[B]."""
    split: str = ""
    """Which part of the data a run reads, where that should change what is drawn."""


@runtime_checkable
class Encoder(Protocol):
    """Columns in, a batch out.

    A pure function of its arguments: the same columns at the same position give the same batch,
    in any thread and process, whatever was encoded before. Randomness is a hash of the position
    and the record numbers, never a generator with a state. An encoder pickles, and neither
    changes the columns nor hands out views of them.
    """

    @property
    def fields(self) -> Mapping[str, pa.DataType]:
        """The columns that it needs: names, or paths such as `user.age`, and their types."""
        ...

    def encode(self, columns: pa.RecordBatch, where: BatchPosition) -> Batch:
        """Return the batch of these columns, a row for each of theirs, with their `ids`.

        A value that cannot be encoded raises `SchemaMismatchError` with `record` and `field`.
        """
        ...
