"""`Tokens` against a model of one row at a time, as an encoder of columns, and what it makes."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.batch import Batch, Tokens
from penstock.batch._token_arrays import DocumentEnds, TokenRows
from penstock.errors import OptionError, SchemaMismatchError
from tests.batch.encoder_contract import EncoderContract, position, scribble

EOS = 0


def expected(row: list[int], ends: list[int] | None, length: int, *, shift: bool) -> dict[str, Any]:
    """What one row of real tokens becomes, place by place; `ends` are where its documents end."""
    padded = row + [0] * (length + 1 - len(row))
    labels = []
    for place in range(length):
        other = place + shift
        is_known = other < len(row) and not (shift and ends and place + 1 in ends)
        labels.append(padded[other] if is_known else -100)
    made: dict[str, Any] = {"input_ids": padded[:length], "labels": labels}
    if ends is not None:
        begins = [0, *sorted({end for end in ends if 0 < end < length}), length]
        sizes = [stop - start for start, stop in pairwise(begins)]
        made["position_ids"] = [place for size in sizes for place in range(size)]
        made["sizes"] = sizes
    return made


def check(arrays: dict[str, Any], model: list[dict[str, Any]], length: int) -> None:
    for name in ("input_ids", "labels", "position_ids"):
        if name not in arrays:
            assert all(name not in one for one in model)
            continue
        assert arrays[name].dtype == np.int64
        assert arrays[name].shape == (len(model), length)
        assert arrays[name].tolist() == [one[name] for one in model], name
    if "cu_seqlens" in arrays:
        sizes = [size for one in model for size in one["sizes"]]
        assert arrays["cu_seqlens"].dtype == np.int32
        assert arrays["cu_seqlens"].tolist() == [0, *np.cumsum(sizes).tolist()]
        assert arrays["max_seqlen"] == max(sizes, default=0)


@st.composite
def rows(draw: st.DrawFn) -> tuple[int, int, list[list[int]], list[list[int]]]:
    """A length, a width, rows of real tokens, and where documents end in each."""
    length = draw(st.integers(1, 9))
    width = length + draw(st.integers(0, 1))
    tokens = draw(st.lists(st.lists(st.integers(0, 3), max_size=width), max_size=5))
    ends = [
        sorted(draw(st.sets(st.integers(1, len(row)))) | {len(row)}) if row else []
        for row in tokens
    ]
    return length, width, tokens, ends


def as_rows(
    width: int, tokens: list[list[int]], ends: list[list[int]] | None, dtype: Any = np.uint16
) -> TokenRows:
    # What is behind the real tokens is anything.
    array = np.array([row + [7] * (width - len(row)) for row in tokens], dtype)
    lengths = np.array([len(row) for row in tokens], np.int64)
    if ends is None:
        return TokenRows(array.reshape(-1, width), lengths, None)
    values = np.array([end for row in ends for end in row], np.int64)
    offsets = np.array([0, *np.cumsum([len(row) for row in ends])], np.int64)
    return TokenRows(array.reshape(-1, width), lengths, DocumentEnds(values, offsets))


class TestAgainstAModel:
    @given(rows(), st.booleans(), st.booleans(), st.sampled_from([np.uint16, np.uint32, np.int64]))
    def test_rows_become_what_they_become_one_by_one(
        self, case: tuple[Any, ...], shift: Any, told: Any, dtype: Any
    ) -> None:
        length, width, tokens, ends = case
        found = as_rows(width, tokens, ends if told else None, dtype)
        arrays = Tokens(length, shift=shift).arrays_of(found)
        model = [
            expected(row, own if told else None, length, shift=shift)
            for row, own in zip(tokens, ends, strict=True)
        ]
        for one, row in zip(model, tokens, strict=True):
            one["input_ids"][len(row) :] = [7] * (length - len(row))
        check(arrays, model, length)

    @given(rows(), st.booleans())
    def test_documents_that_end_with_a_token_are_found_in_columns(
        self, case: tuple[Any, ...], shift: Any
    ) -> None:
        length, _, tokens, _ = case
        tokens = [row[: length + shift] for row in tokens]
        columns = pa.record_batch({"tokens": pa.array(tokens, pa.list_(pa.int64()))})
        encoder = Tokens(length, shift=shift, boundaries=EOS)
        arrays = encoder.arrays(columns, position(range(len(tokens))))
        ends = [[n + 1 for n, token in enumerate(row) if token == EOS] for row in tokens]
        ends = [[*own, len(row)] for own, row in zip(ends, tokens, strict=True)]
        model = [
            expected(row, own, length, shift=shift) for row, own in zip(tokens, ends, strict=True)
        ]
        check(arrays, model, length)

    @given(rows(), st.data())
    def test_parts_and_stand_ins_are_rows_like_all_others(
        self, case: tuple[Any, ...], data: st.DataObject
    ) -> None:
        length, width, tokens, ends = case
        whole = as_rows(width, tokens, ends)
        start = data.draw(st.integers(0, len(tokens)))
        stop = data.draw(st.integers(start, len(tokens)))
        part = whole[start:stop]
        same = as_rows(width, tokens[start:stop], ends[start:stop])
        encoder = Tokens(length)
        assert_same(encoder.arrays_of(part), encoder.arrays_of(same))
        there = data.draw(
            st.lists(st.booleans(), max_size=8).filter(lambda v: sum(v) <= stop - start)
        )
        few = whole[start : start + sum(there)]
        numbers = np.where(there, np.cumsum(there) - 1, -1).astype(np.int64)
        filled = encoder.arrays_of(few.filled(numbers))
        own = encoder.arrays_of(few)
        for place, number in enumerate(numbers.tolist()):
            for name in ("input_ids", "labels", "position_ids"):
                if number < 0 and name == "labels":
                    assert (filled[name][place] == -100).all()
                elif number >= 0:
                    assert filled[name][place].tolist() == own[name][number].tolist()


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert list(one) == list(other)
    for name, value in one.items():
        assert np.array_equal(value, other[name]), name


class TestAsAnEncoder(EncoderContract):
    @pytest.fixture
    def encoder(self) -> Tokens:
        return Tokens(4)

    @pytest.fixture
    def columns(self, encoder: Tokens) -> pa.RecordBatch:
        lists = [[1, 2, 3, 4, 5], [6], [], [7, 8, 9, 10], [EOS, 11]]
        return pa.record_batch({"tokens": pa.array(lists, pa.list_(pa.int64()))})

    @pytest.mark.parametrize(
        ("lists", "fact"),
        [
            ([[1], [1, 2, 3, 4, 5, 6]], "more than 5"),
            ([[1], None], "null"),
            ([[1], [None]], "null"),
        ],
        ids=["too long", "null", "null inside"],
    )
    def test_what_does_not_fit_is_named(self, encoder: Tokens, lists: Any, fact: str) -> None:
        columns = pa.record_batch({"tokens": pa.array(lists, pa.list_(pa.int64()))})
        with pytest.raises(SchemaMismatchError, match=fact) as caught:
            encoder.encode(columns, position([7, 12]))
        assert caught.value.record == 12
        assert caught.value.field == "tokens"

    def test_a_slice_of_a_column_is_a_column(
        self, encoder: Tokens, columns: pa.RecordBatch
    ) -> None:
        whole = encoder.encode(columns, position(range(5)))
        part = encoder.encode(columns.slice(3), position([3, 4]))
        assert torch.equal(part["labels"], whole["labels"][3:])

    def test_other_integers_and_sizes_are_taken(self, encoder: Tokens) -> None:
        for type_ in (pa.list_(pa.uint16()), pa.large_list(pa.int32()), pa.list_(pa.uint16(), 3)):
            columns = pa.record_batch({"tokens": pa.array([[1, 2, 3]], type_)})
            assert encoder.encode(columns, position([0]))["labels"].tolist() == [[2, 3, -100, -100]]

    def test_nobody_knows_the_documents_of_a_column(self, columns: pa.RecordBatch) -> None:
        with pytest.raises(OptionError, match="boundaries=0"):
            Tokens(4, boundaries=True).encode(columns, position(range(5)))

    def test_rows_that_do_not_count_have_no_labels(
        self, encoder: Tokens, columns: pa.RecordBatch
    ) -> None:
        arrays = encoder.arrays(columns, position(range(5)))
        valid = np.array([True, False, True, True, False])
        batch = encoder.batch(arrays, position(np.arange(5)), valid)
        assert batch["labels"][[1, 4]].tolist() == [[-100] * 4] * 2
        assert batch["labels"][0].tolist() == [2, 3, 4, 5]
        assert batch.valid is not None
        assert batch.valid.tolist() == valid.tolist()


class TestTheBatch:
    @pytest.fixture
    def batch(self) -> Batch:
        columns = pa.record_batch({"tokens": [[1, EOS, 2, 3], [4, 5, EOS, 6]]})
        return Tokens(4, boundaries=EOS).encode(columns, position([9, 5]))

    def test_it_has_these_fields(self, batch: Batch) -> None:
        assert {name: getattr(value, "dtype", None) for name, value in batch.items()} == {
            "input_ids": torch.int64,
            "labels": torch.int64,
            "position_ids": torch.int64,
            "cu_seqlens": torch.int32,
            "max_seqlen": None,
        }
        assert batch["cu_seqlens"].tolist() == [0, 2, 4, 7, 8]
        assert batch["max_seqlen"] == 3
        assert len(batch) == 2
        assert repr(batch) == (
            "Batch of 2 rows: input_ids int64[2, 4], labels int64[2, 4], position_ids int64[2, 4], "
            "cu_seqlens int32[5], max_seqlen int"
        )

    def test_it_moves_as_a_whole(self, batch: Batch) -> None:
        moved = batch.to("meta")
        assert {moved[name].device.type for name in moved if name != "max_seqlen"} == {"meta"}
        assert moved["max_seqlen"] == 3
        assert len(moved) == 2
        pinned = batch.pin_memory() if torch.cuda.is_available() else batch
        assert pinned["cu_seqlens"].tolist() == batch["cu_seqlens"].tolist()

    def test_a_table_of_it_has_what_is_by_row(self, batch: Batch) -> None:
        assert batch.by_row == {"input_ids", "labels", "position_ids"}
        table = pa.table(batch)
        assert table.column_names == ["input_ids", "labels", "position_ids"]
        assert table["labels"].to_pylist() == batch["labels"].tolist()

    def test_a_tensordict_of_it_has_everything(self, batch: Batch) -> None:
        pytest.importorskip("tensordict")
        found = batch.as_tensordict()
        assert found.batch_size == (2,)
        assert found["labels"].tolist() == batch["labels"].tolist()
        assert found["cu_seqlens"].tolist() == [0, 2, 4, 7, 8]
        assert found["max_seqlen"] == 3

    def test_one_row_and_no_row(self) -> None:
        encoder = Tokens(3, boundaries=EOS)
        columns = pa.record_batch({"tokens": pa.array([[5]], pa.list_(pa.int64()))})
        one = encoder.encode(columns, position([0]))
        assert one["cu_seqlens"].tolist() == [0, 1, 3]
        assert one["position_ids"].tolist() == [[0, 0, 1]]
        none = encoder.encode(columns.slice(0, 0), position([]))
        assert none["cu_seqlens"].tolist() == [0]
        assert none["max_seqlen"] == 0
        assert none.by_row == {"input_ids", "labels", "position_ids"}

    def test_labels_without_a_shift_are_memory_of_their_own(self) -> None:
        columns = pa.record_batch({"tokens": [[1, 2, 3]]})
        batch = Tokens(3, shift=False).encode(columns, position([0]))
        assert batch["labels"].tolist() == batch["input_ids"].tolist() == [[1, 2, 3]]
        batch["input_ids"].fill_(0)
        assert batch["labels"].tolist() == [[1, 2, 3]]
        scribble(batch)


class TestOptions:
    @pytest.mark.parametrize(
        "options",
        [
            {"length": 0},
            {"length": 2.5},
            {"length": 4, "stride": 0},
            {"length": 4, "boundaries": -1},
            {"length": 4, "shift": "no"},
            {"length": 4, "token_dtype": "float32"},
            {"length": 4, "token_dtype": "many"},
            {"length": 4, "token_dtype": "uint64"},
            {"length": 4, "token_dtype": ">u8"},
        ],
        ids=str,
    )
    def test_what_cannot_be_is_refused(self, options: dict[str, Any]) -> None:
        with pytest.raises((OptionError, TypeError)):
            Tokens(**options)

    def test_it_says_what_it_is(self) -> None:
        assert penstock.Tokens is Tokens
        assert repr(Tokens(8)) == "Tokens(8)"
        shown = repr(Tokens(8, stride=4, shift=False, boundaries=0))
        assert shown == "Tokens(8, stride=4, shift=False, boundaries=0)"
        shown = repr(Tokens(8, field="ids", token_dtype=np.uint16))
        assert shown == "Tokens(8, field='ids', token_dtype='uint16')"

    def test_what_has_no_tokens_has_no_windows(self) -> None:
        with pytest.raises(OptionError, match="penstock tokenize"):
            Tokens(8).over(penstock.open([{"text": "a"}]))

    def test_arrays_need_no_torch(self) -> None:
        code = (
            "import sys, numpy as np, pyarrow as pa, penstock\n"
            "from penstock.batch import BatchPosition\n"
            "where = BatchPosition(seed=0, epoch=0, positions=np.arange(1), ids=np.arange(1))\n"
            "columns = pa.record_batch({'tokens': [[1, 0, 2]]})\n"
            "arrays = penstock.Tokens(2, boundaries=0).arrays(columns, where)\n"
            "assert arrays['labels'].tolist() == [[0, -100]], arrays\n"
            "assert 'torch' not in sys.modules\n"
        )
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
