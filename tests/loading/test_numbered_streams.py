"""Streams whose units yield record numbers of a source, own their units, and are sampled."""

from __future__ import annotations

from collections import Counter
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.datasets import Stream
from penstock.errors import OptionError
from penstock.schema import Category, Number, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDS = [{"n": number, "text": f"r{number}"} for number in range(50)]


class Ranges(Stream):
    """Ranges of a source's records; the last reader of all owns each unit whose number is odd."""

    is_permuted = False

    def __init__(self, borders: list[int]) -> None:
        super().__init__([*pairwise(borders)], None)
        self.source = penstock.open(RECORDS)

    def opened(self, number: int, start: int, worker: object) -> Iterator[Any]:
        del worker
        first, stop = self.units[number]
        for at in range(first + start, stop, 4):
            yield np.arange(at, min(at + 4, stop))

    def owners(self, world_size: int, lanes: int) -> Any:
        return np.arange(len(self.units)) % 2 * (world_size * lanes - 1)


def loader(stream: Any, **options: Any) -> penstock.DataLoader:
    options = {"batch_size": 5, "num_workers": 0, **options}
    return penstock.DataLoader(stream, {"n": "int64"}, **options)


def ids(batches: Any) -> list[int]:
    return [number for batch in batches for number in batch.ids.tolist()]


BORDERS = [0, 7, 12, 30, 31, 50]


def test_ids_are_the_numbers_of_the_source_and_records_are_read_by_them() -> None:
    batches = list(loader(Ranges(BORDERS)))
    assert ids(batches) == [*range(50)]
    assert [n for batch in batches for n in batch["n"].tolist()] == [*range(50)]


def test_what_map_makes_of_a_record_has_its_number_and_others_have_new_ones() -> None:
    doubled = Ranges(BORDERS).map(lambda record: [record, {**record, "n": -record["n"]}])
    numbers = ids(loader(doubled))
    assert numbers[::2] == [*range(50)]
    assert len(set(numbers)) == 100
    assert min(numbers[1::2]) >= 1 << 62
    # They depend on the record alone, not on how records are cut into units.
    other = Ranges([0, 50]).map(lambda record: [record, {**record, "n": -record["n"]}])
    assert ids(loader(other)) == numbers


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_readers_have_the_units_that_they_own(world_size: int, workers: int) -> None:
    stream = Ranges(BORDERS)
    shares = [
        ids(loader(stream, rank=rank, world_size=world_size, num_workers=workers))
        for rank in range(world_size)
    ]
    assert sorted(chain(*shares)) == [*range(50)]
    odd = {*range(7, 12), *range(30, 31)}
    if world_size > 1:
        assert {*shares[-1]} == odd
        assert {*shares[0]} == {*range(50)} - odd


@pytest.mark.parametrize(("workers", "shuffle"), [(0, False), (0, True), (2, True)])
def test_a_run_over_owned_units_goes_on_at_any_batch(workers: int, shuffle: object) -> None:
    stream = Ranges(BORDERS).changed(buffer=8).sample(0.7)
    options = {"num_workers": workers, "shuffle": shuffle}
    whole = loader(stream, **options)
    batches, states = [], []
    for batch in whole:
        batches.append(batch.ids.tolist())
        states.append(whole.state_dict())
    for number, state in enumerate(states, 1):
        again = loader(stream, **options)
        again.load_state_dict(state)
        assert [batch.ids.tolist() for batch in again] == batches[number:]


@given(st.floats(0.1, 0.9), st.integers(0, 5), st.integers(1, 4))
def test_a_sample_depends_on_seed_epoch_and_record_alone(rate: float, seed: int, cut: int) -> None:
    def chosen(borders: list[int], epoch: int, size: int) -> list[int]:
        one = loader(Ranges(borders).sample(rate), seed=seed, batch_size=size)
        one.set_epoch(epoch)
        return sorted(ids(one))

    assert chosen([0, 50], 0, 5) == chosen([*range(0, 50, cut), 50], 0, 3)


def test_a_sample_has_its_share_of_records_and_others_in_each_epoch() -> None:
    stream = penstock.stream([0], lambda _, start=0: ({"n": n} for n in range(start, 20_000)))
    one = loader(stream.sample(0.5).sample(0.5), batch_size=1000)
    first, second = ids(one), ids(one)
    assert 4700 < len(first) < 5300
    assert 1000 < len({*first} & {*second}) < 1500
    for rate in (0, -1, 1.5, float("nan")):
        with pytest.raises(OptionError, match="above 0 and at most 1"):
            stream.sample(rate)


def test_records_that_come_again_get_draws_of_their_own() -> None:
    class Twice(Ranges):
        repeats = True

    seen: list[Any] = []

    class Drawing:
        fields = penstock.batch.FieldEncoder({"n": "int64"}).fields

        def encode(self, columns: Any, where: Any) -> Any:
            seen.extend(zip(where.ids.tolist(), where.draw("mask")[:, 0].tolist(), strict=True))
            return penstock.Batch({"n": columns["n"].to_numpy()}, where.ids)

    twice = Twice([0, 10])
    twice = twice.changed(_units=[(0, 10), (0, 10)])
    list(penstock.DataLoader(twice, Drawing(), batch_size=4, num_workers=0))
    assert Counter(number for number, _ in seen) == dict.fromkeys(range(10), 2)
    assert len({draw for _, draw in seen}) == 20


@pytest.mark.parametrize("source", [RECORDS, Ranges(BORDERS)])
def test_a_mark_makes_the_state_of_its_batch_when_more_were_handed_out(source: Any) -> None:
    schema = Schema(Category("text"), Number("n"))
    options = {"batch_size": 8, "shuffle": True, "num_workers": 0}
    whole = penstock.DataLoader(source, schema, **options)
    batches, marks, states = [], [], []
    for batch in whole:
        batches.append(batch.ids.tolist())
        marks.append(whole.mark())
        states.append(whole.state_dict())
    assert [whole.state_dict(mark) for mark in marks] == states
    again = penstock.DataLoader(source, Schema(Category("text"), Number("n")), **options)
    again.load_state_dict(whole.state_dict(marks[2]))
    assert [batch.ids.tolist() for batch in again] == batches[3:]
    assert again.state_dict() == whole.state_dict()


def test_a_leaf_whose_column_the_table_lacks_is_null() -> None:
    stream = Ranges(BORDERS)
    stream.source = penstock.open(pa.table({"n": range(50)}))
    schema = Schema(Number("n"), Number("other"))
    batch = next(iter(penstock.DataLoader(stream, schema, batch_size=2, num_workers=0)))
    assert batch["record/n"].state.tolist() == [[0], [0]]
    assert batch["record/other"].state.tolist() == [[1], [1]]
