"""What every `Unit` promises; each unit's tests inherit these and say how one is made."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from penstock.work import run_units

if TYPE_CHECKING:
    from penstock.work import Unit

_LARGEST = 100_000


class UnitContract:
    """Inherited by the test class of each unit, which gives a fixture and a method.

    `unit` is one that was never run and has something to do; `published(unit)` returns what it
    published, in a form that can be compared, and need not be there before it ran.

        class TestScanUnit(UnitContract):
            @pytest.fixture
            def unit(self, tmp_path: Path) -> Unit:
                ...

            def published(self, unit: Unit) -> object:
                return unit.output.read_bytes()
    """

    @pytest.fixture
    def unit(self) -> Unit:
        raise NotImplementedError

    def published(self, unit: Unit) -> object:
        raise NotImplementedError

    def test_it_says_how_much_there_is_to_do(self, unit: Unit) -> None:
        assert isinstance(unit.size, int)
        assert unit.size >= 0

    def test_its_name_is_for_people(self, unit: Unit) -> None:
        name = str(unit)
        assert name.strip() == name
        assert len(name.splitlines()) == 1
        assert " object at 0x" not in name
        assert not name.startswith("<")

    def test_it_pickles_small_and_comes_back_the_same(self, unit: Unit) -> None:
        pickled = pickle.dumps(unit)
        assert len(pickled) < _LARGEST
        back = pickle.loads(pickled)
        assert (str(back), back.size, back.is_done()) == (str(unit), unit.size, False)

    def test_its_class_can_be_imported(self, unit: Unit) -> None:
        assert type(unit).__module__ != "__main__"
        assert "<locals>" not in type(unit).__qualname__

    def test_it_is_done_when_it_was_run_and_told_no_more_than_its_size(self, unit: Unit) -> None:
        assert not unit.is_done()
        told: list[int] = []
        unit.run(told.append)
        assert unit.is_done()
        assert pickle.loads(pickle.dumps(unit)).is_done()
        assert all(amount >= 0 for amount in told)
        assert sum(told) <= unit.size

    def test_to_run_it_twice_does_no_harm(self, unit: Unit) -> None:
        unit.run(lambda _: None)
        first = self.published(unit)
        unit.run(lambda _: None)
        assert unit.is_done()
        assert self.published(unit) == first

    def test_a_worker_publishes_the_same_as_the_caller(self, unit: Unit) -> None:
        told: list[int] = []
        run_units([unit], workers=1, advance=told.append)
        assert unit.is_done()
        assert sum(told) == unit.size
        by_worker = self.published(unit)
        unit.run(lambda _: None)
        assert self.published(unit) == by_worker
