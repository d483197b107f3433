"""What was handed out of a stream, as sets: nothing is lost when documents are joined or moved."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.loading.streams._done import WHOLE, Done, LanePoint, Parts, merged
from penstock.loading.streams._point import lane_places

UNITS, INPUTS, KEYS = 7, 12, 5

inputs = st.integers(0, INPUTS)
parts = st.lists(
    st.tuples(inputs, inputs, st.sampled_from([*range(KEYS), WHOLE])).map(
        lambda one: (min(one[:2]), max(one[:2]), one[2])
    ),
    max_size=5,
).map(lambda found: merged(tuple(found)))


def records(found: Parts) -> set[tuple[int, int]]:
    """Return the records, as input and key, that were handed out of a unit."""
    return {
        (number, key)
        for start, stop, upto in found
        for number in range(start, stop)
        for key in range(KEYS)
        if key <= upto
    }


def everything(done: Done) -> set[tuple[int, int, int]]:
    found = {(place, *one) for place, own in done.parts.items() for one in records(own)}
    all_of = records(((0, INPUTS, WHOLE),))
    whole = np.flatnonzero(done.is_whole()).tolist()
    return found | {(place, *one) for place in whole for one in all_of}


dones = st.builds(
    lambda flags, some: Done.of(np.array(flags), dict(enumerate(some))),
    st.lists(st.booleans(), min_size=UNITS, max_size=UNITS),
    st.lists(parts, max_size=UNITS),
)


@given(parts, parts)
def test_merged_parts_hold_what_any_of_them_holds(one: Parts, other: Parts) -> None:
    both = merged(one, other)
    assert records(both) == records(one) | records(other)
    assert all(a[1] <= b[0] for a, b in pairwise(both))
    assert merged(both) == both


@given(dones, dones)
def test_joined_states_hold_what_any_of_them_holds(one: Done, other: Done) -> None:
    assert everything(one.joined([other])) == everything(one) | everything(other)


@given(dones, st.permutations(range(UNITS)), st.permutations(range(UNITS)))
def test_another_order_of_units_holds_the_same(
    done: Done, before: list[int], now: list[int]
) -> None:
    found = done.reordered(np.array(before), np.array(now))
    assert {(now[place], *rest) for place, *rest in everything(found)} == {
        (before[place], *rest) for place, *rest in everything(done)
    }


@given(dones, st.integers(1, 3), st.integers(1, 3), st.data())
def test_a_lane_adds_what_it_handed_out(
    done: Done, world_size: int, lanes: int, data: st.DataObject
) -> None:
    places = lane_places(UNITS, world_size - 1, world_size, lanes - 1, lanes)
    units = data.draw(st.integers(0, len(places)))
    start, stop = sorted(data.draw(st.tuples(inputs, inputs)))
    spans = ((units, start, stop),) if units < len(places) else ()
    upto = data.draw(st.integers(0, KEYS - 1))
    found = done.advanced([(places, LanePoint(units, spans, upto))])
    added = {(int(place), *one) for place in places[:units] for one in records(_ALL)}
    for number, start, stop in spans:
        own = records(((0, start, WHOLE), (start, stop, upto)))
        added |= {(int(places[number]), *one) for one in own}
    assert everything(found) == everything(done) | added


_ALL: Parts = ((0, INPUTS, WHOLE),)


@given(
    st.integers(1, 3), st.integers(1, 3), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)))
)
def test_lanes_take_turns_whatever_other_ranks_did(
    world_size: int, lanes: int, reads: list[tuple[int, int]]
) -> None:
    """Of each rank, the lane that was read longest ago comes next, from the units alone."""
    each = [Done(world_size * lanes) for _ in range(world_size)]
    expected = [[*range(lanes)] for _ in range(world_size)]
    for count, (rank, lane) in enumerate((a % world_size, b % lanes) for a, b in reads):
        places = lane_places(world_size * lanes, rank, world_size, lane, lanes)
        point = LanePoint(0, ((0, count + 1, count + 1),), WHOLE)
        each[rank] = each[rank].advanced([(places, point)])
        expected[rank].remove(lane)
        expected[rank].append(lane)
    whole = each[0].joined(each[1:])
    for rank in range(world_size):
        about = (world_size * lanes, rank, world_size)
        own = [lane_places(*about, lane, lanes) for lane in range(lanes)]
        assert whole.lanes(own) == expected[rank]


@given(st.integers(0, 30), st.integers(1, 4), st.integers(1, 4))
def test_lanes_share_units(units: int, world_size: int, lanes: int) -> None:
    found = [
        place
        for rank in range(world_size)
        for lane in range(lanes)
        for place in lane_places(units, rank, world_size, lane, lanes).tolist()
    ]
    assert sorted(found) == [*range(units)]
