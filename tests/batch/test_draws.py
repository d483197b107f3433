"""Random draws of encoders: a pure function of where a row stands."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from penstock.batch import BatchPosition

IDS = np.array([7, 3, 2**40, 7], np.int64)
GOLDEN = [
    [4027449571675074355, 14853234276612331118],
    [14343224003026217174, 5003038866066136702],
    [1170361254786522477, 18306755739358959517],
    [4027449571675074355, 14853234276612331118],
]
GOLDEN_WITH_POSITIONS = [
    15093984146571878021, 697364773238316121, 5829692741442927713, 10063989229457941412,
]  # fmt: skip
WHERE = BatchPosition(seed=5, epoch=2, positions=np.arange(4) + 9, ids=IDS)


def test_draws_are_those_of_every_release() -> None:
    assert WHERE.draw("mask", 2).tolist() == GOLDEN
    repeats = replace(WHERE, repeats=True, split="train")
    assert repeats.draw("mask", 2)[:, 1].tolist() == GOLDEN_WITH_POSITIONS


def test_a_record_has_the_same_draws_at_any_position() -> None:
    whole = WHERE.draw("mask", 3)
    assert (whole[0] == whole[3]).all()
    moved = replace(WHERE, positions=WHERE.positions + 1)
    assert (moved.draw("mask", 3) == whole).all()
    assert (WHERE.part(1, 3).draw("mask", 3) == whole[1:3]).all()
    assert (WHERE.draw("mask") == whole[:, :1]).all()


def test_where_a_record_may_come_twice_its_position_decides_too() -> None:
    where = replace(WHERE, repeats=True)
    whole = where.draw("mask")
    assert whole[0] != whole[3]
    assert (where.part(2, 4).draw("mask") == whole[2:]).all()
    assert (replace(where, positions=where.positions + 1).draw("mask") != whole).all()


@pytest.mark.parametrize(
    "other", [{"seed": 6}, {"epoch": 3}, {"split": "val"}, {"ids": IDS + 1}, {"repeats": True}]
)
def test_all_that_a_draw_depends_on_changes_it(other: dict[str, object]) -> None:
    changed = replace(WHERE, **other)  # type: ignore[arg-type]
    assert (changed.draw("mask") != WHERE.draw("mask")).all()


def test_purposes_and_slots_have_numbers_of_their_own() -> None:
    drawn = [WHERE.draw(purpose, 5)[:3] for purpose in ("mask", "mask 2", "negatives")]
    assert len(np.unique(drawn)) == 3 * 3 * 5


def test_draws_are_uniform_and_independent_over_rows_and_slots() -> None:
    rows = np.arange(20_000)
    where = BatchPosition(0, 0, rows, rows)
    drawn = where.draw("mask", 4)
    bits = np.bitwise_and(np.right_shift.outer(drawn, np.arange(64, dtype=np.uint64)), np.uint64(1))
    # Of 80,000 draws each bit is 1 in half of them: the standard deviation is 141.
    assert np.abs(bits.sum(axis=(0, 1)).astype(int) - 40_000).max() < 4.5 * 141
    spread = np.corrcoef(drawn.astype(float).T)
    assert np.abs(spread - np.eye(4)).max() < 4 / np.sqrt(20_000)


def test_a_position_pickles_as_its_numbers() -> None:
    where = BatchPosition(1, 2, np.arange(1000), np.arange(1000))
    assert len(pickle.dumps(where, protocol=5)) < 2 * 8 * 1000 + 500
    assert (pickle.loads(pickle.dumps(where)).draw("x") == where.draw("x")).all()
