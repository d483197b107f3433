"""A process that is forked in the middle of an epoch: the epoch stays its parent's."""

from __future__ import annotations

import pytest

from tests.faults.child import run
from tests.loading import fork_programs
from tests.loading.fork_programs import ENGINES, RECORDS

ALL = list(range(RECORDS))
WITH_HELP = pytest.mark.parametrize("engine", ["threads", "fork", "spawn", "forkserver"])


@WITH_HELP
def test_a_child_that_goes_on_is_refused_with_the_remedy(engine: str) -> None:
    told = run(fork_programs.child_that_goes_on, engine)
    assert told["child"]["status"] == 0
    assert "call iter() on the loader" in told["child"]["refused"].lower()
    assert told["begun"] + told["parent"] == ALL


def test_a_child_goes_on_where_nothing_but_the_caller_makes_batches() -> None:
    told = run(fork_programs.child_that_goes_on, "caller")
    assert told["child"] == {"status": 0, "result": told["parent"]}
    assert told["begun"] + told["parent"] == ALL


@pytest.mark.parametrize("engine", ["caller", "threads", "fork", "spawn"])
def test_a_child_may_begin_a_pass_of_its_own(engine: str) -> None:
    told = run(fork_programs.child_that_begins_anew, engine)
    assert told["child"] == {"status": 0, "result": ALL}
    assert told["parent"] == ALL[4:]


def test_a_child_that_cannot_use_its_parents_fork_server_is_told_the_remedy() -> None:
    told = run(fork_programs.child_that_begins_anew, "forkserver")
    assert told["child"]["status"] == 0
    assert "multiprocessing_context='spawn'" in told["child"]["refused"]
    assert told["parent"] == ALL[4:]


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_however_a_child_ends_the_epoch_of_its_parent_goes_on(engine: str) -> None:
    told = run(fork_programs.children_that_end, engine)
    assert told == {"statuses": [5] * 5, "numbers": ALL}


@pytest.mark.parametrize("engine", ["threads", "fork"])
def test_workers_of_others_are_forked_in_the_middle_of_an_epoch(engine: str) -> None:
    told = run(fork_programs.other_workers, engine)
    assert told == {"torch": list(range(8)), "pool": [1, 2], "status": 5, "numbers": ALL}
