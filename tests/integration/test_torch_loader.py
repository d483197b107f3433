"""A source under torch's own loader, and what people of torch expect of ours."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.utils.data

import penstock
from penstock.jsonl import JsonlDir
from tests.integration.torch_functions import ids_of_loader, listed
from tests.rounds import LONG

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.datasets import Source

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

RECORDS = 210


@pytest.fixture
def source(tmp_path: Path) -> Source:
    with JsonlDir(tmp_path / "data").writer_sync(".jsonl.zst", 50) as writer:
        writer.write_many([{"id": number, "x": number / 100} for number in range(RECORDS)])
    return penstock.open(tmp_path / "data")


@pytest.mark.parametrize(
    ("workers", "method"),
    [(0, None), (2, "fork"), (2, "spawn"), *([(2, "forkserver")] if LONG else [])],
)
def test_torchs_own_loader_gets_every_record_of_a_source_once(
    workers: int, method: str | None, source: Source
) -> None:
    half, _ = source.split(a=0.5, b=0.5)
    views = [source, source.where("id >= 100"), half]
    if method == "spawn" and not LONG:
        views = [half]  # Such processes import everything anew.
    for view in views:
        loader = torch.utils.data.DataLoader(
            view,
            batch_size=16,
            shuffle=True,
            num_workers=workers,
            multiprocessing_context=method,
            collate_fn=listed,
        )
        expected = [record["id"] for record in view]
        found = [number for batch in loader for number in batch]
        assert found != expected
        assert sorted(found) == expected


def test_torch_asks_a_source_for_whole_batches(source: Source) -> None:
    batches = torch.utils.data.DataLoader(source, batch_size=4)
    first = next(iter(batches))
    assert first["id"].tolist() == [0, 1, 2, 3]
    assert source.__getitems__([3, 1]) == [source[3], source[1]]


def make(source: Source, **options: Any) -> penstock.DataLoader:
    return penstock.DataLoader(
        source,
        {"id": "int64"},
        batch_size=32,
        shuffle=True,
        **{"num_workers": 0, **options},
    )


def test_a_loader_has_what_torchs_has(source: Source) -> None:
    loader = make(source, drop_last=True)
    assert len(loader) == 6
    assert loader.batch_size == 32
    assert loader.drop_last is True
    assert loader.dataset is source
    assert len(loader.dataset) == RECORDS
    numbers = [number for number, batch in enumerate(loader) if len(batch) == 32]
    assert numbers == list(range(6))


def test_each_pass_is_another_epoch_and_all_have_every_record(source: Source) -> None:
    loader = make(source)
    epochs = [[number for batch in loader for number in batch["id"].tolist()] for _ in range(3)]
    assert all(sorted(epoch) == list(range(RECORDS)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) == 3


def test_a_part_of_a_pass_can_be_taken(source: Source) -> None:
    loader = make(source)
    first = [batch.ids.tolist() for batch in islice(loader, 3)]
    loader.set_epoch(0)
    assert [batch.ids.tolist() for batch in loader][:3] == first


def test_two_passes_at_once_do_not_disturb_each_other(source: Source) -> None:
    loader = make(source)
    expected = ids_of_loader(make(source))
    pairs = [(a.ids.tolist(), b.ids.tolist()) for a, b in zip(loader, loader, strict=True)]
    assert pairs == [(ids, ids) for ids in expected]


@pytest.mark.parametrize("how", ["copied", "pickled"])
def test_a_copy_of_a_loader_stands_where_the_original_stood(how: str, source: Source) -> None:
    loader = make(source)
    run = iter(loader)
    for _ in range(2):
        next(run)
    other = copy.deepcopy(loader) if how == "copied" else pickle.loads(pickle.dumps(loader))
    rest = [batch.ids.tolist() for batch in run]
    assert other.state_dict() != loader.state_dict()
    other.load_state_dict(other.state_dict())
    assert ids_of_loader(other) == rest


def test_a_loader_can_be_sent_to_another_process(source: Source) -> None:
    loader = make(source, num_workers="auto")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        there = pool.submit(ids_of_loader, loader).result()
    assert there == ids_of_loader(loader)


@pytest.mark.parametrize("workers", [0, 2, "auto"])
def test_a_loader_can_be_used_in_a_thread(workers: Any, source: Source) -> None:
    expected = ids_of_loader(make(source))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(ids_of_loader, make(source, num_workers=workers)).result() == expected
