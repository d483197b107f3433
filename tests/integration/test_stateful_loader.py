"""The loader keeps to what torchdata's StatefulDataLoader promises, and feeds it as well."""

from __future__ import annotations

import json
import warnings
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from tests.rounds import LONG

if TYPE_CHECKING:
    from collections.abc import Callable

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # About what it uses of torch.
    from torchdata.stateful_dataloader import StatefulDataLoader

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]

RECORDS = 22
CUTS = range(7) if LONG else (0, 3, 6)
"""Batches that are taken before the state is saved; an epoch has 6 of 4 records, the last of 2."""


def ours(workers: int) -> penstock.DataLoader:
    records = [{"id": number} for number in range(RECORDS)]
    return penstock.DataLoader(records, batch_size=4, num_workers=workers)


def theirs(workers: int) -> StatefulDataLoader[Any]:
    source = penstock.open([{"id": number} for number in range(RECORDS)])
    context = "fork" if workers else None
    return StatefulDataLoader(
        source, batch_size=4, num_workers=workers, collate_fn=list, multiprocessing_context=context
    )


def ids(batches: Any) -> list[list[int]]:
    return [[record["id"] for record in batch] for batch in batches]


WHOLE = [list(range(start, min(start + 4, RECORDS))) for start in range(0, RECORDS, 4)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", [ours, theirs])
def test_a_state_goes_on_with_the_exact_rest_and_then_with_whole_epochs(
    make: Callable[[int], Any], workers: int
) -> None:
    for cut in CUTS:
        loader = make(workers)
        run = iter(loader)
        assert ids(islice(run, cut)) == WHOLE[:cut]
        state = loader.state_dict()
        del run
        other = make(workers)
        other.load_state_dict(state)
        assert ids(other) == WHOLE[cut:]
        assert ids(other) == WHOLE


@pytest.mark.parametrize("make", [ours, theirs])
def test_a_state_after_a_whole_pass_goes_on_with_the_next(make: Callable[[int], Any]) -> None:
    loader, other = make(0), make(0)
    assert ids(loader) == WHOLE
    other.load_state_dict(loader.state_dict())
    assert ids(other) == WHOLE


@pytest.mark.parametrize("make", [ours, theirs])
def test_a_new_pass_begins_anew_also_when_the_last_was_broken_off(
    make: Callable[[int], Any],
) -> None:
    loader = make(0)
    assert len(loader) == 6
    assert ids(islice(loader, 2)) == WHOLE[:2]
    assert ids(loader) == WHOLE
    assert ids(loader) == WHOLE


def test_our_state_is_plain_json_and_counts_what_was_handed_out() -> None:
    loader = ours(2)
    run = iter(loader)
    for handed_out in range(1, 4):
        next(run)
        state = loader.state_dict()
        assert state["position"] == 4 * handed_out
        assert json.loads(json.dumps(state)) == state
