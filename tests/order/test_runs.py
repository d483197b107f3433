"""Whole runs, from the numbers of a state to the records of every rank, worker and step."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.order import Cursor, Order, Skips, share_full, share_rows, steps
from tests.rounds import rounds

SEEDS = st.integers(-(2**70), 2**70)
FEW = settings(max_examples=rounds(5, 60))
"""An order with lanes has more than 65,536 records, which takes a while."""


@dataclass(frozen=True)
class Layout:
    """Who takes part in a run, and how much each takes."""

    batch_size: int
    world_size: int
    workers: int = 0
    drop_last: bool = False

    @property
    def total(self) -> int:
        return self.batch_size * self.world_size


@st.composite
def layouts(draw: st.DrawFn, *, drop: bool | None = None) -> Layout:
    return Layout(
        draw(st.integers(1, 20)),
        draw(st.integers(1, 9)),
        draw(st.integers(0, 4)),
        draw(st.booleans()) if drop is None else drop,
    )


Step = list[tuple[np.ndarray, np.ndarray]]
"""Records and whether they count, of every rank."""


def run_of(cursor: Cursor, layout: Layout, blocks: np.ndarray | None = None) -> list[Step]:
    """Return what every rank gets at every step from a place to the end of its epoch.

    Each rank has workers that take turns; full steps are computed many at a time, as a loader does.
    """
    order = cursor.order(blocks)
    length, origin = len(order), cursor.position
    masked = Skips(cursor.masked, cursor.length)
    numbers = (layout.batch_size, layout.world_size)
    count = steps(length, *numbers, layout.drop_last, origin=origin)
    full = steps(length, *numbers, drop_last=True, origin=origin)
    epoch: list[Step] = [[] for _ in range(count)]
    for rank in range(layout.world_size):
        who = (layout.batch_size, rank, layout.world_size, length)
        rows = share_full(0, full, *who, origin=origin, lanes=order.lanes)
        batches = [(positions, np.ones(len(positions), dtype=bool)) for positions in rows]
        if count > full:
            batches.append(
                share_rows(full, *who, drop_last=False, origin=origin, lanes=order.lanes)
            )
        turns = max(1, layout.workers)
        queues = [batches[worker::turns] for worker in range(turns)]
        for step in range(count):
            positions, valid = queues[step % turns][step // turns]
            records = order.at(positions)
            epoch[step].append((records, valid & ~masked.hold(records)))
    return epoch


def counted(epoch: list[Step]) -> list[list[int]]:
    """Return the records that count of every global batch, sorted."""
    return [
        sorted(int(record) for records, valid in step for record in records[valid])
        for step in epoch
    ]


def flat(batches: list[list[int]]) -> list[int]:
    return [record for batch in batches for record in batch]


def through_json(cursor: Cursor) -> Cursor:
    return Cursor.from_dict(json.loads(json.dumps(cursor.to_dict())))


def after(cursor: Cursor, layout: Layout, done: int) -> Cursor:
    """Return the state of a run that handed out some of its steps."""
    skipped = sum(stop - start for start, stop in cursor.order_skip)
    position = min(cursor.length - skipped, cursor.position + done * layout.total)
    return through_json(cursor.at(position=position))


@given(
    length=st.integers(0, 200),
    seed=SEEDS,
    epoch=st.integers(0, 2**40),
    layout=layouts(),
    kind=st.sampled_from(["sequential", "full", "block"]),
)
def test_ranks_and_workers_share_an_epoch_without_gap_or_overlap_in_equal_steps(
    length: int, seed: int, epoch: int, layout: Layout, kind: str
) -> None:
    cursor = Cursor(fingerprint="", length=length, seed=seed, epoch=epoch, kind=kind)
    found = run_of(cursor, layout, np.array([0, length]))
    for step in found:
        assert len(step) == layout.world_size
        assert len({len(records) for records, _ in step}) == 1
    records = flat(counted(found))
    dropped = length % layout.total if layout.drop_last else 0
    assert len(records) == len(set(records)) == length - dropped


@given(
    length=st.integers(1, 60),
    seed=SEEDS,
    layout=layouts(),
    workers=st.integers(0, 4),
    data=st.data(),
)
def test_the_same_global_batch_goes_on_with_the_very_batches_of_the_uncut_run(
    length: int, seed: int, layout: Layout, workers: int, data: st.DataObject
) -> None:
    cursor = Cursor(fingerprint="", length=length, seed=seed)
    uncut = run_of(cursor, layout)
    for cut in range(len(uncut) + 1):
        state = after(cursor, layout, cut)
        fits = [size for size in range(1, layout.total + 1) if layout.total % size == 0]
        world_size = data.draw(st.sampled_from(fits))
        other = Layout(layout.total // world_size, world_size, workers, layout.drop_last)
        assert counted(run_of(state, other)) == counted(uncut)[cut:]


@given(length=st.integers(1, 60), seed=SEEDS, first=layouts(drop=False), second=layouts())
def test_before_every_cut_and_after_it_are_the_epoch_up_to_the_dropped_tail(
    length: int, seed: int, first: Layout, second: Layout
) -> None:
    cursor = Cursor(fingerprint="", length=length, seed=seed)
    order = cursor.order().positions(0, length)
    before = run_of(cursor, first)
    for cut in range(len(before) + 1):
        state = after(cursor, first, cut)
        seen = counted(before[:cut]) + counted(run_of(state, second))
        # Global batches are sorted, so each is compared with its stretch of the order.
        at = 0
        for batch in seen:
            assert batch == sorted(order[at : at + len(batch)].tolist())
            at += len(batch)
        dropped = (length - state.position) % second.total if second.drop_last else 0
        assert at == length - dropped


@FEW
@given(seed=SEEDS, power=st.integers(0, 6), other=layouts(drop=False), data=st.data())
def test_a_run_in_lanes_is_cut_and_resumed_with_any_ranks(
    seed: int, power: int, other: Layout, data: st.DataObject
) -> None:
    length = 66_000
    blocks = np.append(np.arange(0, length, 450), length)
    layout = Layout(1024 >> power, 1 << power, data.draw(st.integers(0, 4)))
    cursor = Cursor(fingerprint="", length=length, seed=seed, kind="block", lanes=64)
    order = cursor.order(blocks).positions(0, length)
    uncut = run_of(cursor, layout, blocks)
    assert counted(uncut) == [
        sorted(order[at : at + 1024].tolist()) for at in range(0, length, 1024)
    ]
    cut = data.draw(st.integers(0, len(uncut)))
    state = after(cursor, layout, cut)
    for second in (Layout(1024, 1), Layout(64, 16), Layout(512, 2, 3)):
        assert counted(run_of(state, second, blocks)) == counted(uncut)[cut:]
    late = cursor.at(position=length - 7 * other.total - 3)
    rest = counted(run_of(late, other, blocks))
    assert sorted(flat(rest)) == sorted(order[late.position :].tolist())


@given(
    length=st.integers(1, 120),
    seed=SEEDS,
    layout=layouts(drop=False),
    second=layouts(drop=False),
    data=st.data(),
)
def test_skips_at_the_start_shorten_the_epoch_and_skips_at_a_resume_only_the_next(
    length: int, seed: int, layout: Layout, second: Layout, data: st.DataObject
) -> None:
    numbers = st.lists(st.integers(0, length - 1), max_size=10)
    early, later = data.draw(numbers), data.draw(numbers)
    cursor = Cursor(fingerprint="", length=length, seed=seed).with_skips(early)
    uncut = counted(run_of(cursor, layout))
    assert sorted(flat(uncut)) == sorted(set(range(length)) - set(early))
    cut = data.draw(st.integers(0, len(uncut)))
    state = after(cursor, layout, cut)
    resumed = through_json(state.with_skips(later))
    rest = run_of(resumed, second)
    seen = flat(uncut[:cut])
    if state.position:
        # Nothing moves: the rest is that of the run without the new skips, less their rows.
        plain = counted(run_of(state, second))
        expected = [[record for record in batch if record not in later] for batch in plain]
        assert counted(rest) == expected
    else:
        assert sorted(flat(counted(rest))) == sorted(set(range(length)) - {*early, *later})
    assert not set(seen) & set(flat(counted(rest)))
    following = resumed.at(epoch=1)
    kept = set(range(length)) - {*early, *later}
    assert len(following.order()) == len(kept)
    assert sorted(flat(counted(run_of(following, second)))) == sorted(kept)


@pytest.mark.parametrize("kind", ["full", "block"])
def test_a_run_goes_on_with_the_length_it_recorded_when_data_was_appended(kind: str) -> None:
    blocks = np.arange(0, 70_001, 500)
    longer = np.append(blocks, [70_100, 75_000])
    order = Order(70_000, seed=3, kind=kind, blocks=blocks)
    cursor = Cursor(fingerprint="", length=70_000, seed=3, kind=kind, lanes=order.lanes)
    layout = Layout(128, 4)
    uncut = run_of(cursor, layout, blocks)
    state = after(cursor, layout, 100)
    assert counted(run_of(state, layout, longer)) == counted(uncut)[100:]
