"""Accelerate takes the loader as it is: ranks share each batch, and a saved state goes on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.launching import run_by_torchrun, run_program
from tests.rounds import LONG

CUTS = [1, 2, 3, 4, 5] if LONG else [2, 5]
"""Steps after which a run is resumed; an epoch has 5."""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes found."""
    place = tmp_path_factory.mktemp("accelerate")
    launch = run_by_torchrun if LONG else run_program
    return launch("accelerate_program", place, CUTS, processes=2)


def test_every_record_comes_once_an_epoch_in_the_order_that_is_gathered(
    ranks: list[dict[str, Any]],
) -> None:
    assert [rank["length"] for rank in ranks] == [5, 5]
    for number in (0, 1):
        epochs = [rank["whole"][number] for rank in ranks]
        gathered = [record for _, everybodys in epochs[0] for record in everybodys]
        assert sorted(gathered) == list(range(19))
        for first, second in zip(*epochs, strict=True):
            assert first[1] == second[1] == first[0] + second[0]
    assert ranks[0]["whole"][0] != ranks[0]["whole"][1]


def test_a_saved_state_goes_on_exactly_on_every_rank(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        first, second = rank["whole"]
        for cut in CUTS:
            assert rank["rests"][str(cut)] == [first[cut:], second]
