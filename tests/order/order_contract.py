"""What every `RecordOrder` promises; the tests of each kind inherit these."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penstock.errors import RecordIndexError

if TYPE_CHECKING:
    from penstock.order import RecordOrder

_SHOWN = 4_000


class RecordOrderContract:
    """Inherited by the test class of each order.

    `MAKE` is the text of a function body that returns an order of at least 100 positions, so that
    another process can make it, too; `LENGTH` the number of records that it is over.
    """

    MAKE: str
    LENGTH: int

    @pytest.fixture
    def order(self) -> RecordOrder:
        found: RecordOrder = eval(_program(self.MAKE))
        return found

    def test_a_state_can_name_it(self, order: RecordOrder) -> None:
        assert isinstance(order.kind, str)
        assert order.VERSION >= 1
        assert order.lanes >= 1
        assert order.repeats in {True, False}

    def test_any_window_is_a_part_of_the_whole(self, order: RecordOrder) -> None:
        count = min(len(order), _SHOWN)
        whole = order.positions(0, count)
        assert whole.dtype == np.int64
        assert whole.shape == (count,)
        for start, stop in ((0, 0), (0, 1), (17, 90), (count - 70, count), (63, 65)):
            assert (order.positions(start, stop) == whole[start:stop]).all()

    def test_positions_may_be_asked_for_in_any_order_and_shape(self, order: RecordOrder) -> None:
        whole = order.positions(0, 100)
        asked = np.array([[99, 3, 3], [0, 64, 17]])
        found = order.at(asked)
        assert found.dtype == np.int64
        assert (found == whole[asked]).all()
        assert order.at(np.empty((2, 0), np.int64)).shape == (2, 0)
        assert asked.tolist() == [[99, 3, 3], [0, 64, 17]]

    def test_records_are_those_of_the_dataset(self, order: RecordOrder) -> None:
        count = min(len(order), _SHOWN)
        found = order.positions(0, count)
        assert 0 <= found.min() <= found.max() < self.LENGTH
        if not order.repeats:
            assert len(np.unique(found)) == count

    def test_positions_outside_are_refused(self, order: RecordOrder) -> None:
        for position in (-1, len(order)):
            with pytest.raises(RecordIndexError):
                order.at(np.array([0, position], dtype=object).astype(np.int64))
        with pytest.raises(RecordIndexError):
            order.positions(0, len(order) + 1)

    def test_another_process_has_the_same(self, order: RecordOrder) -> None:
        program = f"print({_program(self.MAKE)}.positions(0, 100).tolist())"
        out = subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, text=True
        )
        assert out.stdout.strip() == str(order.positions(0, 100).tolist())


def _program(make: str) -> str:
    room = "__import__('penstock.order', fromlist=['x'])"
    numpy = "__import__('numpy')"
    return f"(lambda order, np: {make})({room}, {numpy})"
