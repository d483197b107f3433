"""transformers' Trainer feeds on our loaders: every record once an epoch, counted once."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from tests.integration.launching import run_by_torchrun, run_program
from tests.rounds import LONG

CUTS = list(range(1, 16)) if LONG else [5, 12]
"""Steps after which a run is resumed; an epoch has 5."""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes found."""
    place = tmp_path_factory.mktemp("transformers")
    launch = run_by_torchrun if LONG else run_program
    return launch("transformers_program", place, CUTS, processes=2)


def test_every_record_comes_once_an_epoch_in_an_order_of_its_own(
    ranks: list[dict[str, Any]],
) -> None:
    first, second = (rank["whole"]["trained"] for rank in ranks)
    steps = [a + b for a, b in zip(first, second, strict=True)]
    assert len(steps) == ranks[0]["whole"]["steps"] == 15
    epochs = [list(chain(*steps[start : start + 5])) for start in (0, 5, 10)]
    assert all(sorted(epoch) == list(range(19)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_an_evaluation_counts_every_record_once(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["whole"]["evaluated"] == [list(range(11))] * 3
        assert rank["whole"]["examples"] == 19


@pytest.mark.parametrize("cut", CUTS)
def test_a_run_goes_on_from_the_state_that_a_callback_saved(
    cut: int, ranks: list[dict[str, Any]]
) -> None:
    for rank in ranks:
        run = rank["from"][str(cut)]
        assert run["trained"] == rank["whole"]["trained"][cut:]
        assert run["steps"] == 15
