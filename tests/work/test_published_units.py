"""Units publish to any store; a second run takes what is there, whoever was killed before."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.storage import LocalStore, StorageOptions, locate
from penstock.work import Shared, UnitResults, run_units
from tests.work.unit_contract import UnitContract
from tests.work.units import Summing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.work import Unit
    from tests.servers.s3_server import S3Server


@pytest.fixture(params=["local", "s3"])
def results(request: pytest.FixtureRequest, tmp_path: Path) -> UnitResults:
    if request.param == "local":
        return UnitResults(str(tmp_path / "results"))
    server: S3Server = request.getfixturevalue("s3_server")
    url = f"s3://{request.getfixturevalue('bucket')}/job/results"
    store, name = locate(url, StorageOptions(server.storage_options))
    return UnitResults(name, store)


class TestPublishedUnit(UnitContract):
    @pytest.fixture
    def unit(self, results: UnitResults) -> Unit:
        return Summing(results, 3, 10, 20)

    def published(self, unit: Unit) -> object:
        assert isinstance(unit, Summing)
        assert unit.results.finished() == {unit.name}
        return bytes(unit.result())


def units_of(results: UnitResults, deadly: str = "") -> list[Summing]:
    return [Summing(results, n, 10 * n, 10 * n + 10, deadly if n == 1 else "") for n in range(4)]


def sums(units: Sequence[Summing]) -> list[int]:
    """Put results together in order."""
    return [int(bytes(unit.result()).split()[-1]) for unit in units]


def test_results_of_workers_are_put_together_in_order(results: UnitResults) -> None:
    units = units_of(results)
    assert results.finished() == set()
    told: list[int] = []
    run_units(units, workers=2, advance=told.append)
    assert results.finished() == {unit.name for unit in units}
    assert sums(units) == [45, 145, 245, 345]
    assert sum(told) == 40


def test_a_killed_worker_publishes_nothing_and_its_unit_is_done_again(
    results: UnitResults, tmp_path: Path
) -> None:
    units = units_of(results, str(tmp_path / "was-killed"))
    told: list[int] = []
    run_units(units, workers=2, advance=told.append)
    assert (tmp_path / "was-killed").exists()
    assert sums(units) == [45, 145, 245, 345]
    assert sum(told) == 40


def test_a_second_run_does_only_what_is_left(results: UnitResults) -> None:
    units = units_of(results)
    run_units(units[1:3], workers=1)
    before = [results.store.entry(unit.name) for unit in units[1:3]]
    told: list[int] = []
    run_units(units, workers=0, advance=told.append)
    assert [results.store.entry(unit.name) for unit in units[1:3]] == before
    assert sums(units) == [45, 145, 245, 345]
    assert told == [10, 10, 5, 5, 5, 5]  # Two at once, and two by halves.


def test_the_first_result_of_a_unit_stays(results: UnitResults) -> None:
    unit = Summing(results, 0, 0, 10)
    unit.run(lambda _: None)
    replace(unit, stop=20).run(lambda _: None)
    assert sums([unit]) == [45]


def test_a_folder_of_drafts_alone_has_no_finished_unit(tmp_path: Path) -> None:
    results = UnitResults(str(tmp_path))
    draft = LocalStore().draft(str(tmp_path), "000000.unit")
    draft.write(b"half of it")
    assert not Summing(results, 0, 0, 10).is_done()
    run_units(units_of(results), workers=0)
    assert sums(units_of(results)) == [45, 145, 245, 345]
    draft.discard()


PREPARED: list[int] = []


def prepare() -> None:
    PREPARED.append(1)


def test_what_units_share_is_loaded_once_by_a_process() -> None:
    shared = Shared({"large": "value"}, prepare)
    first, second = (pickle.loads(pickle.dumps([n, shared]))[1] for n in range(2))
    assert first.value == {"large": "value"}
    assert first is second
    assert PREPARED == [1]
