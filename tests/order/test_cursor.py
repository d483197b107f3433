from __future__ import annotations

import json
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import OptionError
from penstock.order import Cursor, Order, Skips, share_rows, steps

STATE = {
    "version": 1,
    "fingerprint": "ab12",
    "length": 100,
    "seed": -3,
    "epoch": 2,
    "order": {"kind": "block", "version": 1, "lanes": 64},
    "position": 40,
    "skip": [[3, 4], [10, 20]],
}


@given(
    fingerprint=st.text(),
    length=st.integers(0, 2**63 - 1),
    seed=st.integers(-(2**70), 2**70),
    epoch=st.integers(0, 2**40),
    kind=st.sampled_from(["sequential", "full", "block"]),
    data=st.data(),
)
def test_a_cursor_survives_json(  # noqa: PLR0913, PLR0917 (one for each field)
    fingerprint: str, length: int, seed: int, epoch: int, kind: str, data: st.DataObject
) -> None:
    ends = sorted(data.draw(st.sets(st.integers(0, length), max_size=6)))
    skip = tuple(zip(ends[::2], ends[1::2], strict=False))
    kept = length - sum(stop - start for start, stop in skip)
    position = data.draw(st.integers(0, kept))
    cursor = Cursor(
        fingerprint=fingerprint,
        length=length,
        seed=seed,
        epoch=epoch,
        kind=kind,
        position=position,
        skip=skip,
    )
    assert Cursor.from_dict(json.loads(json.dumps(cursor.to_dict()))) == cursor
    assert cursor.skip == skip


def test_the_document_is_what_the_format_says() -> None:
    cursor = Cursor.from_dict(STATE)
    assert cursor.to_dict() == STATE
    assert list(cursor.to_dict()) == list(STATE)
    assert cursor.skip == ((3, 4), (10, 20))
    with pytest.raises(FrozenInstanceError):
        cursor.position = 3


def test_skips_are_kept_as_sorted_ranges() -> None:
    cursor = Cursor(fingerprint="", length=10, skip=((5, 7), (1, 2), (6, 9)))
    assert cursor.skip == ((1, 2), (5, 9))


def test_what_is_skipped_in_mid_epoch_is_masked_and_the_next_epoch_does_without_it() -> None:
    cursor = Cursor(fingerprint="", length=20, epoch=3, position=5, skip=((2, 4),))
    cursor = cursor.with_skips([3, 7, (9, 11)])
    assert cursor.order_skip == ((2, 4),)
    assert cursor.masked == ((7, 8), (9, 11))
    assert cursor.to_dict()["skip"] == [[2, 4], [7, 8, 4], [9, 11, 4]]
    assert Cursor.from_dict(json.loads(json.dumps(cursor.to_dict()))) == cursor
    assert len(cursor.order()) == 18
    following = cursor.at(epoch=4)
    assert following.skip == following.order_skip == ((2, 4), (7, 8), (9, 11))
    assert following.masked == ()
    assert len(following.order()) == 15


def test_what_is_skipped_at_the_beginning_of_an_epoch_shortens_it() -> None:
    cursor = Cursor(fingerprint="", length=20, epoch=3).with_skips(np.array([4, 5]))
    assert cursor.order_skip == ((4, 6),)
    assert cursor.masked == ()


def test_what_is_masked_stays_masked_at_every_place_of_the_epoch() -> None:
    cursor = Cursor(fingerprint="", length=20, position=5).with_skips([4])
    for place in (cursor.at(position=6), cursor.at(epoch=0), cursor.at(position=20)):
        assert place.masked == ((4, 5),)
        assert place.order_skip == ()
    # To the last position of an epoch too, whose end is not yet the beginning of the next one.
    last = cursor.at(position=20).with_skips([5])
    assert last.masked == ((4, 6),)
    assert last.at(epoch=1).order_skip == ((4, 6),)


def test_a_record_is_skipped_from_the_earliest_epoch_on_that_was_asked_for() -> None:
    cursor = Cursor(fingerprint="", length=20, skip=((0, 9, 5), (3, 6, 2), (4, 5)))
    assert cursor.skip == ((0, 3, 5), (3, 4, 2), (4, 5), (5, 6, 2), (6, 9, 5))
    assert cursor.at(epoch=2).skip == ((0, 3, 5), (3, 6), (6, 9, 5))
    assert cursor.at(epoch=7).skip == ((0, 9),)


@given(length=st.integers(1, 60), data=st.data())
def test_order_and_mask_together_leave_out_what_was_skipped(
    length: int, data: st.DataObject
) -> None:
    entries = st.lists(
        st.tuples(st.integers(0, length), st.integers(0, length)).map(sorted),
        max_size=4,
    )
    cursor = Cursor(fingerprint="", length=length, seed=1)
    asked: set[int] = set()
    for _ in range(4):
        more = data.draw(entries)
        asked |= {record for pair in more for record in range(*pair)}
        before = cursor
        cursor = cursor.with_skips(more)
        if before.position:
            assert np.array_equal(
                cursor.order().positions(0, len(cursor.order())),
                before.order().positions(0, len(before.order())),
            )
        order = cursor.order()
        records = order.positions(0, len(order))
        valid = ~Skips(cursor.masked, length).hold(records)
        assert sorted(records[valid].tolist()) == sorted(set(range(length)) - asked)
        if data.draw(st.booleans()):
            cursor = cursor.at(epoch=cursor.epoch + 1)
            assert cursor.masked == ()
        else:
            cursor = cursor.at(position=data.draw(st.integers(0, len(order))))


def test_skips_of_records_that_were_appended_are_no_part_of_the_run() -> None:
    cursor = Cursor(fingerprint="", length=20, position=3)
    assert cursor.with_skips([(18, 25), 27], available=30).masked == ((18, 20),)
    with pytest.raises(OptionError, match="27 to 28 do not lie in a dataset of 20"):
        cursor.with_skips([27])
    with pytest.raises(OptionError, match="31 to 32 do not lie in a dataset of 30"):
        cursor.with_skips([31], available=30)


def test_a_position_is_checked_against_the_order_it_is_in() -> None:
    cursor = Cursor(fingerprint="", length=20, skip=((0, 4), (4, 6, 1)))
    assert cursor.at(position=16).position == 16
    for place in ({"position": 17}, {"epoch": 1, "position": 15}, {"position": -1}):
        with pytest.raises(OptionError, match="position is"):
            cursor.at(**place)


def test_the_order_of_a_cursor_is_that_of_the_length_it_recorded() -> None:
    blocks = np.arange(0, 80_001, 500)
    order = Order(80_000, seed=1, kind="block", blocks=blocks, skip=[5])
    cursor = Cursor(
        fingerprint="", length=80_000, seed=1, kind="block", lanes=order.lanes, skip=((5, 6),)
    )
    longer = np.append(blocks, [80_200, 91_000])
    for place in (cursor, cursor.at(position=70_000)):
        found = place.order(longer)
        assert np.array_equal(found.positions(500, 900), order.positions(500, 900))
    with pytest.raises(OptionError, match=r"order.lanes is 64, and the blocks .* make 1"):
        cursor.at(position=1).order(np.array([0, 80_000]))
    assert cursor.order(np.array([0, 80_000])).lanes == 1
    assert cursor.at(lanes=1).lanes == 1


@pytest.mark.parametrize("cut", [0, 1, 3, 5])
def test_a_run_that_is_cut_continues_from_its_cursor_with_other_ranks(cut: int) -> None:
    order = Order(101, seed=4, epoch=1, skip=[(7, 12)])
    length = len(order)

    def seen(origin: int, batch_size: int, world_size: int, until: int | None) -> list[int]:
        count = steps(length, batch_size, world_size, drop_last=False, origin=origin)
        return [
            int(record)
            for step in range(count if until is None else until)
            for rank in range(world_size)
            for rows, valid in [
                share_rows(
                    step, batch_size, rank, world_size, length, drop_last=False, origin=origin
                )
            ]
            for record in order.at(rows[valid])
        ]

    before = seen(0, 5, 4, cut)
    state = Cursor(
        fingerprint="f", length=101, seed=4, epoch=1, position=len(before), skip=order.skip
    )
    found = Cursor.from_dict(json.loads(json.dumps(state.to_dict())))
    again = Order(found.length, seed=found.seed, epoch=found.epoch, skip=found.skip)
    assert np.array_equal(again.positions(0, length), order.positions(0, length))
    after = seen(found.position, 7, 3, None)
    assert before + after == order.positions(0, length).tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fingerprint": 7}, "fingerprint is 7, expected a string"),
        ({"length": -1}, "length is -1, expected at least 0"),
        ({"length": 4.0}, "length is 4.0, expected an integer"),
        ({"seed": "1"}, "seed is '1', expected an integer"),
        ({"epoch": -1}, "epoch is -1"),
        ({"epoch": True}, "epoch is True, expected an integer"),
        ({"position": 90}, "position is 90, expected at most the 89 records kept"),
        ({"position": None}, "position is None"),
        ({"skip": 3}, "skip is 3"),
        ({"skip": [3]}, "skip is 3"),
        ({"skip": [[1, 2, -1]]}, "the epoch of an entry, is -1, expected at least 0"),
        ({"skip": [[1, 2, 0.5]]}, "is 0.5, expected an integer"),
        ({"skip": [[1, 2, 3, 4]]}, r"\[1, 2, 3\]"),
        ({"skip": [[1]]}, r"\[1\]"),
        ({"skip": [[90, 101, 3]]}, "90 to 101 do not lie in a dataset of 100"),
        ({"skip": [[90, 101]]}, "90 to 101 do not lie in a dataset of 100"),
        ({"order": "full"}, "order is 'full', expected a dict"),
        ({"order": {"kind": "full"}}, r"missing order\.version, order\.lanes"),
        ({"order": {"kind": "x", "version": 1, "lanes": 1}}, r"order\.kind is 'x'"),
        ({"order": {"kind": "full", "version": 0, "lanes": 1}}, r"order\.version is 0"),
        ({"order": {"kind": "full", "version": 2, "lanes": 1}}, r"order\.version is 2.* newer"),
        ({"order": {"kind": "full", "version": 1, "lanes": 0}}, r"order\.lanes is 0"),
        ({"version": 2}, "version is 2, and this release knows 1.* newer"),
        ({"version": "1"}, "version is '1', expected an integer"),
        ({"more": 1}, "unknown more"),
    ],
)
def test_a_document_that_cannot_be_is_refused_with_what_is_wrong(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        Cursor.from_dict(STATE | change)


@pytest.mark.parametrize("key", list(STATE))
def test_a_missing_key_is_named(key: str) -> None:
    state = {name: value for name, value in STATE.items() if name != key}
    with pytest.raises(OptionError, match=f"missing {key}"):
        Cursor.from_dict(state)


def test_what_is_no_document_is_refused() -> None:
    with pytest.raises(OptionError, match=r"the state is \[1\], expected a dict"):
        Cursor.from_dict([1])


def test_a_step_within_an_epoch_sorts_no_skips_again() -> None:
    cursor = Cursor(fingerprint="", length=100, skip=((3, 4), (7, 9)))
    moved = cursor.at(position=5)
    assert moved == Cursor(fingerprint="", length=100, skip=((3, 4), (7, 9)), position=5)
    assert moved._left_out is cursor._left_out  # noqa: SLF001 (the work that is spared)
