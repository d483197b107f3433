"""Recipes turn record numbers into batches: read, make, hand over.

`read` and `make` run where a batch is made: in the caller's thread, in another one, or in a worker
process. `hand_over` runs in the user's process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.batch import (
    STAND_INS,
    Batch,
    SimpleEncoder,
    read_columns,
    tensor,
    torch_library,
    user_batch,
)
from penstock.datasets import RecordsAt, RowsAt, typed_schema
from penstock.errors import BadRecordsError, CorruptIndexError
from penstock.loading._stand_ins import blank_like, filled_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import torch
    from numpy.typing import NDArray

    from penstock.batch import BatchPosition
    from penstock.datasets import Source
    from penstock.loading._ranks import Ranks

    Ids = NDArray[np.int64]
    Valid = NDArray[np.bool_] | None
    Array = NDArray[Any]


_REFERENCE = 8
"""Bytes that an item of a list takes at least."""


def made_bytes(made: Any) -> int:  # noqa: ANN401 (what a recipe makes)
    """Return how many bytes the arrays of a recipe take."""
    if isinstance(made, Mapping):
        return sum(map(made_bytes, made.values()))
    if isinstance(made, tuple):
        return sum(map(made_bytes, made))
    return len(made) * _REFERENCE if isinstance(made, list) else int(getattr(made, "nbytes", 0))


def binned(batch: Any, bins: Ids | None) -> Any:  # noqa: ANN401 (a recipe's own)
    """Return a batch that knows which rows share a bin, if it has a place for it."""
    if bins is not None and hasattr(batch, "ids"):
        batch.bins = tensor(bins) if isinstance(batch, Batch) else bins
    return batch


class Records(list[Any]):
    """A batch without an encoder: a list of records, with `ids` and `valid` beside it.

    A record that cannot be read, where that is allowed, is None.
    """

    # Libraries that move batches rebuild a list from its items alone.
    def __init__(
        self, records: Iterable[Any] = (), ids: Ids | None = None, valid: Valid = None
    ) -> None:
        super().__init__(records)
        self.ids = ids
        """Record numbers, int64[B]; None for a copy made of records alone."""
        self.valid = valid
        """Which rows count, bool[B]; None where all do."""


class Recipe:
    """How a batch is made; pickles, unless a user's callable in it does not."""

    what: str
    """What a batch is, for `explain()`."""
    is_pure: bool = True
    """Whether `make` may run in several threads at once, in any order."""
    schema: pa.Schema | None = None
    """The fields that are read, where all of them have given types; else None."""
    is_cut_last: bool = False
    """Whether several batches are made together and cut when they are handed over."""
    has_even_rows: bool = False
    """Whether all records have the same size."""
    types: Mapping[str, str] = MappingProxyType({})
    """The types of fields, where they are given as texts."""
    reads_tokens: bool = False
    """Whether rows of tokens are read, rather than records or columns."""
    learner: Any = None
    """The encoder, if it keeps a state that batches change; else None."""

    def tally(self) -> Mapping[str, float]:
        """Return the numbers that an encoder adds to `stats()`."""
        return {}

    def configure(self, ranks: Ranks) -> None:
        """Say to an encoder that learns which rank this is."""
        if hasattr(self.learner, "configure_distributed"):
            self.learner.configure_distributed(ranks.rank, ranks.world_size)

    def load(self, learnt: Any, ranks: Ranks) -> None:  # noqa: ANN401 (the encoder's own)
        """Give an encoder that learns its part of a state."""
        self.configure(ranks)
        if self.learner is not None:
            self.learner.load_state_dict(learnt)

    def read(self, source: Source, ids: Ids) -> Any:  # noqa: ANN401
        """Return the records of `ids`: columns, or a list."""
        return source.read(ids)

    def filled(self, read: Any, rows: Ids, source: Source) -> Any:  # noqa: ANN401
        """Return a row for each of `rows` (int64[B]): that row of `read`, or for -1 a stand-in."""
        return [None if row < 0 else read[row] for row in rows.tolist()]

    def size(self, read: Any) -> int:  # noqa: ANN401
        """Return about how many bytes were read."""
        return int(read.nbytes)

    def cut(self, read: Any, borders: Sequence[int]) -> Iterable[Any]:  # noqa: ANN401
        """Cut what was read into batches: `borders` are their first rows, and at last all."""
        return [read[start:stop] for start, stop in pairwise(borders)]

    def make(self, read: Any, where: BatchPosition) -> Any:  # noqa: ANN401
        """Return what is sent to the user's process."""
        return read

    def hand_over(self, made: Any, where: BatchPosition, valid: Valid) -> Any:  # noqa: ANN401
        """Return what the user gets."""
        return user_batch(made, where.ids, valid)

    def part(self, made: Any, start: int, stop: int) -> Any:  # noqa: ANN401
        """Return some rows of what was made; asked where `is_cut_last`."""
        return made[start:stop]

    def hand_over_all(
        self,
        made: Any,  # noqa: ANN401
        where: BatchPosition,
        borders: Sequence[int],
    ) -> Iterable[Any]:
        """Return the batches of what was made together; asked where `is_cut_last`."""
        # One by one: all at once they would leave the processor's cache before they are used.
        for start, stop in pairwise(borders):
            own = where.part(start, stop)
            yield binned(self.hand_over(self.part(made, start, stop), own, None), own.bins)


class DictRecipe(Recipe):
    """Records as they are."""

    what = "a list of records, for no encode was given"

    def hand_over(self, made: list[Any], where: BatchPosition, valid: Valid) -> Records:
        return Records(made, where.ids, valid)


class TokenRecipe(Recipe):
    """Samples of one size as they are stored: a tensor of their type, with `ids` and `valid`.

    Both are as in `Records`. A copy of the tensor does not have them.
    """

    what = "a tensor of the tokens as they are stored, for no encode was given"
    reads_tokens = is_cut_last = has_even_rows = True

    def filled(self, read: Array, rows: Ids, source: Source) -> Array:
        found = np.zeros((len(rows), *read.shape[1:]), read.dtype)
        found[rows >= 0] = read[rows[rows >= 0]]
        return found

    def hand_over(self, made: Array, where: BatchPosition, valid: Valid) -> torch.Tensor:
        tokens: torch.Tensor = torch_library().from_numpy(made)
        tokens.ids, tokens.valid = where.ids, valid  # type: ignore[attr-defined]
        return tokens

    def hand_over_all(
        self, made: Array, where: BatchPosition, borders: Sequence[int]
    ) -> Iterable[torch.Tensor]:
        if not isinstance(borders, range):
            yield from super().hand_over_all(made, where, borders)
            return
        from_numpy = torch_library().from_numpy
        ids = where.ids.reshape(len(borders) - 1, -1)
        # A tensor for each, not parts of one: saving a batch then saves only its own rows.
        for rows, own in zip(made.reshape(*ids.shape, -1), ids, strict=True):
            batch: torch.Tensor = from_numpy(rows)
            batch.ids, batch.valid = own, None  # type: ignore[attr-defined]
            yield batch


class SampleRecipe(Recipe):
    """Samples of different lengths as they are stored: a list of tensors."""

    what = "a list of tensors, for samples have different lengths and no encode was given"
    reads_tokens = True

    def read(self, source: Source, ids: Ids) -> list[Array]:
        return list(source.read(ids))

    def size(self, read: list[Array]) -> int:
        return sum(one.nbytes for one in read)

    def hand_over(self, made: list[Array | None], where: BatchPosition, valid: Valid) -> Records:
        from_numpy = torch_library().from_numpy
        tensors = (None if one is None else from_numpy(one) for one in made)
        return Records(tensors, where.ids, valid)


class _Columnar(Recipe):
    """Reads Arrow columns: those of `fields`, or all."""

    def __init__(self, fields: Any = None) -> None:  # noqa: ANN401 (what `Source.read` takes)
        self.fields = fields
        self.schema = typed_schema(fields)

    def read(self, source: Source, ids: Ids) -> pa.RecordBatch:
        return source.arrow(ids) if self.fields is None else source.read(ids, self.fields)

    null_fields: Collection[str] = ()
    """The fields that are null in a stand-in."""

    def filled(self, read: Any, rows: Ids, source: Source) -> Any:  # noqa: ANN401
        if self.fields is None and isinstance(source, RecordsAt | RowsAt) and not len(read):
            read = source.arrow(source.ids)[:0]  # The columns of the last records.
        if hasattr(read, "filled"):
            return read.filled(rows)
        return filled_rows(read, rows, self.null_fields)


class ArrowRecipe(_Columnar):
    """Record batches; ids, valid and bins are in the schema's metadata, as raw int64 and bool."""

    what = "an Arrow record batch, for output='arrow'"

    def hand_over(self, made: pa.RecordBatch, where: BatchPosition, valid: Valid) -> pa.RecordBatch:
        ids = where.ids.astype("<i8").tobytes()
        known = {**(made.schema.metadata or {}), b"penstock.ids": ids}
        if valid is not None:
            known[b"penstock.valid"] = valid.tobytes()
        if where.bins is not None:
            known[b"penstock.bins"] = where.bins.astype("<i8").tobytes()
        return made.replace_schema_metadata(known)


class EncoderRecipe(_Columnar):
    """Batches of an `Encoder`, in its two stages."""

    def __init__(self, encoder: Any) -> None:  # noqa: ANN401 (an `Encoder`, with what it may have)
        self._reads = getattr(encoder, "read", None)
        super().__init__(typed_schema(encoder.fields) if self._reads is None else None)
        self.encoder = encoder
        self.loose = typed_schema(getattr(encoder, "loose_fields", None))
        self.null_fields = getattr(encoder, "null_fields", ())
        self._record_column: str | None = getattr(encoder, "record_column", None)
        self.is_cut_last = hasattr(encoder, "part")
        self.has_even_rows = getattr(encoder, "has_even_rows", False)
        self.reads_tokens = self._reads is not None
        self.learner = encoder if hasattr(encoder, "state_dict") else None

    @property
    def what(self) -> str:  # type: ignore[override] # asked anew: its state may have grown
        if hasattr(self.encoder, "describe"):
            return str(self.encoder.describe())
        return f"what {type(self.encoder).__qualname__} makes of its fields"

    def tally(self) -> Mapping[str, float]:
        tally: Callable[[], Mapping[str, float]] = getattr(self.encoder, "tally", dict)
        return tally()

    def read(self, source: Source, ids: Ids) -> Any:  # noqa: ANN401
        if self._reads is not None:
            return self._reads(source, ids)
        return read_columns(source, ids, self.fields, self.loose, self._record_column)

    def filled(self, read: Any, rows: Ids, source: Source) -> Any:  # noqa: ANN401
        if self.loose is None:
            return super().filled(read, rows, source)
        # What is made of a record that is not there is known to such an encoder alone.
        columns = read.take(pa.array(rows, mask=rows < 0))
        known = {**(read.schema.metadata or {}), STAND_INS: (rows < 0).tobytes()}
        return columns.replace_schema_metadata(known)

    def make(self, read: Any, where: BatchPosition) -> Any:  # noqa: ANN401
        try:
            return self.encoder.arrays(read, where)
        except pa.ArrowException:
            if self._reads is None:
                _refuse_damaged(read)
            raise

    def hand_over(self, made: Any, where: BatchPosition, valid: Valid) -> Any:  # noqa: ANN401
        batch = self.encoder.batch(made, where, valid)
        is_whole = isinstance(batch, Batch) and batch.ids is not None
        if is_whole and (valid is None or batch.valid is not None):
            return batch
        return super().hand_over(batch, where, valid)

    def part(self, made: Any, start: int, stop: int) -> Any:  # noqa: ANN401
        return self.encoder.part(made, start, stop)


def _refuse_damaged(read: pa.RecordBatch) -> None:
    """Raise where a text of a column is not UTF-8; checked after a failure, since it takes time."""
    for name, column in zip(read.schema.names, read.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as why:
            raise CorruptIndexError(
                f"the column of field {name!r} is damaged: {why}. Remove it, and it is made again: "
                "penstock materialize PATH --drop"
            ) from None


class CallRecipe(_Columnar):
    """Batches of a `SimpleEncoder`, or of a callable from the columns in its `fields`, or all.

    A mapping becomes a `Batch` with `ids` and `valid`. Another object is handed out as it is, and
    refused where some rows do not count, since it has no place to say which.
    """

    def __init__(self, call: Any) -> None:  # noqa: ANN401 (a callable, or a `SimpleEncoder`)
        super().__init__(getattr(call, "fields", None))
        self.call = call
        self.is_pure = isinstance(call, SimpleEncoder)
        name = getattr(call, "__qualname__", type(call).__qualname__)
        self.what = f"what {name} makes of {'its fields' if self.fields else 'all columns'}"

    def make(self, read: pa.RecordBatch, where: BatchPosition) -> Any:  # noqa: ANN401
        return self.call.encode(read, where) if self.is_pure else self.call(read)


class CollateRecipe(Recipe):
    """Batches of a function from a list of records; what it returns is as in `CallRecipe`."""

    is_pure = False

    def __init__(self, call: Callable[[list[Any]], Any]) -> None:
        self.call = call
        name = getattr(call, "__qualname__", type(call).__qualname__)
        self.what = f"what {name} makes of a list of records"

    def read(self, source: Source, ids: Ids) -> list[Any]:
        return list(source.read(ids))

    def filled(self, read: list[Any], rows: Ids, source: Source) -> list[Any]:
        if not read and isinstance(source, RecordsAt | RowsAt):
            read = list(source)[:1]  # One of the last records.
        if not read:
            raise BadRecordsError(
                "no record of a batch can be read, and collate has none to stand for them.",
                remedy="Give a larger batch_size, or skip=… for these records; of a stream, more "
                "units than ranks.",
            )
        return [blank_like(read[0]) if row < 0 else read[row] for row in rows.tolist()]

    def make(self, read: list[Any], where: BatchPosition) -> Any:  # noqa: ANN401
        return self.call(read)
