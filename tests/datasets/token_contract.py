"""What every `TokenSource` promises; each one's tests inherit these and say what its rows are."""

from __future__ import annotations

import multiprocessing
import pickle
import random
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.datasets import SubsampledDataset, TokenSource
from penstock.errors import OptionError, RecordIndexError, UnsafeForkError
from tests.rounds import LONG, rounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.datasets import Source

Rows = list[list[int]]


class TokenContract:
    """Inherited by the test class of each source of tokens, which gives two fixtures.

    `expected` are 20 to 400 rows; `open_source` is a function that opens a source of them, a new
    one at each call. Attributes say where a source differs.
    """

    start_methods = ("fork", "forkserver", "spawn")
    """How processes may start after the parent has read. An object store's client forbids fork."""
    ids_are_views = True
    """Whether one row is a view of a map, and no copy."""

    @pytest.fixture
    def expected(self) -> Rows:
        raise NotImplementedError

    @pytest.fixture
    def open_source(self) -> Callable[[], TokenSource]:
        raise NotImplementedError

    @pytest.fixture
    def source(self, open_source: Callable[[], TokenSource]) -> TokenSource:
        return open_source()

    def test_it_is_a_source_of_so_many_rows_of_one_type(
        self, source: TokenSource, expected: Rows
    ) -> None:
        assert isinstance(source, TokenSource)
        assert len(source) == len(expected)
        widths = {len(row) for row in expected}
        assert source.sample_size == (widths.pop() if len(widths) == 1 else None)
        assert source[0].dtype == source.token_dtype

    def test_a_row_is_found_by_any_kind_of_integer(
        self, source: TokenSource, expected: Rows
    ) -> None:
        n = len(expected)
        for i in (0, 1, n // 2, n - 1, -1, -n):
            for kind in (int, np.int64, np.int16):
                assert source[kind(i)].tolist() == expected[i]
        assert source[np.array(3)].tolist() == expected[3]

    def test_one_row_cannot_be_written_to_and_many_can(self, source: TokenSource) -> None:
        if self.ids_are_views:
            assert not source[1].flags.writeable
        many = source[[1, 2, 1]]
        many[0][:] = 7
        assert many[2].tolist() == source[1].tolist()

    def test_slices_lists_and_arrays_give_rows_in_the_order_asked(
        self, source: TokenSource, expected: Rows
    ) -> None:
        chance = random.Random(1)
        n = len(expected)
        for _ in range(rounds(20, 500)):
            start, stop = (chance.choice([None, chance.randrange(-2 * n, 2 * n)]) for _ in range(2))
            step = chance.choice([None, 1, -1, 3, -7])
            assert _lists(source[start:stop:step]) == expected[start:stop:step]
            ids = [chance.randrange(-n, n) for _ in range(chance.randrange(1, 60))]
            wanted = [expected[i] for i in ids]
            for asked in (ids, tuple(ids), np.array(ids), np.array(ids, np.int32)):
                assert _lists(source[asked]) == wanted
            assert _lists(source.read(ids)) == wanted
            assert _lists(source.__getitems__(ids)) == wanted
        assert _lists(source[range(4, 12, 3)]) == expected[4:12:3]

    def test_rows_of_one_width_are_one_array(self, source: TokenSource, expected: Rows) -> None:
        if source.sample_size is None:
            assert isinstance(source[:3], list)
            return
        rows = source.read(np.array([2, 0, 2]))
        assert rows.shape == (3, source.sample_size)
        assert rows.dtype == source.token_dtype
        assert rows.flags.writeable
        assert source[[]].shape == (0, source.sample_size)
        assert rows.tolist() == [expected[2], expected[0], expected[2]]

    def test_asking_for_nothing_gives_nothing(self, source: TokenSource) -> None:
        for ids in ([], (), np.array([], np.int64)):
            assert len(source.read(ids)) == len(source[ids]) == len(source.lengths(ids)) == 0
            assert source.arrow(ids).num_rows == 0

    def test_a_number_out_of_range_is_an_index_error_with_the_length(
        self, source: TokenSource
    ) -> None:
        n = len(source)
        for wrong in (n, -n - 1, np.int64(n)):
            for ask in (
                source.__getitem__,
                lambda i: source.read([0, i]),
                lambda i: source.read(np.array([0, i])),
                lambda i: source.lengths([i]),
            ):
                with pytest.raises(RecordIndexError, match=f"{n:,}"):
                    ask(wrong)
        for wrong in (True, 1.0, "1", None, [True], [0.5]):
            with pytest.raises(TypeError):
                source[wrong]  # type: ignore[call-overload]

    def test_iteration_and_head_begin_at_the_first_row(
        self, source: TokenSource, expected: Rows
    ) -> None:
        assert _lists(source) == expected
        assert _lists(source.head()) == expected[:5]

    def test_lengths_and_ends_agree(self, source: TokenSource, expected: Rows) -> None:
        ids = np.array([3, 0, len(expected) - 1, 3])
        lengths = source.lengths(ids)
        assert lengths.dtype == np.int64
        assert all(length <= len(expected[i]) for i, length in zip(ids, lengths, strict=True))
        ends = source.document_ends(ids)
        if ends is None:
            return
        values, offsets = ends
        assert values.dtype == offsets.dtype == np.int64
        assert len(offsets) == len(ids) + 1
        for (low, high), length in zip(pairwise(offsets.tolist()), lengths.tolist(), strict=True):
            assert values[low:high].tolist() == sorted(set(values[low:high].tolist()))
            assert values[high - 1] == length

    def test_arrow_has_one_column_of_lists(self, source: TokenSource, expected: Rows) -> None:
        assert source.schema.names == ["tokens"]
        type_ = source.schema.types[0]
        assert pa.types.is_fixed_size_list(type_) == (source.sample_size is not None)
        assert type_.value_type == pa.from_numpy_dtype(source.token_dtype)
        ids = [len(expected) - 1, 4, 4, 0]
        batch = source.arrow(ids)
        assert batch.schema == source.schema
        assert batch["tokens"].to_pylist() == [expected[i] for i in ids]
        wide = source.read(ids, {"tokens": "list<int64>", "nowhere": "int8"})
        assert wide["tokens"].to_pylist() == batch["tokens"].to_pylist()
        assert wide["nowhere"].null_count == 4
        assert pa.table(source)["tokens"].to_pylist() == expected
        assert source.arrow()["tokens"].to_pylist() == expected
        if source.sample_size is not None:
            fixed = source.read(ids, {"tokens": f"int64[{source.sample_size}]"})
            assert fixed["tokens"].to_pylist() == [expected[i] for i in ids]

    def test_blocks_run_from_the_first_row_to_the_last(self, source: TokenSource) -> None:
        blocks = source.blocks
        assert blocks.dtype == np.int64
        assert (blocks[0], blocks[-1]) == (0, len(source))
        assert (np.diff(blocks) > 0).all()

    def test_a_row_has_a_location_and_bytes(self, source: TokenSource, expected: Rows) -> None:
        ids = np.array([3, 0, 3, len(source) - 1])
        many = source.location(ids)
        for k, number in enumerate(ids.tolist()):
            file, offset, size = source.location(number)
            assert file == source.files[many.file[k]]
            assert (offset, size) == (many.offset[k], many.bytes[k])
            data = source.raw(number)
            assert len(data) == size
            tokens = np.frombuffer(data, source.token_dtype).tolist()
            assert tokens == expected[number][: len(tokens)]
        with pytest.raises(IndexError):
            source.location(len(source))

    def test_the_fingerprint_stays_the_same_over_openings_and_pickles(
        self, source: TokenSource, open_source: Callable[[], TokenSource], expected: Rows
    ) -> None:
        fingerprint = source.fingerprint
        for _ in range(2):
            packed = pickle.dumps(source)
            assert len(packed) < 1500
            copy: TokenSource = pickle.loads(packed)
            assert copy.fingerprint == fingerprint
            assert _lists(copy[-3:]) == expected[-3:]
            assert _lists(source[:]) == expected
            assert source.arrow([0]).num_rows == len(source.lengths([0])) == 1
        assert open_source().fingerprint == fingerprint

    def test_threads_read_at_once(self, source: TokenSource, expected: Rows) -> None:
        def read(seed: int) -> int:
            chance, wrong = random.Random(seed), 0
            for _ in range(rounds(25, 500)):
                i, j, k = (chance.randrange(len(expected)) for _ in range(3))
                wrong += source[i].tolist() != expected[i]
                wrong += _lists(source[[j, k]]) != [expected[j], expected[k]]
            return wrong

        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(read, range(8))) == [0] * 8

    @pytest.mark.parametrize("method", ["fork", *["spawn", "forkserver"] * LONG])
    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_processes_read_after_the_parent_did(
        self, source: TokenSource, expected: Rows, method: str
    ) -> None:
        ids = [random.Random(1).randrange(len(expected)) for _ in range(100)]
        assert _lists(source[ids]) == [expected[i] for i in ids]
        with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as processes:
            future = processes.submit(_read_in_a_child, source, ids)
            if method not in self.start_methods:
                with pytest.raises(UnsafeForkError, match="forkserver"):
                    future.result()
                return
            assert future.result() == [expected[i] for i in ids]

    def test_views_are_sources_of_tokens(self, source: TokenSource, expected: Rows) -> None:
        ids = [9, 2, 2, 15, 0, -1, 11]
        _check_view(source.take(ids), [expected[i] for i in ids], source)
        _check_view(source + source, expected + expected, source)
        train, rest = source.split(train=0.7, rest=0.3)
        assert sorted([*_lists(train), *_lists(rest)]) == sorted(expected)
        _check_view(train, _lists(train), source)
        _check_view(train.take([1, 0, 3, 2]), _lists(train[[1, 0, 3, 2]]), source)

    def test_a_part_of_it_is_drawn_like_of_any_dataset(
        self, source: TokenSource, expected: Rows
    ) -> None:
        part = SubsampledDataset(source, 0.5, seed=1)
        assert len(part) == len(expected) // 2
        assert all(row in expected for row in _lists(part[:5]))
        assert part[-1].tolist() in expected

    def test_a_look_says_what_it_is(self, source: TokenSource, expected: Rows) -> None:
        assert f"{type(source).__name__} of {len(expected)} records" in repr(source)
        assert "tokens (uint16)" in repr(source)
        assert f"[{expected[0][0]}" in source._repr_html_()

    def test_there_is_nothing_to_materialise(self, source: TokenSource) -> None:
        with pytest.raises(OptionError, match="as it is"):
            source.materialize({"tokens": "list<int64>"})


def _check_view(view: Source, expected: Rows, of: TokenSource) -> None:
    assert isinstance(view, TokenSource)
    assert (view.token_dtype, view.sample_size) == (of.token_dtype, of.sample_size)
    assert len(view) == len(expected)
    assert _lists(view) == _lists(view[:]) == expected
    assert _lists(view[[1, 0, 1]]) == [expected[1], expected[0], expected[1]]
    assert view[-1].tolist() == expected[-1]
    assert view.lengths([0, 1]).tolist() == [
        of.lengths([_first(of, expected[i])])[0] for i in (0, 1)
    ]
    ends, own = of.document_ends([_first(of, expected[0])]), view.document_ends([0])
    assert (ends is None) == (own is None)
    assert ends is None or own is None or ends[0].tolist() == own[0].tolist()
    assert _lists(view.read([1, 0])) == [expected[1], expected[0]]
    assert view.arrow([1])["tokens"].to_pylist() == [expected[1]]
    assert pa.table(view).num_rows == len(expected)
    assert (view.blocks[0], view.blocks[-1]) == (0, len(view))
    assert view.fingerprint != of.fingerprint
    copy: TokenSource = pickle.loads(pickle.dumps(view))
    assert copy.fingerprint == view.fingerprint
    assert _lists(copy[:]) == expected
    assert not view.is_stream
    with pytest.raises(OptionError, match="windows"):
        view.windows(2)


def _first(source: TokenSource, row: list[int]) -> int:
    return next(i for i, one in enumerate(_lists(source)) if one == row)


def _lists(rows: Any) -> Rows:
    return [row.tolist() for row in rows]


def _read_in_a_child(source: TokenSource, ids: list[int]) -> Rows:
    ones = [source[i].tolist() for i in ids]
    assert _lists(source[ids]) == ones
    return ones
