from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.errors import OptionError, RecordIndexError
from penstock.order import Order, share, share_full, share_rows, steps

LENGTHS = st.integers(0, 300)
BATCHES = st.integers(1, 20)
WORLDS = st.integers(1, 12)
LANES = st.sampled_from([1, 64])


def epoch_of(  # noqa: PLR0913 (those of `share_rows`)
    length: int,
    batch_size: int,
    world_size: int,
    *,
    drop_last: bool = False,
    origin: int = 0,
    lanes: int = 1,
) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """Return the rows of every rank at every step from `origin` on."""
    return [
        [
            share_rows(
                step, batch_size, rank, world_size, length, drop_last, origin=origin, lanes=lanes
            )
            for rank in range(world_size)
        ]
        for step in range(steps(length, batch_size, world_size, drop_last, origin=origin))
    ]


def real(epoch: list[list[tuple[np.ndarray, np.ndarray]]]) -> list[list[int]]:
    """Return the real positions of each global batch, sorted."""
    return [
        sorted(int(at) for rows, valid in ranks for at in rows[valid].tolist()) for ranks in epoch
    ]


@given(length=LENGTHS, batch_size=BATCHES, world_size=WORLDS, lanes=LANES)
def test_ranks_take_every_position_exactly_once(
    length: int, batch_size: int, world_size: int, lanes: int
) -> None:
    batches = real(epoch_of(length, batch_size, world_size, lanes=lanes))
    assert [at for batch in batches for at in batch] == list(range(length))


@given(length=LENGTHS, batch_size=BATCHES, world_size=WORLDS, lanes=LANES)
def test_dropping_the_rest_drops_only_the_rest_on_all_ranks(
    length: int, batch_size: int, world_size: int, lanes: int
) -> None:
    epoch = epoch_of(length, batch_size, world_size, drop_last=True, lanes=lanes)
    whole = length // (batch_size * world_size)
    assert len(epoch) == whole
    assert [at for batch in real(epoch) for at in batch] == list(
        range(whole * batch_size * world_size)
    )
    for ranks in epoch:
        for rows, valid in ranks:
            assert len(rows) == batch_size
            assert valid.all()


@given(length=LENGTHS, batch_size=BATCHES, world_size=WORLDS, drop=st.booleans(), lanes=LANES)
def test_all_ranks_get_equally_many_rows_at_every_step(
    *, length: int, batch_size: int, world_size: int, drop: bool, lanes: int
) -> None:
    epoch = epoch_of(length, batch_size, world_size, drop_last=drop, lanes=lanes)
    for ranks in epoch:
        assert len({len(rows) for rows, _ in ranks}) == 1
        assert 1 <= len(ranks[0][0]) <= batch_size
    padding = sum(int((~valid).sum()) for ranks in epoch for _, valid in ranks)
    assert padding < world_size
    assert all((rows >= 0).all() and (rows < length).all() for ranks in epoch for rows, _ in ranks)


@given(length=LENGTHS, batch_size=BATCHES, world_size=WORLDS, data=st.data())
def test_a_share_is_a_slice_whose_last_rows_are_the_padding(
    length: int, batch_size: int, world_size: int, data: st.DataObject
) -> None:
    count = steps(length, batch_size, world_size, drop_last=False)
    assume(count)
    step = data.draw(st.integers(0, count - 1))
    rank = data.draw(st.integers(0, world_size - 1))
    start, stop, valid = share(step, batch_size, rank, world_size, length, drop_last=False)
    rows, mask = share_rows(step, batch_size, rank, world_size, length, drop_last=False)
    assert rows.dtype == np.int64
    assert rows.tolist() == [min(at, length - 1) for at in range(start, stop)]
    assert mask.tolist() == [True] * valid + [False] * (stop - start - valid)


@given(
    length=LENGTHS,
    batch_size=BATCHES,
    world_size=st.one_of(WORLDS, st.sampled_from([16, 32, 64])),
    lanes=LANES,
    data=st.data(),
)
def test_many_full_steps_at_once_are_the_steps_one_by_one(
    length: int, batch_size: int, world_size: int, lanes: int, data: st.DataObject
) -> None:
    origin = data.draw(st.integers(0, length))
    count = steps(length, batch_size, world_size, drop_last=True, origin=origin)
    start = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start, count))
    rank = data.draw(st.integers(0, world_size - 1))
    numbers = (batch_size, rank, world_size, length)
    found = share_full(start, stop, *numbers, origin=origin, lanes=lanes)
    assert found.dtype == np.int64
    assert found.shape == (stop - start, batch_size)
    for step, rows in zip(range(start, stop), found, strict=True):
        for drop in (False, True):
            one, valid = share_rows(step, *numbers, drop, origin=origin, lanes=lanes)
            assert valid.all()
            assert np.array_equal(one, rows)


@given(length=LENGTHS, total=st.sampled_from([12, 24, 64, 128]), drop=st.booleans(), lanes=LANES)
def test_every_world_size_that_divides_the_global_batch_sees_the_same_global_batches(
    *, length: int, total: int, drop: bool, lanes: int
) -> None:
    expected = real(epoch_of(length, total, 1, drop_last=drop))
    for world_size in (2, 3, 4, 8, 12, 64):
        if total % world_size == 0:
            epoch = epoch_of(length, total // world_size, world_size, drop_last=drop, lanes=lanes)
            assert real(epoch) == expected


@given(
    length=st.integers(1, 150),
    before=st.tuples(BATCHES, WORLDS),
    after=st.tuples(BATCHES, WORLDS),
    kind=st.sampled_from(["sequential", "full"]),
    seed=st.integers(0, 1000),
    lanes=LANES,
)
def test_before_every_cut_and_after_it_together_are_the_uncut_epoch(  # noqa: PLR0913, PLR0917
    length: int, before: tuple[int, int], after: tuple[int, int], kind: str, seed: int, lanes: int
) -> None:
    order = Order(length, seed=seed, kind=kind)
    uncut = order.positions(0, length)
    first = epoch_of(length, *before, lanes=lanes)
    for cut in range(len(first) + 1):
        position = min(length, cut * before[0] * before[1])
        second = epoch_of(length, *after, origin=position, lanes=lanes)
        seen = [at for batch in [*real(first[:cut]), *real(second)] for at in batch]
        assert np.array_equal(order.at(np.array(seen)), uncut)
        # The same global batch continues with the very batches of the uncut run.
        if before == after:
            assert real(second) == real(first)[cut:]


@given(length=st.integers(0, 2000), batch_size=BATCHES, power=st.integers(0, 6))
def test_a_rank_takes_whole_lanes_where_the_world_size_divides_them(
    length: int, batch_size: int, power: int
) -> None:
    world_size = 2**power
    epoch = epoch_of(length, batch_size, world_size, lanes=64)
    for ranks in epoch:
        for rank, (rows, valid) in enumerate(ranks):
            assert (rows[valid] % 64 % world_size == rank).all()


@pytest.mark.parametrize("cut", [0, 1, 40])
def test_a_block_order_cut_on_eight_ranks_continues_on_three(cut: int) -> None:
    length = 70_000
    order = Order(length, kind="block", blocks=np.arange(0, length + 1, 100))
    first = epoch_of(length, 192, 8, lanes=order.lanes)
    second = epoch_of(length, 512, 3, origin=cut * 1536, lanes=order.lanes)
    batches = [np.array(batch) for batch in [*real(first[:cut]), *real(second)]]
    assert [at for batch in batches for at in batch.tolist()] == list(range(length))
    records = np.concatenate([order.at(batch) for batch in batches])
    assert np.array_equal(records, order.positions(0, length))
    assert real(second) == real(first)[cut:]


def test_fewer_records_than_ranks_give_every_rank_one_row() -> None:
    epoch = epoch_of(3, 4, 8)
    assert [(rows.tolist(), valid.tolist()) for rows, valid in epoch[0]] == [
        ([0], [True]),
        ([1], [True]),
        ([2], [True]),
        *[([2], [False])] * 5,
    ]
    assert len(epoch) == 1


def test_no_records_are_no_steps() -> None:
    assert steps(0, 4, 8, drop_last=False) == steps(0, 4, 8, drop_last=True) == 0
    assert steps(10, 4, 1, drop_last=False, origin=10) == 0


def test_one_rank_has_a_short_batch_and_no_padding() -> None:
    assert share(2, 4, 0, 1, 10, drop_last=False) == (8, 10, 2)


@pytest.mark.parametrize("step", [-1, 3])
def test_a_step_outside_the_epoch_is_refused_with_their_number(step: int) -> None:
    with pytest.raises(RecordIndexError, match=rf"no step {step} in an epoch of 3"):
        share(step, 4, 0, 1, 10, drop_last=False)


@pytest.mark.parametrize("window", [(-1, 1), (2, 1), (0, 3)])
def test_steps_that_are_not_full_are_refused_with_their_number(window: tuple[int, int]) -> None:
    with pytest.raises(RecordIndexError, match="do not lie in the 2 full ones"):
        share_full(*window, batch_size=4, rank=0, world_size=1, length=10)
    with pytest.raises(OptionError, match="rank=1 is not one of 1"):
        share_full(0, 1, batch_size=4, rank=1, world_size=1, length=10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 2}, "rank=2 is not one of 2"),
        ({"rank": -1}, "rank=-1"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"world_size": 0}, "world_size=0"),
        ({"origin": 11}, "origin=11 .* 10 records"),
        ({"length": -1}, "origin=0 .* -1 records"),
    ],
)
def test_numbers_that_cannot_be_are_refused(change: dict[str, int], message: str) -> None:
    arguments = {"step": 0, "batch_size": 2, "rank": 0, "world_size": 2, "length": 10} | change
    with pytest.raises(OptionError, match=message):
        share(**arguments, drop_last=False)
