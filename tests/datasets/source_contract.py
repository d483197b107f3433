"""What every `Source` promises; each source's tests inherit these and say what its records are."""

from __future__ import annotations

import multiprocessing
import pickle
import random
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.datasets import Source
from penstock.errors import OptionError, RecordIndexError, UnsafeForkError
from tests.datasets.sample import Record, filled, pick, typed_paths
from tests.rounds import LONG, rounds

if TYPE_CHECKING:
    from collections.abc import Callable

# A source is opened once a test, not once an example: it does not change by being read.
per_test = settings(
    max_examples=rounds(15, 1000),
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.differing_executors,
        HealthCheck.too_slow,
    ],
)
bounds = st.none() | st.integers(-250, 250)
steps = st.none() | st.integers(-7, 7).filter(bool) | st.sampled_from([-300, 300])
indexes = st.lists(st.integers(0, 10**6), max_size=30)


class SourceContract:
    """Inherited by the test class of each source, which gives two fixtures.

    `expected` is a list of 20 to 200 dicts, exactly as the source returns them; `open_source` is a
    function that opens a source of these records, a new one at each call. The helpers
    `sample_records` and `flat_records` of `tests.datasets.sample` make records of every shape;
    `filled` gives them as formats with columns do, every field there.

        class TestJsonlDataset(SourceContract):
            @pytest.fixture
            def expected(self) -> list[Record]:
                return sample_records(100)

            @pytest.fixture
            def open_source(self, tmp_path: Path, expected: list[Record]) -> Callable[[], Source]:
                write(tmp_path / "a.jsonl", expected)
                return lambda: penstock.open(tmp_path)

    There must be a field of integers without a gap (`sample_records` has `id`). Three attributes
    say where a source differs, and why is written beside them.
    """

    pickles_small = True
    """Without its records. In memory there is nowhere else for them to come from."""
    start_methods = ("fork", "forkserver", "spawn")
    """How processes may start after the parent has read. An object store's client forbids fork."""
    has_raw = False
    """Whether a record has bytes of its own."""

    @pytest.fixture
    def expected(self) -> list[Record]:
        raise NotImplementedError

    @pytest.fixture
    def open_source(self) -> Callable[[], Source]:
        raise NotImplementedError

    @pytest.fixture
    def source(self, open_source: Callable[[], Source]) -> Source:
        return open_source()

    def test_it_is_a_source_of_so_many_records(
        self, source: Source, expected: list[Record]
    ) -> None:
        assert isinstance(source, Source)
        assert len(source) == len(expected)

    def test_a_record_is_found_by_any_kind_of_integer(
        self, source: Source, expected: list[Record]
    ) -> None:
        n = len(expected)
        for i in (0, 1, n // 2, n - 1, -1, -n):
            assert source[i] == expected[i]
            for kind in (np.int64, np.int32, np.int16):
                assert source[kind(i)] == expected[i]
        assert source[np.uint8(7)] == expected[7]
        assert source[np.array(3)] == expected[3]

    @per_test
    @given(bounds, bounds, steps)
    def test_slices_are_those_of_a_list(
        self,
        source: Source,
        expected: list[Record],
        start: int | None,
        stop: int | None,
        step: int | None,
    ) -> None:
        assert source[start:stop:step] == expected[start:stop:step]

    @per_test
    @given(indexes)
    def test_lists_of_numbers_give_records_in_the_order_asked(
        self, source: Source, expected: list[Record], numbers: list[int]
    ) -> None:
        n = len(expected)
        ids = [number % (2 * n) - n for number in numbers]
        wanted = [expected[i] for i in ids]
        assert source[ids] == wanted
        assert source.read(ids) == wanted
        assert source.__getitems__(ids) == wanted

    def test_arrays_tuples_and_ranges_of_numbers_are_lists_of_numbers(
        self, source: Source, expected: list[Record]
    ) -> None:
        wanted = [expected[i] for i in (5, 2, 2, 9)]
        for ids in ([5, 2, 2, 9], (5, 2, 2, 9), np.array([5, 2, 2, 9], np.uint16)):
            assert source[ids] == wanted
            assert source.read(ids) == wanted
        assert source[range(4, 12, 3)] == expected[4:12:3]

    def test_asking_for_nothing_gives_nothing(self, source: Source) -> None:
        for ids in ([], (), np.array([], np.int64), np.array([])):
            assert source[ids] == []
            assert source.read(ids) == []
            assert source.__getitems__(ids) == []
            assert source.arrow(ids).num_rows == 0
            assert source.read(ids, {"some": "int8"}).schema == pa.schema({"some": pa.int8()})

    def test_a_number_out_of_range_is_an_index_error_with_the_length(self, source: Source) -> None:
        n = len(source)
        for wrong in (n, -n - 1, 10**15, np.int64(n)):
            for ask in (source.__getitem__, lambda i: source.read([0, i]), lambda i: source[[i]]):
                with pytest.raises(IndexError, match=f"{n:,}") as raised:
                    ask(wrong)
                assert isinstance(raised.value, RecordIndexError)

    def test_what_is_no_integer_is_a_type_error(self, source: Source) -> None:
        for wrong in (True, 1.0, "1", None, np.float64(1), np.bool_(True)):  # noqa: FBT003
            with pytest.raises(TypeError):
                source[wrong]  # type: ignore[call-overload]
        for wrong in ([True], [0.5], ["a"], [[1, 2], [3, 4]]):
            with pytest.raises(TypeError):
                source.read(wrong)

    def test_iteration_and_head_begin_at_the_first_record(
        self, source: Source, expected: list[Record]
    ) -> None:
        assert list(source) == expected
        assert list(source) == expected
        assert source.head() == expected[:5]
        assert source.head(2) == expected[:2]
        assert source.head(0) == []
        assert source.head(10**6) == expected

    def test_fields_come_in_the_order_and_types_asked(
        self, source: Source, expected: list[Record]
    ) -> None:
        fields = dict(reversed(typed_paths(expected).items()))
        ids = [7, 3, 3, -1, 0, *range(10, 20)]
        batch = source.read(ids, fields)
        assert isinstance(batch, pa.RecordBatch)
        batch.validate(full=True)
        assert batch.schema.names == list(fields)
        for path, column in zip(fields, batch.columns, strict=True):
            assert column.to_pylist() == [pick(expected[i], path) for i in ids], path
        assert source.arrow(ids, fields).equals(batch)
        assert source.read(ids, batch.schema).equals(batch)
        whole = source.arrow(fields=fields)
        assert isinstance(whole, pa.Table)
        assert whole.schema == batch.schema
        for path in fields:
            assert whole[path].to_pylist() == [pick(record, path) for record in expected], path

    def test_names_alone_have_the_types_of_the_schema(
        self, source: Source, expected: list[Record]
    ) -> None:
        names = list(typed_paths(expected))
        batch = source.read(np.arange(len(source)), names)
        assert batch.schema.names == names
        for path, column in zip(names, batch.columns, strict=True):
            assert column.to_pylist() == [pick(record, path) for record in expected], path

    def test_a_field_that_no_record_has_is_null_with_a_type_and_refused_without(
        self, source: Source
    ) -> None:
        nothing = source.read([1, 0], {"nowhere": "float32", "no.way": "int8"})
        assert nothing.schema == pa.schema({"nowhere": pa.float32(), "no.way": pa.int8()})
        assert nothing.to_pydict() == {"nowhere": [None, None], "no.way": [None, None]}
        with pytest.raises(OptionError, match="nowhere"):
            source.read([1, 0], ["nowhere"])

    def test_a_batch_of_some_records_has_all_their_fields(
        self, source: Source, expected: list[Record]
    ) -> None:
        ids = [len(expected) - 1, 4, 4, 0, 8]
        batch = source.arrow(ids)
        assert isinstance(batch, pa.RecordBatch)
        names = batch.schema.names
        assert {name for i in ids for name in expected[i]} <= set(names)
        rows = filled(expected)
        assert batch.to_pylist() == [{name: rows[i][name] for name in names} for i in ids]

    def test_the_table_of_all_records_has_every_field(
        self, source: Source, expected: list[Record]
    ) -> None:
        table = source.arrow()
        assert isinstance(table, pa.Table)
        table.validate(full=True)
        assert table.to_pylist() == filled(expected)

    def test_the_stream_gives_the_same_table(self, source: Source) -> None:
        table = pa.table(source)
        assert table.schema == source.arrow().schema
        assert table.equals(source.arrow())
        assert pa.schema(source) == table.schema

    def test_the_schema_names_fields_that_there_are(
        self, source: Source, expected: list[Record]
    ) -> None:
        assert isinstance(source.schema, pa.Schema)
        names = list(dict.fromkeys(name for record in expected for name in record))
        assert source.schema.names
        assert set(source.schema.names) <= set(names)

    def test_blocks_run_from_the_first_record_to_the_last(self, source: Source) -> None:
        blocks = source.blocks
        assert blocks.dtype == np.int64
        assert (blocks[0], blocks[-1]) == (0, len(source))
        assert (np.diff(blocks) > 0).all()

    def test_a_record_has_a_location_in_a_file_or_says_that_there_is_none(
        self, source: Source
    ) -> None:
        if not source.files:
            with pytest.raises(OptionError, match="memory"):
                source.location(0)
            return
        ids = np.array([3, 0, 3, len(source) - 1])
        many = source.location(ids)
        for k, number in enumerate(ids.tolist()):
            file, offset, size = source.location(number)
            assert file == source.files[many.file[k]]
            assert (offset, size) == (many.offset[k], many.bytes[k])
            assert (source.location(number - len(source))) == (file, offset, size)
        with pytest.raises(IndexError):
            source.location(len(source))

    def test_a_record_has_bytes_of_its_own_or_says_that_there_are_none(
        self, source: Source
    ) -> None:
        if not self.has_raw:
            with pytest.raises(OptionError):
                source.raw(0)
            return
        for number in (0, 5, -1):
            assert isinstance(source.raw(number), bytes)
            assert len(source.raw(number)) == source.location(number).bytes
        with pytest.raises(IndexError):
            source.raw(len(source))

    def test_the_fingerprint_stays_the_same_over_openings_and_pickles(
        self, source: Source, open_source: Callable[[], Source]
    ) -> None:
        fingerprint = source.fingerprint
        assert isinstance(fingerprint, str)
        assert fingerprint
        assert source[0] is not None
        assert source.fingerprint == fingerprint
        assert open_source().fingerprint == fingerprint
        assert pickle.loads(pickle.dumps(source)).fingerprint == fingerprint

    def test_it_pickles_before_and_after_it_was_read(
        self, source: Source, expected: list[Record]
    ) -> None:
        for _ in range(2):
            packed = pickle.dumps(source)
            assert len(packed) < 1000 or not self.pickles_small
            copy: Source = pickle.loads(packed)
            assert len(copy) == len(expected)
            assert copy[-3:] == expected[-3:]
            assert source.read([4], ["id"]).num_rows == 1
            assert source[4] == expected[4]

    def test_threads_read_at_once(self, source: Source, expected: list[Record]) -> None:
        def read(seed: int) -> int:
            chance, wrong = random.Random(seed), 0
            for _ in range(rounds(25, 100)):
                i, j, k = (chance.randrange(len(expected)) for _ in range(3))
                wrong += source[i] != expected[i]
                wrong += source[[j, k]] != [expected[j], expected[k]]
            return wrong

        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(read, range(8))) == [0] * 8

    # Each costs seconds for each source; tests/datasets/test_processes.py always has all three.
    @pytest.mark.parametrize("method", ["fork", "spawn", *["forkserver"] * LONG])
    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_processes_read_after_the_parent_did(
        self, source: Source, expected: list[Record], method: str
    ) -> None:
        ids = [random.Random(1).randrange(len(expected)) for _ in range(300)]
        assert source[ids] == [expected[i] for i in ids]
        assert pa.table(source).num_rows == len(expected)
        context = multiprocessing.get_context(method)
        with ProcessPoolExecutor(1, mp_context=context) as processes:
            if method not in self.start_methods:
                with pytest.raises(UnsafeForkError, match="forkserver"):
                    processes.submit(_read_in_a_child, source, ids).result()
                return
            first, second = processes.map(_read_in_a_child, [source, source], [ids, ids[::-1]])
        assert first == [expected[i] for i in ids]
        assert second == [expected[i] for i in ids[::-1]]

    def test_taken_records_are_a_source(self, source: Source, expected: list[Record]) -> None:
        ids = [9, 2, 2, 15, 0, -1, 11]
        _check_view(source.take(ids), [expected[i] for i in ids], source)
        assert source.take(ids).fingerprint != source.take(ids[::-1]).fingerprint
        assert source.take(ids).fingerprint == source.take(np.array(ids)).fingerprint

    def test_two_sources_are_one(self, source: Source, expected: list[Record]) -> None:
        _check_view(source + source, expected + expected, source)
        _check_view(source + source.take([3, 1]), [*expected, expected[3], expected[1]], source)

    def test_a_split_is_disjoint_and_covers_everything(
        self, source: Source, expected: list[Record]
    ) -> None:
        train, rest = source.split(train=0.7, rest=0.3)
        assert 0 < len(rest) < len(train) < len(source)
        assert _counted([*train, *rest]) == _counted(expected)
        _check_view(train, list(train), source)
        again, _ = source.split(train=0.7, rest=0.3)
        assert again.fingerprint == train.fingerprint != rest.fingerprint

    def test_a_condition_selects_records(self, source: Source, expected: list[Record]) -> None:
        middle = expected[len(expected) // 2]["id"]
        wanted = [record for record in expected if record["id"] >= middle]
        assert 0 < len(wanted) < len(expected)
        _check_view(source.where(f"id >= {middle}"), wanted, source)

    def test_a_look_says_what_it_is(self, source: Source, expected: list[Record]) -> None:
        assert f"{type(source).__name__} of {len(expected)} records" in repr(source)
        assert "id int" in repr(source)
        assert "<table>" in source._repr_html_()


def _check_view(view: Source, expected: list[Record], of: Source) -> None:
    """Check of a view what every source promises, in short."""
    assert isinstance(view, Source)
    assert len(view) == len(expected)
    assert list(view) == expected
    assert view[-1] == expected[-1]
    assert view[::-2] == expected[::-2]
    assert view[[1, 0, 1]] == [expected[1], expected[0], expected[1]]
    assert view.read([1, 0], {"id": "int32"}).to_pydict() == {
        "id": [expected[1]["id"], expected[0]["id"]]
    }
    assert view.arrow(fields=["id"])["id"].to_pylist() == [record["id"] for record in expected]
    assert pa.table(view).num_rows == len(expected)
    assert "id" in view.schema.names
    assert (view.blocks[0], view.blocks[-1]) == (0, len(view))
    with pytest.raises(IndexError, match=f"{len(view):,}"):
        view[len(view)]
    assert view.fingerprint != of.fingerprint
    copy: Source = pickle.loads(pickle.dumps(view))
    assert copy.fingerprint == view.fingerprint
    assert copy[:] == expected
    assert f"{len(view):,} records" in repr(view)


def _counted(records: list[Record]) -> Counter[str]:
    return Counter(repr(sorted(record.items())) for record in records)


def _read_in_a_child(source: Source, ids: list[int]) -> list[Any]:
    """Read one by one and all at once, and give back what both agree on."""
    ones = [source[i] for i in ids]
    assert source[ids] == ones
    assert source.read(ids, ["id"])["id"].to_pylist() == [one["id"] for one in ones]
    return ones
