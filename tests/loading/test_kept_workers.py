"""Worker processes that are kept from pass to pass, and when they end."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.errors import OptionError
from tests.faults.child import run
from tests.loading import fork_programs, iterable_samples
from tests.loading.encoders import (
    OddError,
    counts_requests,
    makes_large,
    raises_odd,
    sees_variable,
)
from tests.loading.fork_programs import RECORDS
from tests.loading.stream_samples import flow, rows
from tests.loading.test_processes import EVERY_METHOD, FEW_METHODS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


def _table() -> pa.Table:
    return pa.table({"n": np.arange(40)})


def _stream() -> Any:
    return flow([7, 0, 9, 4, 11, 3], mapped=True)


def _drawn() -> Any:
    return flow([7, 0, 9, 4, 11, 3], drawn=5)


SOURCES = pytest.mark.parametrize("source", [_table, _stream, _drawn])


def _loader(
    source: Any = None, encode: Any = None, *, method: str = "fork", keep: bool = True, **more: Any
) -> penstock.DataLoader:
    chosen: dict[str, Any] = {"batch_size": 4, "num_workers": 2, "shuffle": True, **more}
    return penstock.DataLoader(
        _table() if source is None else source,
        encode,
        multiprocessing_context=method,
        persistent_workers=keep,
        **chosen,
    )


def _all(batches: Iterable[Any]) -> list[list[int]]:
    return [rows(batch) for batch in batches]


def _pids() -> set[int]:
    return {one.pid for one in multiprocessing.active_children() if one.pid is not None}


@EVERY_METHOD
@SOURCES
def test_passes_have_the_same_workers_and_the_batches_of_new_ones(
    source: Callable[[], Any], method: str
) -> None:
    kept, anew = (_loader(source(), method=method, keep=keep) for keep in (True, False))
    first = _all(kept)
    pids = _pids()
    assert len(pids) == 2
    assert [first, _all(kept), _all(kept)] == [_all(anew) for _ in range(3)]
    assert _pids() == pids
    kept.set_epoch(1)
    anew.set_epoch(1)
    assert _all(kept) == _all(anew)
    assert _pids() == pids
    kept.close()
    assert _pids() == set()


@FEW_METHODS
@SOURCES
def test_a_pass_that_was_left_early_hands_its_workers_on(
    source: Callable[[], Any], method: str
) -> None:
    kept, anew = (_loader(source(), method=method, keep=keep) for keep in (True, False))
    for _ in range(3):
        for one in (kept, anew):
            one.set_epoch(0)
            begun = iter(one)
            first = rows(next(begun))
            begun.close()
        assert len(_pids()) == 2
    for one in (kept, anew):
        one.set_epoch(0)
    whole = _all(kept)
    assert whole == _all(anew)
    assert whole[0] == first
    kept.close()


def test_large_answers_of_a_pass_that_was_left_do_not_block_the_next() -> None:
    loader = _loader(encode=makes_large, batch_size=1, shuffle=False)
    for _ in range(3):
        loader.set_epoch(0)
        assert [len(batch.ids) for batch, _ in zip(loader, range(2), strict=False)] == [1, 1]
    loader.set_epoch(0)
    assert sum(len(batch.ids) for batch in loader) == 40


@SOURCES
def test_a_resume_goes_on_with_the_workers_of_the_loader(source: Callable[[], Any]) -> None:
    whole = _loader(source(), keep=False, epochs=3)
    expected = _all(whole)
    loader = _loader(source(), epochs=3)
    begun = iter(loader)
    head = [rows(next(begun)) for _ in range(3)]
    state = loader.state_dict()
    rest = _all(begun)
    pids = _pids()
    loader.load_state_dict(state)
    assert [*head, *rest] == expected
    assert _all(loader) == rest
    assert _pids() == pids
    other = _loader(source(), epochs=3)
    other.load_state_dict(state)
    assert _all(other) == rest


def test_workers_end_after_an_error() -> None:
    loader = _loader(encode=raises_odd)
    for _ in range(2):
        with pytest.raises(OddError):
            list(loader)
        assert _pids() == set()


@FEW_METHODS
def test_a_killed_worker_is_replaced_by_the_next_pass(method: str) -> None:
    loader = _loader(method=method)
    expected = _loader(keep=False)
    assert _all(loader) == _all(expected)
    before = _pids()
    killed = multiprocessing.active_children()[0]
    killed.kill()
    killed.join()
    assert _all(loader) == _all(expected)
    assert len(_pids()) == 2
    assert not before & _pids()


@FEW_METHODS
def test_workers_start_anew_with_variables_that_changed(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = _loader(encode=sees_variable, method=method)
    for value in ("old", "new"):  # As credentials are, in a long run.
        monkeypatch.setenv("PENSTOCK_TEST", value)
        assert {text for batch in loader for text in batch} == {value}
        assert len(_pids()) == 2


def test_a_pass_does_not_count_what_the_one_before_left() -> None:
    loader = _loader(encode=counts_requests)
    begun = iter(loader)
    next(begun)
    begun.close()
    assert loader.stats()["storage_requests"] == 1
    assert len(list(loader)) == 10
    assert loader.stats()["storage_requests"] == 11


def test_a_closed_loader_keeps_no_workers_of_a_pass_that_goes_on() -> None:
    loader = _loader()
    begun = iter(loader)
    next(begun)
    loader.close()
    assert len(list(begun)) == 9
    assert _pids() == set()


def test_a_pass_beside_another_has_workers_of_its_own() -> None:
    loader = _loader(shuffle=False)
    first, second = iter(loader), iter(loader)
    assert rows(next(first)) == rows(next(second)) == [0, 1, 2, 3]
    assert len(_pids()) == 4
    first.close()
    second.close()
    assert len(_pids()) == 2


def test_a_copy_has_workers_of_its_own() -> None:
    loader = _loader()
    expected = _all(loader)
    before = _pids()
    for made in (copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
        twin = made(loader)
        twin.set_epoch(0)
        assert _all(twin) == expected
        assert len(_pids() - before) == 2
        del twin
        assert _pids() == before


def test_a_dataset_that_may_count_its_epochs_has_new_workers() -> None:
    loader = _loader(iterable_samples.Sharded(20), shuffle=False)
    first = _all(loader)
    before = _pids()
    assert _all(loader) == first
    assert not before & _pids()


@pytest.mark.parametrize("engine", ["fork", "spawn"])
def test_a_forked_child_leaves_the_kept_workers_to_its_parent(engine: str) -> None:
    told = run(fork_programs.child_beside_kept_workers, engine)
    assert told["child"] == {"status": 0, "result": list(range(RECORDS))}
    assert told["parent"] == list(range(RECORDS))
    assert told["same_workers"]


def test_a_value_that_is_no_flag_is_refused() -> None:
    with pytest.raises(OptionError, match="persistent_workers='yes': expected True or False"):
        _loader(keep="yes")  # type: ignore[arg-type]
