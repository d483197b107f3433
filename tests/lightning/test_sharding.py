"""Records over ranks and workers: each once, in shares that are as equal as units allow."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.lightning import ShardingStrategy
from penstock.lightning._shares import SharedRecords, SourcePart, steps_of
from penstock.lightning._units import UnitPlan, buffered
from tests.rounds import rounds

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE, CHUNK, RECORD = ShardingStrategy


def files(sizes: Sequence[int], forward: Sequence[int] = ()) -> tuple[SourcePart, ...]:
    """Return files of so many records each."""
    borders = pairwise(accumulate(sizes, initial=0))
    named = [SourcePart(f"data/{n}.jsonl", (own,), n in forward) for n, own in enumerate(borders)]
    return tuple(one for one in named if one.ranges[0][0] < one.ranges[0][1])


def stream(plan: UnitPlan) -> SharedRecords:
    records = sum(stop - start for part in plan.parts for start, stop in part.ranges)
    return SharedRecords(penstock.open([{"n": n} for n in range(records)]), plan)


def shares(plan: UnitPlan, world_size: int, lanes: int, epoch: int = 0) -> list[list[int]]:
    """Return what each reader of each rank reads, in its order."""
    epochs: Any = stream(plan).at(epoch)
    found: list[list[int]] = [[] for _ in range(world_size * lanes)]
    for number, owner in enumerate(epochs.owners(world_size, lanes).tolist()):
        found[owner] += chain.from_iterable(
            part.tolist() for part in epochs.opened(number, 0, None)
        )
    return found


def of_ranks(found: list[list[int]], lanes: int) -> list[int]:
    sizes = [len(own) for own in found]
    return [sum(sizes[at : at + lanes]) for at in range(0, len(sizes), lanes)]


layouts = st.tuples(st.integers(1, 4), st.integers(1, 3))
sizes_of_files = st.lists(st.integers(0, 40), min_size=1, max_size=12)


@given(
    sizes_of_files,
    st.sampled_from(ShardingStrategy),
    layouts,
    st.fixed_dictionaries({"by_hash": st.booleans(), "buffer": st.integers(1, 5)}),
)
def test_every_record_is_read_once_by_one_reader(
    sizes: list[int], sharding: ShardingStrategy, layout: tuple[int, int], more: dict[str, Any]
) -> None:
    plan = UnitPlan(files(sizes), sharding, 7, layout[0] * layout[1], 3, **more)
    for epoch in (0, 1):
        found = shares(plan, *layout, epoch)
        assert sorted(chain(*found)) == list(range(sum(sizes)))


@given(sizes_of_files, layouts)
def test_shares_of_records_differ_by_one_record(sizes: list[int], layout: tuple[int, int]) -> None:
    plan = UnitPlan(files(sizes), RECORD, 4, layout[0] * layout[1], 0)
    counts = [len(own) for own in shares(plan, *layout)]
    assert max(counts) - min(counts) <= 1


@given(sizes_of_files, layouts, st.integers(1, 15), st.sampled_from([FILE, CHUNK]))
def test_ranks_differ_by_one_unit_at_most(
    sizes: list[int], layout: tuple[int, int], chunk: int, sharding: ShardingStrategy
) -> None:
    plan = UnitPlan(files(sizes), sharding, chunk, layout[0] * layout[1], 0)
    units = [unit.size for unit in plan(0)]
    counts = of_ranks(shares(plan, *layout), layout[1])
    assert max(counts) - min(counts) <= max(units, default=0)
    assert counts.count(0) <= max(0, layout[0] - len(units))  # None is idle while another has two.


def test_few_files_go_to_all_ranks_and_not_to_the_workers_of_one() -> None:
    plan = UnitPlan(files([10, 10]), FILE, 4, 8, 0)
    assert of_ranks(shares(plan, 2, 4), 4) == [10, 10]


@given(sizes_of_files, layouts, st.integers(1, 9), st.sampled_from(ShardingStrategy), st.booleans())
def test_the_number_of_batches_is_that_of_all_readers(
    sizes: list[int],
    layout: tuple[int, int],
    batch: int,
    sharding: ShardingStrategy,
    replacement: bool,  # noqa: FBT001 (drawn)
) -> None:
    plan = UnitPlan(files(sizes), sharding, 7, layout[0] * layout[1], 1, replacement=replacement)
    for epoch in (0, 3):
        found = shares(plan, *layout, epoch)
        batches = [-(-len(own) // batch) for own in found]
        steps = [sum(batches[at : at + layout[1]]) for at in range(0, len(batches), layout[1])]
        assert steps_of(stream(plan).at(epoch), batch, *layout) == steps


# By hash.


def owner(key: str, count: int) -> int:
    return int.from_bytes(sha256(key.encode()).digest()[:8], "big") % count


@pytest.mark.parametrize("readers", [1, 2, 5])
def test_owners_by_hash_are_those_of_json2vec(readers: int) -> None:
    parts, row_of = files([9, 0, 4]), [*range(9), *range(4)]
    names = [part.name for part in parts for _ in range(*part.ranges[0])]
    for sharding, key in (
        (FILE, lambda n: f"file:{names[n]}"),
        (CHUNK, lambda n: f"chunk:{names[n]}:{row_of[n] // 3}"),
        (RECORD, lambda n: f"record:{names[n]}:{row_of[n]}"),
    ):
        plan = UnitPlan(parts, sharding, 3, readers, 0, by_hash=True)
        expected = [
            [n for n in range(13) if owner(key(n), readers) == own] for own in range(readers)
        ]
        assert shares(plan, 1, readers) == expected


def test_records_of_tables_are_named_by_chunk_and_row_there() -> None:
    parts, row_of = files([9, 0, 4]), [*range(9), *range(4)]
    names = [part.name for part in parts for _ in range(*part.ranges[0])]
    plan = UnitPlan(parts, RECORD, 3, 2, 0, by_hash=True, names_chunks=True)
    keys = [f"record:{names[n]}:{row_of[n] // 3}:{row_of[n] % 3}" for n in range(13)]
    expected = [[n for n in range(13) if owner(keys[n], 2) == own] for own in range(2)]
    assert shares(plan, 1, 2) == expected


@pytest.mark.parametrize("by_hash", [False, True])
def test_a_share_of_records_is_read_on_from_any_place(by_hash: bool) -> None:  # noqa: FBT001
    made = stream(UnitPlan(files([9, 4]), RECORD, 3, 2, 0, by_hash=by_hash))
    for number in range(len(made.units)):
        whole = [n for at in made.opened(number, 0, None) for n in at.tolist()]
        assert len(whole) == made.units[number].size
        for start in range(len(whole) + 1):
            rest = [n for at in made.opened(number, start, None) for n in at.tolist()]
            assert rest == whole[start:]


def test_new_files_move_no_others_by_hash() -> None:
    def owners(sizes: list[int]) -> dict[str, int]:
        own = stream(UnitPlan(files(sizes), FILE, 3, 4, 0, by_hash=True))
        return {unit.key: int(at) for unit, at in zip(own.units, own.owners(2, 2), strict=True)}

    before = owners([3, 3, 3])
    assert owners([3, 3, 3, 100]) == before | {"file:data/3.jsonl": owner("file:data/3.jsonl", 4)}


# The order of files.


@given(st.integers(0, 40), st.integers(1, 12), st.integers(0, 9))
def test_a_buffer_moves_no_file_forward_by_its_size(count: int, size: int, epoch: int) -> None:
    order = buffered(count, size, 5, epoch)
    assert sorted(order) == list(range(count))
    assert all(number - place < size for place, number in enumerate(order))
    if size == 1:
        assert order == sorted(order)


def test_files_are_shuffled_whole_and_anew_in_each_epoch() -> None:
    sizes = [6] * 10
    for sharding in ShardingStrategy:
        plan = UnitPlan(files(sizes), sharding, 2, 1, 7, buffer=10)
        epochs = [shares(plan, 1, 1, epoch)[0] for epoch in range(3)]
        for order in epochs:
            runs = [order[at : at + 6] for at in range(0, 60, 6)]
            assert all(run == list(range(run[0], run[0] + 6)) for run in runs)
        assert len({tuple(order) for order in epochs}) == 3
        assert shares(plan, 1, 1, 1)[0] == epochs[1]


def test_a_full_buffer_is_a_uniform_shuffle() -> None:
    times = rounds(600, 20_000)
    first = Counter(buffered(4, 4, 0, epoch)[0] for epoch in range(times))
    assert all(abs(count - times / 4) < 5 * (times * 3 / 16) ** 0.5 for count in first.values())
    assert len(Counter(tuple(buffered(4, 4, 0, epoch)) for epoch in range(times))) == 24


# With replacement.


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any),
    layouts,
    st.integers(1, 15),
    st.integers(0, 5),
    st.sets(st.integers(0, 7)),
)
def test_draws_of_an_epoch_are_as_many_as_records_in_equal_shares(
    sizes: list[int], layout: tuple[int, int], chunk: int, epoch: int, forward: set[int]
) -> None:
    readers = layout[0] * layout[1]
    parts = files(sizes, [*forward])
    plan = UnitPlan(parts, FILE, chunk, readers, 1, replacement=True)
    found = shares(plan, *layout, epoch)
    counts = [len(own) for own in found]
    assert sum(counts) == sum(sizes)
    assert max(counts) - min(counts) <= 1
    assert {*chain(*found)} <= {*range(sum(sizes))}


@pytest.mark.parametrize("readers", [1, 4])
@pytest.mark.parametrize("forward", [[], [1]])
def test_every_record_is_drawn_equally_often_whatever_the_size_of_its_file(
    readers: int, forward: list[int]
) -> None:
    sizes, epochs = [1, 53, 6], rounds(1000, 20_000)
    plan = UnitPlan(files(sizes, forward), FILE, 8, readers, 2, replacement=True)
    counts = Counter(chain(*(chain(*shares(plan, readers, 1, at)) for at in range(epochs))))
    drawn = np.array([counts[number] for number in range(sum(sizes))]) / epochs
    assert drawn.sum() == pytest.approx(sum(sizes))
    # A file that can only be read from its beginning is begun at a few places.
    assert np.abs(drawn - 1).max() < (0.3 if forward else 0.2)


def test_a_single_chunk_comes_whole_in_each_epoch() -> None:
    plan = UnitPlan(files([20]), FILE, 4096, 1, 0, replacement=True)
    orders = [shares(plan, 1, 1, epoch)[0] for epoch in range(5)]
    assert all(sorted(order) == list(range(20)) for order in orders)
    assert len({tuple(order) for order in orders}) > 1


def test_readers_epochs_and_seeds_draw_differently() -> None:
    def drawn(seed: int, epoch: int) -> list[list[int]]:
        plan = UnitPlan(files([200] * 5), FILE, 10, 4, seed, replacement=True)
        return shares(plan, 2, 2, epoch)

    all_draws = [tuple(own) for seed in (0, 1) for epoch in (0, 1) for own in drawn(seed, epoch)]
    assert len({*all_draws}) == len(all_draws)
    assert drawn(1, 1) == drawn(1, 1)


def test_rows_of_a_frame_are_drawn_one_by_one() -> None:
    frame = (SourcePart("", ((0, 5000),)),)
    found = shares(UnitPlan(frame, CHUNK, 100, 3, 0, replacement=True), 3, 1)
    counts = Counter(chain(*found))
    assert [len(own) for own in found] == [1666, 1667, 1667]
    assert 3000 < len(counts) < 3320  # 5000 · (1 - 1/e)
    assert max(counts.values()) < 10


# Another number of readers goes on.


@pytest.mark.parametrize(("sharding", "replacement"), [(RECORD, False), (FILE, True)])
def test_an_epoch_keeps_the_shares_that_it_began_with(
    sharding: ShardingStrategy,
    replacement: bool,  # noqa: FBT001 (a variant)
) -> None:
    def plan(readers: int, begun: tuple[int, int] | None = None) -> UnitPlan:
        about = (files([30, 11]), sharding, 4, readers, 6)
        return UnitPlan(*about, replacement=replacement, begun=begun)

    before, now = plan(4), plan(3, (2, 4))
    assert now(2) == before(2)
    assert now(3) == plan(3)(3)
    assert sorted(chain(*shares(now, 3, 1, 2))) == sorted(chain(*shares(before, 4, 1, 2)))
