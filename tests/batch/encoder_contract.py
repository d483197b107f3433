"""What every `Encoder` promises; each encoder's tests inherit these."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from penstock.batch import Batch, BatchPosition, Encoder, Jagged, Masked, Padded


def position(ids: Any, seed: int = 0, epoch: int = 0) -> BatchPosition:
    numbers = np.asarray(ids, np.int64)
    return BatchPosition(seed=seed, epoch=epoch, positions=np.arange(len(numbers)), ids=numbers)


def plain(value: Any) -> Any:
    """Return what a batch holds as Python values, NaN as a text so that it equals itself."""
    if isinstance(value, Batch):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, torch.Tensor | Jagged):
        return plain(value.tolist())
    if isinstance(value, Masked | Padded):
        return [plain(part) for part in value]
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float) and value != value:  # noqa: PLR0124 (NaN)
        return "NaN"
    return value.decoded() if hasattr(value, "decoded") else value


def encoded(encoder: Encoder, columns: pa.RecordBatch, where: BatchPosition) -> Batch:
    """Return the batch of both stages; a loader, too, fills in the ids that it does not have."""
    batch = encoder.batch(encoder.arrays(columns, where), where)
    return Batch(dict(batch.items()), where.ids) if batch.ids is None else batch


class EncoderContract:
    """Inherited by the test class of each encoder, which gives two fixtures.

    `encoder` is the encoder; `columns` a batch of at least four rows that it can encode, of exactly
    the fields that it asks for. Each row of `columns` gives one row of each field; what an encoder
    with other rows, such as negatives, makes of them is tested in `tests/loading/`.
    """

    @pytest.fixture
    def encoder(self) -> Encoder:
        raise NotImplementedError

    @pytest.fixture
    def columns(self, encoder: Encoder) -> pa.RecordBatch:
        raise NotImplementedError

    def test_it_fulfils_the_protocol(self, encoder: Encoder) -> None:
        assert isinstance(encoder, Encoder)
        assert all(isinstance(type_, pa.DataType) for type_ in encoder.fields.values())

    def test_the_columns_of_the_example_are_those_it_asks_for(
        self, encoder: Encoder, columns: pa.RecordBatch
    ) -> None:
        assert dict(zip(columns.schema.names, columns.schema.types, strict=True)) == encoder.fields
        assert columns.num_rows >= 4

    def test_a_batch_has_a_row_for_each_record_and_says_which(
        self, encoder: Encoder, columns: pa.RecordBatch
    ) -> None:
        ids = np.arange(columns.num_rows) * 3 + 5
        batch = encoded(encoder, columns, position(ids))
        assert isinstance(batch, Batch)
        assert len(batch) == columns.num_rows
        assert batch.ids is not None
        assert batch.ids.dtype == torch.int64
        assert batch.ids.tolist() == ids.tolist()

    def test_no_rows_give_an_empty_batch(self, encoder: Encoder, columns: pa.RecordBatch) -> None:
        batch = encoded(encoder, columns.slice(0, 0), position([]))
        assert len(batch) == 0
        assert list(batch) == list(encoded(encoder, columns, position(range(columns.num_rows))))

    def test_the_same_columns_at_the_same_position_give_the_same_batch(
        self, encoder: Encoder, columns: pa.RecordBatch
    ) -> None:
        where = position(range(columns.num_rows), seed=3, epoch=2)
        first = plain(encoded(encoder, columns, where))
        encoded(encoder, columns.slice(1), position(range(1, columns.num_rows), seed=4))
        assert plain(encoded(encoder, columns, where)) == first

    def test_a_copy_by_pickle_encodes_alike(
        self, encoder: Encoder, columns: pa.RecordBatch
    ) -> None:
        where = position(range(columns.num_rows))
        copy = pickle.loads(pickle.dumps(encoder))
        assert copy.fields == encoder.fields
        assert plain(encoded(copy, columns, where)) == plain(encoded(encoder, columns, where))

    def test_rows_are_encoded_alike_in_whatever_batch_they_stand(
        self, encoder: Encoder, columns: pa.RecordBatch
    ) -> None:
        ids = np.arange(columns.num_rows)
        whole = encoded(encoder, columns, position(ids))
        for start in range(0, columns.num_rows, 2):
            part = encoded(encoder, columns.slice(start, 2), position(ids[start : start + 2]))
            for name, value in part.items():
                assert self.rows(value) == self.rows(whole[name])[start : start + 2], name

    def rows(self, value: Any) -> list[Any]:
        """Return what stands in each row of a field."""
        if isinstance(value, Masked | Padded):
            return list(zip(*plain(value), strict=True))
        return list(plain(value))

    def test_a_batch_is_nobody_elses_memory(
        self, encoder: Encoder, columns: pa.RecordBatch
    ) -> None:
        where = position(range(columns.num_rows))
        before = columns.to_pylist()
        expected = plain(encoded(encoder, columns, where))
        scribble(encoded(encoder, columns, where))
        assert str(columns.to_pylist()) == str(before)
        assert plain(encoded(encoder, columns, where)) == expected

    def test_threads_do_not_disturb_each_other(
        self, encoder: Encoder, columns: pa.RecordBatch
    ) -> None:
        where = position(range(columns.num_rows))
        expected = plain(encoded(encoder, columns, where))
        fresh = pickle.loads(pickle.dumps(encoder))
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: plain(encoded(fresh, columns, where)), range(20)))
        assert found == [expected] * 20


def scribble(value: Any) -> None:
    """Overwrite every tensor of a batch in place."""
    if isinstance(value, torch.Tensor):
        value.fill_(1)
    elif isinstance(value, Batch):
        for inner in value.values():
            scribble(inner)
    elif isinstance(value, Jagged | Masked | Padded):
        scribble(value.values)
