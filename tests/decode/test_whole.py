"""The schema of a whole stream is the one that `unify` gives its batches."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given

from penstock.decode import unify
from penstock.decode._unify import WholeSchema
from penstock.decode._values import inferred_batch
from tests.decode.json_values import cut_records


@given(cut_records())
def test_widened_batches_are_the_unified_table(cuts: list[list[dict[str, object]]]) -> None:
    batches = [inferred_batch(rows) for rows in cuts]
    whole = WholeSchema(batches)
    table = unify(batches)
    assert whole.schema == table.schema
    widened = [whole.widen(batch) for batch in batches]
    assert repr([row for batch in widened for row in batch.to_pylist()]) == repr(table.to_pylist())


def test_a_type_that_json_does_not_have_stays_where_all_agree() -> None:
    one = pa.record_batch({"a": pa.array([1], pa.int8()), "b": pa.nulls(1)})
    two = pa.record_batch({"a": pa.array([2], pa.int8()), "b": pa.array([1.5], pa.float32())})
    schema = WholeSchema([one, two]).schema
    assert schema == pa.schema({"a": pa.int8(), "b": pa.float32()})
    assert WholeSchema([one, two]).widen(one).schema == schema
    assert WholeSchema([]).schema == pa.schema([])
