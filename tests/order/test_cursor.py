from __future__ import annotations

import json
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import OptionError
from penstock.order import Cursor, Order, share_rows, steps

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
