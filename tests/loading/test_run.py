"""Where a run stands, also when several things happen to it."""

from __future__ import annotations

import json
import multiprocessing
from typing import Any

import numpy as np
import pytest

from penstock import DataLoader
from penstock.errors import OptionError, RecordIndexError
from penstock.order import Order
from tests.loading.samples import flat, ids_of

RECORDS = [{"n": number} for number in range(20)]


class TestRun:
    def test_a_loaded_state_is_not_moved_by_an_iterator_that_goes_on(self) -> None:
        loader = DataLoader(RECORDS, batch_size=2)
        run = iter(loader)
        next(run)
        state = loader.state_dict()
        next(run)
        loader.load_state_dict(state)
        next(run)
        assert loader.state_dict() == state
        assert flat(loader) == list(range(2, 20))

    def test_an_epoch_that_was_set_is_not_moved_by_an_iterator_that_goes_on(self) -> None:
        loader = DataLoader(RECORDS, batch_size=2, shuffle=True)
        run = iter(loader)
        next(run)
        loader.set_epoch(5)
        next(run)
        assert flat(loader) == Order(20, epoch=5).positions(0, 20).tolist()

    @pytest.mark.parametrize("size", [np.int64(4), np.int32(4), np.uint8(4)])
    def test_numbers_of_numpy_are_numbers(self, size: Any) -> None:
        loader = DataLoader(RECORDS, batch_size=size, epochs=np.int64(2))  # type: ignore[arg-type]
        next(iter(loader))
        assert json.loads(json.dumps(loader.state_dict()))["position"] == 4
        assert len(next(iter(DataLoader(RECORDS, global_batch_size=size)))) == 4

    def test_the_state_of_block_order_has_its_lanes_from_the_beginning(self) -> None:
        loader = DataLoader(RECORDS, batch_size=2, shuffle="block")
        before = loader.state_dict()["order"]
        next(iter(loader))
        assert loader.state_dict()["order"] == before


class TestLength:
    def test_counts_the_steps_of_every_epoch_of_a_pass(self) -> None:
        def loader(size: int, **more: Any) -> DataLoader:
            return DataLoader(RECORDS, batch_size=size, epochs=3, **more)

        first = loader(4)
        run = iter(first)
        next(run), next(run)
        for resumed in (loader(4), loader(3), loader(4, skip=[(10, 20)])):
            resumed.load_state_dict(first.state_dict())
            before = -(-8 // resumed.batch_size)  # type: ignore[operator]
            assert len(resumed) == before + len(list(resumed))


class TestExplain:
    def test_tells_the_order_that_a_state_decided(self) -> None:
        first = DataLoader(RECORDS, batch_size=4, shuffle=True, seed=3)
        next(iter(first))
        second = DataLoader(RECORDS, batch_size=4, seed=9)
        second.load_state_dict(first.state_dict())
        assert second.explain()["order"] == "full, seed 3: as the state says"
        assert repr(second).endswith("full order>")

    def test_of_steps_before_another_batch_size_is_refused(self) -> None:
        first = DataLoader(RECORDS, batch_size=3)
        next(iter(first))
        second = DataLoader(RECORDS, batch_size=4)
        second.load_state_dict(first.state_dict())
        assert second.explain(1).ids.tolist() == [3, 4, 5, 6]
        with pytest.raises(RecordIndexError, match="step 0 of epoch 0 is not those from 1 to 5"):
            second.explain(0)


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"stall_timeout": None}, "stall_timeout=None"),
            ({"stall_timeout": True}, "stall_timeout=True"),
            ({"num_workers": True}, "num_workers=True"),
            ({"max_bad": -1}, "max_bad=-1"),
            (
                {"batch_size": None, "global_batch_size": 10, "rank": 0, "world_size": 3},
                "Give a multiple of 3",
            ),
        ],
        ids=str,
    )
    def test_what_cannot_work_says_what_can(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(OptionError, match=message):
            DataLoader(RECORDS, **{"batch_size": 2, **options})


def load_in_a_daemon(answer: Any) -> None:
    try:
        list(DataLoader(RECORDS, batch_size=2, num_workers=1))
    except Exception as error:  # noqa: BLE001
        answer.send(f"{type(error).__name__}: {error}")


def test_a_daemon_is_told_that_it_may_not_start_workers() -> None:
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("fork")
    process = context.Process(target=load_in_a_daemon, args=(theirs,), daemon=True)
    process.start()
    assert ours.poll(60)
    assert "WorkerError" in (told := ours.recv())
    assert "num_workers=0" in told
    process.join()


def test_a_bad_record_is_counted_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    records = [{"n": number if number % 5 else None} for number in range(20)]
    loader = DataLoader(records, {"n": "int64"}, batch_size=4, on_error="mask")
    for _ in range(2):
        ids_of(loader)
    stats = loader.stats()
    assert (stats["bad_records"], stats["records"]) == (4, 32)
    assert len(caplog.records) == 4
