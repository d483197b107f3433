"""When the worker processes of data modules end: without a search for garbage."""

from __future__ import annotations

import gc
import multiprocessing
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from penstock import DataLoader
from penstock.lightning import (
    CustomDataModule,
    DataModule,
    EngineOptions,
    PolarsDataModule,
    StreamingDataModule,
)
from tests.left_behind import Held, left_since
from tests.lightning.small_models import FRAME, Net, Rows, batches, trainer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.lightning._batch_module import BatchModule

    Make = Callable[[Net, str], BatchModule]

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning", "ignore:.*use of fork:DeprecationWarning"
)


def _polars(net: Net, method: str) -> BatchModule:
    engine = EngineOptions(multiprocessing_context=method)
    return PolarsDataModule(net, dataframe=FRAME, num_workers=2, engine=engine)


def _streaming(net: Net, method: str) -> BatchModule:
    FRAME.write_ndjson("frame.ndjson")
    engine = EngineOptions(multiprocessing_context=method)
    options: Any = {"sharding": "chunk", "chunk_batch_size": 2, "num_workers": 2}
    return StreamingDataModule(net, root=".", suffix="ndjson", train=".", engine=engine, **options)


def _custom(net: Net, method: str) -> BatchModule:
    engine = EngineOptions(multiprocessing_context=method)
    return CustomDataModule(net, datasets={"train": Rows()}, num_workers=2, engine=engine)


def _plain(net: Net, method: str) -> BatchModule:
    options: Any = {"multiprocessing_context": method, "persistent_workers": True}
    return DataModule(FRAME, FRAME, encode=net.schema, batch_size=3, num_workers=2, **options)


@pytest.fixture(autouse=True)
def _no_search_for_garbage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("count", [2, None], ids=["left", "whole"])
@pytest.mark.parametrize(
    ("make", "method"),
    [
        (_polars, "fork"),
        (_polars, "forkserver"),
        (_polars, "spawn"),
        (_streaming, "fork"),
        (_custom, "fork"),
        (_plain, "fork"),
    ],
)
def test_workers_end_with_the_last_reference(make: Make, method: str, count: int | None) -> None:
    before = Held.now()
    data = make(Net(), method)
    loader = batches(data)
    for _ in range(2):
        run = iter(loader)
        assert len([*islice(run, count)]) >= 2
        del run
    if make is not _custom:  # Its workers are new ones for each pass.
        assert len(multiprocessing.active_children()) == 2
    del data, loader
    assert left_since(before) == []


@pytest.mark.parametrize("make", [_polars, _plain])
@pytest.mark.parametrize("gives_loaders", [False, True])
def test_workers_end_with_a_run(make: Make, gives_loaders: bool) -> None:  # noqa: FBT001
    before, data, run = Held.now(), make(Net(), "fork"), trainer(max_epochs=2)
    for _ in range(2):  # A cell of a notebook that runs again.
        if gives_loaders:
            run.fit(Net(), batches(data), batches(data, "validate"))
        else:
            run.fit(Net(), data)
        assert left_since(before) == []
        run = trainer(max_epochs=2, limit_train_batches=2)


def test_workers_of_a_look_behind_a_run_end_with_the_look() -> None:
    before, data, run = Held.now(), _polars(Net(), "fork"), trainer()
    run.fit(Net(), data)  # From here on, the trainer and the module refer to each other.
    for split in ("train", "validate"):
        assert len([*batches(data, split)]) >= 4
        assert left_since(before) == []
    assert data.state_dict()["train"]["state"]["epoch"] == 1


@pytest.mark.filterwarnings("ignore:.*have no `val_dataloader`")
def test_kept_workers_of_a_loader_end_with_a_run() -> None:
    before, net, run = Held.now(), Net(), trainer(max_epochs=2)
    options: Any = {"num_workers": 2, "persistent_workers": True}
    loader = DataLoader(FRAME, net.schema, batch_size=3, **options)
    run.fit(net, loader)
    assert left_since(before) == []
    assert len(net.trained) == 8


def test_workers_end_with_a_run_that_fails() -> None:
    before, net, run = Held.now(), Net(), trainer()
    net.fails_at = 1
    data = _polars(net, "fork")
    with pytest.raises(ArithmeticError):
        run.fit(net, data)
    assert left_since(before) == []
