from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.decode import InferringDecoder, unify
from tests.decode.bad_lines import never
from tests.decode.json_values import cut_records, texts
from tests.decode.widening_model import holds, schema_after
from tests.rounds import rounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Mixed fields are the point here; their warnings are tested elsewhere."""
    logging.getLogger("penstock.decode").setLevel(logging.ERROR)
    yield
    logging.getLogger("penstock.decode").setLevel(logging.NOTSET)


def shown(batch: pa.RecordBatch) -> tuple[str, str]:
    return batch.schema.to_string(), repr(batch.to_pylist())


@settings(max_examples=rounds(50, 3000))
@given(st.data())
def test_every_value_comes_out_under_the_narrowest_schema_that_holds_all(
    data: st.DataObject,
) -> None:
    parts = data.draw(cut_records())
    decoder = InferringDecoder()
    batches = []
    for number, rows in enumerate(parts):
        text = data.draw(texts(rows))
        batches.append(decoder.settle(text, decoder.attempt(text), never))
        assert decoder.schema == schema_after(parts[: number + 1])
        assert batches[-1].schema == decoder.schema
        batches[-1].validate(full=True)
    table = unify(batches)
    table.validate(full=True)
    assert table.schema == schema_after(parts)
    rows = [row for part in parts for row in part]
    assert table.num_rows == len(rows)
    for got, row in zip(table.to_pylist(), rows, strict=True):
        for field in table.schema:
            assert holds(got[field.name], row.get(field.name), field.type), (got, row)


@settings(max_examples=rounds(50, 3000))
@given(st.data())
def test_the_fast_and_the_careful_way_agree(data: st.DataObject) -> None:
    parts = data.draw(cut_records())
    fast, careful = InferringDecoder(), InferringDecoder()
    for rows in parts:
        text = data.draw(texts(rows))
        quick = fast.settle(text, fast.attempt(text), never)
        assert shown(quick) == shown(careful._settle_with_care(text, never))  # noqa: SLF001


@settings(max_examples=rounds(30, 2000))
@given(st.data())
def test_what_comes_out_does_not_hang_on_when_attempts_were_made(data: st.DataObject) -> None:
    written = [data.draw(texts(rows)) for rows in data.draw(cut_records())]
    prompt, ahead = InferringDecoder(), InferringDecoder()
    lead = data.draw(st.integers(1, 4))
    attempts: list[pa.RecordBatch | None] = []
    for number, text in enumerate(written):
        while len(attempts) < min(len(written), number + lead):
            attempts.append(ahead.attempt(written[len(attempts)]))
        early = ahead.settle(text, attempts[number], never)
        assert shown(early) == shown(prompt.settle(text, prompt.attempt(text), never))


def test_the_fast_way_is_the_usual_way() -> None:
    rows = b"".join(b'{"a":%d,"b":"x","c":[{"d":0.5}],"e":null}\n' % n for n in range(1000))
    decoder = InferringDecoder()
    assert decoder.attempt(rows) is not None
    decoder.settle(rows, decoder.attempt(rows), never)
    assert decoder.attempt(rows) is not None
