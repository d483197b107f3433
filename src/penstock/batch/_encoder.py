"""The contract of an encoder, which turns columns into a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.batch._batch import Batch


@dataclass(frozen=True, slots=True, eq=False)
class BatchPosition:
    """The position of a batch in a run: an encoder derives all randomness from it."""

    seed: int
    epoch: int
    positions: NDArray[np.int64]
    """The position of each row in the order of the epoch, int64[B]."""
    ids: NDArray[np.int64]
    """The record number of each row, int64[B]."""
    split: str = ""
    """The name of the split, where it should change random draws."""

    def part(self, start: int, stop: int) -> BatchPosition:
        """Return the position of some of the rows, in memory of their own.

        Users get the rows, and one batch must not keep its neighbours alive.
        """
        own = (self.positions[start:stop].copy(), self.ids[start:stop].copy())
        return BatchPosition(self.seed, self.epoch, *own, self.split)


@runtime_checkable
class Encoder(Protocol):
    """Columns in, a batch out, in two stages.

    `arrays` runs where batches are made: in a thread or a worker process, many at once, in any
    order, without torch. It is a pure function of its arguments: the same columns at the same
    position give the same arrays. Randomness is a hash of the position and the record numbers,
    never a generator with a state. `batch` runs in the user's process, once for each batch, in the
    order in which batches are handed over. An encoder pickles.

    An encoder may also have:

    - `bind(source) -> (source, encoder)`: called once, when a loader is made. It checks that the
      source has the fields it needs, and returns the source to read and the encoder to use, which
      may know more of the source.
    - `read(source, ids)`: returns the input of `arrays` in place of columns, with `len`, `nbytes`,
      slices of rows and `filled(rows)`, as `penstock.batch.TokenRows` has them.
    - `part(arrays, start, stop)`: returns some rows of the output of `arrays`. With it, many small
      batches are made together and cut last, which is faster.
    - `has_even_rows = True`: all records have the same size.
    - `state_dict()` and `load_state_dict(state)`: the state of `batch` (a vocabulary, running
      statistics), in plain JSON types. It is part of the loader's state, as of the last batch
      handed over.
    - `describe()`: one sentence for `DataLoader.explain()`.
    """

    @property
    def fields(self) -> Mapping[str, pa.DataType]:
        """The columns that it needs: names, or paths such as `user.age`, and their types."""

    def arrays(self, columns: pa.RecordBatch, where: BatchPosition) -> Any:
        """Return what `batch` needs of these columns, in arrays, lists, tuples and dicts.

        It neither changes the columns nor returns views of them. A value that cannot be encoded
        raises `SchemaMismatchError` with `record` and `field`.
        """

    def batch(
        self, arrays: Any, where: BatchPosition, valid: NDArray[np.bool_] | None = None
    ) -> Batch:
        """Return the batch of what `arrays` made; `valid`, bool[B], says which rows count.

        Fields may have rows beside those of the records, such as negatives. `ids` and `valid` that
        the batch does not have are filled in.
        """


@runtime_checkable
class SimpleEncoder(Protocol):
    """Columns in, a batch out, at once: where batches are made, and as pure as `Encoder.arrays`."""

    @property
    def fields(self) -> Mapping[str, pa.DataType]:
        """The columns that it needs: names, or paths such as `user.age`, and their types."""

    def encode(self, columns: pa.RecordBatch, where: BatchPosition) -> Batch:
        """Return the batch of these columns, a row for each of theirs.

        A value that cannot be encoded raises `SchemaMismatchError` with `record` and `field`.
        """


def has_stages(encoder: object) -> bool:
    """Whether an object is used by its stages: not where a subclass overrides `encode` alone."""
    known = {"arrays", "batch", "encode"}
    own = (known & vars(kind).keys() for kind in type(encoder).__mro__)
    newest = next(filter(None, own), known)
    return isinstance(encoder, Encoder) and newest != {"encode"}
