"""The contract of an encoder, which turns columns into a batch."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from penstock.errors import SchemaMismatchError
from penstock.order import keys, mixed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.batch._batch import Batch
    from penstock.datasets import Source


LOOSE = b"penstock.loose"
"""Key of the metadata of columns that were read by `loose_fields`."""
STAND_INS = b"penstock.stand-ins"
"""Key of the metadata of such columns: which rows stand for records that cannot be used, and are
null; bool[B]."""


@dataclass(frozen=True, slots=True, eq=False)
class BatchPosition:
    """The position of a batch in a run: an encoder derives all randomness from it.

    >>> where = BatchPosition(seed=1, epoch=0, positions=np.arange(3), ids=np.array([7, 3, 7]))
    >>> (where.draw("mask") % 10).tolist()
    [[6], [5], [6]]
    """

    seed: int
    epoch: int
    positions: NDArray[np.int64]
    """The position of each row in the order of the epoch, int64[B]."""
    ids: NDArray[np.int64]
    """The record number of each row, int64[B]."""
    split: str = ""
    """The name of the split, where it should change random draws."""
    repeats: bool = False
    """Whether a record may come more than once in an epoch, so that its position changes draws."""
    bins: NDArray[np.int64] | None = None
    """The first row of each bin of a `PackingPlan`, and at last B: int64[bins + 1]; else None."""

    def draw(self, purpose: str, slots: int = 1) -> NDArray[np.uint64]:
        """Return `slots` random numbers for each row, uint64[B, slots], all values equally likely.

        They are a hash of seed, epoch, split, purpose, record number and slot, and of the position
        where the record may come again: a row has the same numbers in any batch, worker and rank,
        and after a resume. Give each decision a purpose of its own. More slots add numbers and
        keep the first ones.
        """
        rows, for_slots = self._hashed(purpose)
        return mixed(np.add.outer(rows, np.arange(slots, dtype=np.uint64)), for_slots)

    def draw_at(
        self, purpose: str, rows: NDArray[np.int64], slots: NDArray[np.int64]
    ) -> NDArray[np.uint64]:
        """Return `draw(purpose, …)[rows, slots]`, uint64[N], without the numbers in between."""
        hashed, for_slots = self._hashed(purpose)
        return mixed(hashed[rows] + slots.astype(np.uint64), for_slots)

    def _hashed(self, purpose: str) -> tuple[NDArray[np.uint64], int]:
        """Return a hash of each row, and the key for that of its slots."""
        text = f"draw {self.split!r} {purpose}"
        for_ids, for_positions, for_slots = keys(text, self.seed, self.epoch, count=3)
        rows = mixed(self.ids.astype(np.uint64), for_ids)
        if self.repeats:
            rows = mixed(rows ^ self.positions.astype(np.uint64), for_positions)
        return rows, for_slots

    def part(self, start: int, stop: int) -> BatchPosition:
        """Return the position of some of the rows, in memory of their own.

        Users get the rows, and one batch must not keep its neighbours alive.
        """
        own = (self.positions[start:stop].copy(), self.ids[start:stop].copy())
        bins = self.bins
        if bins is not None:
            first, last = np.searchsorted(bins, (start, stop))
            bins = bins[first : last + 1] - start
        return BatchPosition(self.seed, self.epoch, *own, self.split, self.repeats, bins)


@runtime_checkable
class Encoder(Protocol):
    """Columns in, a batch out, in two stages.

    `arrays` runs where batches are made: in a thread or a worker process, many at once, in any
    order, without torch. It is a pure function of its arguments: the same columns at the same
    position give the same arrays. All randomness comes from `where.draw`, never from a generator
    with a state. `batch` runs in the user's process, once for each batch, in the
    order in which batches are handed over. An encoder pickles.

    An encoder may also have:

    - `bind(source) -> (source, encoder)`: called once, when a loader is made. It checks that the
      source has the fields it needs, and returns the source to read and the encoder to use, which
      may know more of the source.
    - `read(source, ids)`: returns the input of `arrays` in place of columns, with `len`, `nbytes`,
      slices of rows and `filled(rows)`, as `penstock.batch.TokenRows` has them.
    - `loose_fields`: columns, by name and type, to read in place of `fields` for a batch with
      records that do not fit them. Their metadata has the key `penstock.batch.LOOSE`. Fields of
      such an encoder may be missing in all records. Rows in place of bad records are null in all
      columns, and the key `penstock.batch.STAND_INS` says which they are.
    - `null_fields`: the columns that are null in a row in place of a bad record; in others such a
      row has 0, an empty text or an empty list.
    - `record_column`: the name of one more column, with the records themselves, each pickled.
    - `part(arrays, start, stop)`: returns some rows of the output of `arrays`. With it, many small
      batches are made together and cut last, which is faster.
    - `has_even_rows = True`: all records have the same size.
    - `state_dict()` and `load_state_dict(state)`: the state of `batch` (a vocabulary, running
      statistics), in plain JSON types. It is part of the loader's state, as of the last batch
      handed over.
    - `mark()`: returns a small value of which `state_dict(mark)` makes the state as it was then,
      for loops that take batches ahead of their use. Without it the state itself is kept.
    - `configure_distributed(rank, world_size)`: called in the user's process before a pass begins
      and before a state is loaded, if it has a state.
    - `merged(states)`: makes one state of those of several ranks, each of which learnt from its own
      batches. Without it a state holds that of each rank, and continues on as many ranks.
    - `describe()`: one sentence for `DataLoader.explain()`.
    - `tally()`: numbers of its own for `DataLoader.stats()`, by name.
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


def read_columns(
    source: Source, ids: NDArray[np.int64], fields: Any, loose: Any, record_column: str | None
) -> pa.RecordBatch:
    """Return the columns of some records as an encoder asks for them; `loose` may be None."""
    try:
        columns = source.read(ids, fields)
    except SchemaMismatchError:
        if loose is None:
            raise
        columns = source.read(ids, loose).replace_schema_metadata({LOOSE: b""})
    if record_column is None:
        return columns
    records = pa.array([*map(pickle.dumps, source.read(ids))], pa.binary())
    return columns.append_column(record_column, records)


def has_stages(encoder: object) -> bool:
    """Whether an object is used by its stages: not where a subclass overrides `encode` alone."""
    known = {"arrays", "batch", "encode"}
    own = [known & vars(kind).keys() for kind in type(encoder).__mro__]
    newest = next(filter(None, own), known)
    return isinstance(encoder, Encoder) and newest != {"encode"}
