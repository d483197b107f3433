from __future__ import annotations

import operator
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.datasets._concatenated import Concatenated
from penstock.datasets.views._views import Taken
from penstock.errors import OptionError, RecordIndexError, SchemaMismatchError
from tests.datasets.listed_source import ListedSource


def numbered(count: int, first: int = 0, **more: object) -> ListedSource:
    records = [{"n": number, "t": f"t{number}"} for number in range(first, first + count)]
    return ListedSource(records, **more)  # type: ignore[arg-type]


def numbers(records: list[dict[str, int]]) -> list[int]:
    return [record["n"] for record in records]


def brute_blocks(ids: list[int], blocks: list[int]) -> list[int]:
    """Return the borders of runs of one block, one number at a time."""
    if not ids:
        return [0]
    inside = [sum(number >= border for border in blocks) for number in ids]
    changes = [at for at in range(1, len(ids)) if inside[at] != inside[at - 1]]
    return [0, *changes, len(ids)]


IDS = st.lists(st.integers(0, 19), max_size=30)


@given(ids=IDS)
def test_a_taken_view_is_the_records_of_those_numbers_in_that_order(ids: list[int]) -> None:
    view = numbered(20).take(ids)
    assert numbers(list(view)) == ids
    assert numbers(view[::-1]) == ids[::-1]
    assert view.arrow(ids=range(len(ids))).num_rows == len(ids)


def test_a_view_is_indexed_as_every_source_is() -> None:
    view = numbered(10).take([3, 3, 9, 0])
    assert view[-1] == {"n": 0, "t": "t0"}
    assert numbers(view[[2, 1]]) == [9, 3]
    assert view.read([2, 0], ["t"]).to_pydict() == {"t": ["t9", "t3"]}
    with pytest.raises(RecordIndexError, match="there are 4"):
        view[4]


def test_taking_a_number_that_there_is_not_is_refused() -> None:
    with pytest.raises(RecordIndexError, match="no record 10: there are 10"):
        numbered(10).take([1, 10])


def test_negative_numbers_count_from_the_end_of_the_source() -> None:
    assert numbers(list(numbered(10).take([-1, 0]))) == [9, 0]


def test_changing_the_array_afterwards_does_not_change_the_view() -> None:
    ids = np.array([1, 2])
    view = numbered(10).take(ids)
    ids[:] = 5
    assert numbers(list(view)) == [1, 2]
    assert numbers(list(pickle.loads(pickle.dumps(view)))) == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        view.ids[0] = 7  # type: ignore[attr-defined]


def test_views_of_views_and_sums_of_them_find_the_right_records() -> None:
    a, b = numbered(10), numbered(10, first=100)
    both = a.take([5, 6, 7]).take([2, 0]) + b.take([1]) + a
    assert numbers(list(both)) == [7, 5, 101, *range(10)]


@given(ids=st.lists(st.integers(0, 11), max_size=30))
def test_a_sum_answers_in_the_order_asked_with_one_call_a_source(ids: list[int]) -> None:
    parts = [numbered(5), numbered(0), numbered(3, first=5), numbered(4, first=8)]
    both = Concatenated(parts)
    assert numbers(both[ids]) == ids
    schema = pa.schema({"t": pa.string(), "n": pa.int32(), "x": pa.bool_()})
    columns = both.read(np.array(ids, np.int64), schema)
    assert columns.schema == schema
    assert columns["n"].to_pylist() == ids
    assert both.arrow(np.array(ids, np.int64)).num_rows == len(ids)
    for part in parts:
        assert len({kind for kind, _ in part.calls}) == len(part.calls)


def test_sums_of_sums_are_one_sum_whichever_comes_first() -> None:
    a, b, c = numbered(2), numbered(3, first=2), numbered(4, first=5)
    assert ((a + b) + c).fingerprint == (a + (b + c)).fingerprint
    assert numbers(list((a + b) + c)) == list(range(9))


def test_a_sum_with_something_else_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        operator.add(numbered(2), [1])


def test_nothing_cannot_be_concatenated() -> None:
    with pytest.raises(OptionError, match="at least one"):
        Concatenated([])


def test_fingerprints_tell_views_apart_and_agree_for_equal_ones() -> None:
    a, b = numbered(10), numbered(10, first=5)
    prints = [
        a.fingerprint,
        b.fingerprint,
        a.take([1, 2]).fingerprint,
        a.take([2, 1]).fingerprint,
        b.take([1, 2]).fingerprint,
        (a + b).fingerprint,
        (b + a).fingerprint,
        (a + a).fingerprint,
        a.take([1, 2]).take([0]).fingerprint,
    ]
    assert len(set(prints)) == len(prints)
    assert numbered(10).take([1, 2]).fingerprint == a.take([1, 2]).fingerprint


def test_a_longer_first_source_is_another_sum_and_a_longer_last_one_is_not() -> None:
    a, longer, b = numbered(3), numbered(4), numbered(5, first=10)
    assert a.fingerprint == longer.fingerprint
    assert (a + b).fingerprint != (longer + b).fingerprint
    assert (b + a).fingerprint == (b + longer).fingerprint


def test_a_source_that_grows_does_not_move_the_records_behind_it() -> None:
    a, b = numbered(3), numbered(3, first=10)
    both = a + b
    a.records.append({"n": 99, "t": "late"})
    assert numbers(list(both)) == [0, 1, 2, 10, 11, 12]
    assert both.blocks.tolist() == [0, 3, 6]


@given(ids=IDS, block=st.integers(1, 25), ascending=st.booleans())
def test_blocks_of_a_view_are_runs_from_one_block_of_the_source(
    *, ids: list[int], block: int, ascending: bool
) -> None:
    ids = sorted(set(ids)) if ascending else ids
    source = numbered(20, block=block)
    assert source.take(ids).blocks.tolist() == brute_blocks(ids, source.blocks.tolist())


def test_blocks_of_a_sum_are_the_blocks_of_all() -> None:
    both = Concatenated([numbered(5, block=2), numbered(0), numbered(3), numbered(4, block=4)])
    assert both.blocks.tolist() == [0, 2, 4, 5, 8, 12]
    assert (numbered(0) + numbered(0)).blocks.tolist() == [0]


def test_a_view_knows_where_its_records_lie() -> None:
    view = numbered(10, path="a.jsonl").take([3, 7])
    assert view.files == ["a.jsonl"]
    assert view.location(-1) == ("a.jsonl", 70, 9)
    assert view.location(np.array([1, 0])).offset.tolist() == [70, 30]
    assert view.raw(0) == b'{"n": 3, "t": "t3"}'


def test_a_sum_knows_where_its_records_lie() -> None:
    a, b = numbered(3, path="a.jsonl"), numbered(3, first=10, path="b.jsonl")
    both = a + b + a
    assert both.files == ["a.jsonl", "b.jsonl"]
    assert both.location(4) == ("b.jsonl", 10, 9)
    assert both.raw(np.int64(4)) == b'{"n": 11, "t": "t11"}'
    many = both.location(np.array([8, 3, 0]))
    assert many.file.tolist() == [0, 1, 0]
    assert many.offset.tolist() == [20, 0, 0]
    assert many.bytes.tolist() == [9, 9, 9]
    assert many.file.dtype == np.int64
    assert both.location(np.empty(0, np.int64)).file.tolist() == []


def test_views_of_records_in_memory_lie_nowhere() -> None:
    for view in (numbered(3).take([1]), numbered(3) + numbered(3)):
        assert view.files == []
        with pytest.raises(OptionError, match="in no file"):
            view.location(0)
        with pytest.raises(OptionError, match="no bytes of its own"):
            view.raw(0)


def test_a_view_has_the_schema_of_its_source() -> None:
    assert numbered(3).take([1]).schema == pa.schema({"n": pa.int64(), "t": pa.string()})


def test_a_sum_has_a_schema_that_holds_all_records() -> None:
    both = ListedSource([{"a": 1, "b": {"c": 1}}]) + ListedSource(
        [{"a": 0.5, "b": {"d": "x"}, "e": [1]}]
    )
    inner = pa.struct({"c": pa.int64(), "d": pa.string()})
    assert both.schema == pa.schema({"a": pa.float64(), "b": inner, "e": pa.list_(pa.int64())})
    assert both.arrow(np.array([1, 0])).to_pylist() == [
        {"a": 0.5, "b": {"c": None, "d": "x"}, "e": [1]},
        {"a": 1.0, "b": {"c": 1, "d": None}, "e": None},
    ]


@pytest.mark.parametrize(
    ("one", "other", "path", "types"),
    [
        ({"a": 1}, {"a": "x"}, "a", ("int64", "string")),
        ({"a": {"b": True}}, {"a": {"b": 1}}, "a.b", ("bool", "int64")),
        ({"a": [[1]]}, {"a": [1]}, "a[]", ("list<", "list<item: int64>")),
    ],
)
def test_sources_that_no_schema_holds_are_named_with_the_field(
    one: dict[str, object], other: dict[str, object], path: str, types: tuple[str, str]
) -> None:
    both = ListedSource([one], path="a.jsonl") + ListedSource([other], path="b.jsonl")
    said = rf"'{path.replace('[', '.').replace(']', '.')}' is {types[0]}.* in ListedSource of"
    with pytest.raises(SchemaMismatchError, match=rf"{said} a.jsonl and {types[1]}.*b.jsonl"):
        _ = both.schema
    with pytest.raises(SchemaMismatchError, match=said):
        both.arrow(np.arange(2))
    assert both[:] == [one, other]


def test_null_fits_every_type() -> None:
    both = ListedSource([{"a": None}]) + ListedSource([{"a": "x"}])
    assert both.schema == pa.schema({"a": pa.string()})


def test_columns_of_dictionaries_are_joined() -> None:
    type_ = pa.dictionary(pa.int8(), pa.string())
    both = ListedSource([{"a": "x"}, {"a": "y"}]) + ListedSource([{"a": "z"}])
    columns = both.read(np.array([2, 1, 0]), pa.schema({"a": type_}))
    assert columns["a"].to_pylist() == ["z", "y", "x"]


def test_records_without_columns_keep_their_number() -> None:
    both = ListedSource([{}, {}]) + ListedSource([{}])
    assert both.read(np.arange(3), pa.schema([])).num_rows == 3


def test_views_pickle_with_their_source() -> None:
    view = numbered(5).take([4, 0]) + numbered(3, first=10)
    copy = pickle.loads(pickle.dumps(view))
    assert isinstance(copy, Concatenated)
    assert isinstance(copy.sources[0], Taken)
    assert copy[:] == view[:]
    assert copy.fingerprint == view.fingerprint
