"""Data modules and loaders in the hands of a trainer."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback, ModelCheckpoint
from torch.utils.data import IterableDataset

import penstock
from penstock.lightning import CustomDataModule, DataModule, EngineOptions, PolarsDataModule
from tests.lightning.preprocessing import some
from tests.lightning.small_models import FRAME, RECORDS, Net, Rows, trainer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning",
    "ignore:.*callbacks used to create the checkpoint",
    "ignore:.*use of fork:DeprecationWarning",
)


@pytest.fixture
def workers() -> Callable[[], set[int | None]]:
    """Return a function that finds the worker processes that began during the test."""
    before = multiprocessing.active_children()
    return lambda: {one.pid for one in multiprocessing.active_children() if one not in before}


def module(kind: Any, net: Net, **options: Any) -> Any:
    options = {"num_workers": 0, "engine": EngineOptions(seed=1), **options}
    if kind is DataModule:
        return DataModule(FRAME, FRAME, FRAME, FRAME, encode=net.schema, batch_size=3)
    data = {"dataframe": FRAME} if kind is PolarsDataModule else {"datasets": _all(Rows())}
    return kind(net, **data, **options)


def _all(one: Any) -> dict[str, Any]:
    return dict.fromkeys(("train", "validate", "test", "predict"), one)


@pytest.mark.parametrize("kind", [PolarsDataModule, CustomDataModule, DataModule])
def test_a_trainer_fits_validates_tests_and_predicts(kind: Any) -> None:
    net = Net()
    data = module(kind, net)
    run = trainer(max_epochs=2)
    run.fit(net, datamodule=data)
    assert [one.ids for one in net.trained] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10]] * 2
    assert [one.ids for one in net.evaluated] == [one.ids for one in net.trained]
    # Each epoch has masks of its own, and so has each split.
    masked = [[x for one in steps if one.epoch == epoch for x in one.x]
              for steps in (net.trained, net.evaluated) for epoch in (0, 1)]  # fmt: skip
    assert len({str(one) for one in masked}) == 4
    net.evaluated.clear()
    run.validate(net, datamodule=data, verbose=False)
    run.test(net, datamodule=data, verbose=False)
    assert [one.ids for one in net.evaluated] == [one.ids for one in net.trained]
    predicted = run.predict(net, datamodule=data)
    assert predicted is not None
    assert [row for _, rows in predicted for row in rows] == FRAME.to_dicts()  # type: ignore[misc]
    assert net.interprocess_encoding_context["record/c"].snapshot() == list("abcdef")


@pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")
@pytest.mark.parametrize("kind", [PolarsDataModule, CustomDataModule])
def test_one_split_is_enough(kind: Any) -> None:
    one = FRAME if kind is PolarsDataModule else Rows()
    net = Net()
    trainer().fit(net, datamodule=kind(net, train=one, num_workers=0))
    assert len(net.trained) == 4
    data = kind(net, predict=one, num_workers=0)
    assert len(trainer().predict(net, datamodule=data) or ()) == 4
    # A test without data is left out by Lightning.
    assert data.test_dataloader() == []


def test_an_empty_frame_of_validation_is_left_out() -> None:
    net = Net()
    data = PolarsDataModule(net, train=FRAME, validate=FRAME.head(0), num_workers=0)
    with pytest.warns(UserWarning, match="Total length of `SplitBatches` across ranks is zero"):
        trainer().fit(net, datamodule=data)
    assert len(net.trained) == 4
    assert net.evaluated == []


def test_the_default_number_of_workers_trains() -> None:
    net = Net()
    data = PolarsDataModule(net, train=FRAME, validate=FRAME)
    trainer(max_epochs=2).fit(net, datamodule=data)
    for epoch in range(2):
        for steps in (net.trained, net.evaluated):
            ids = [number for one in steps if one.epoch == epoch for number in one.ids]
            assert sorted(ids) == list(range(RECORDS))


def test_workers_of_a_pass_that_was_left_end_with_the_run(
    workers: Callable[[], set[int | None]],
) -> None:
    net = Net()
    data = module(PolarsDataModule, net, num_workers=2, preprocessor=some)
    trainer(max_steps=2, limit_val_batches=0).fit(net, datamodule=data)
    assert len(net.trained) == 2
    assert workers() == set()


def test_workers_of_a_run_that_failed_end_with_it(
    workers: Callable[[], set[int | None]],
) -> None:
    net = Net()
    data = module(PolarsDataModule, net, num_workers=2)
    net.fails_at = 2
    run = trainer(limit_val_batches=0)
    with pytest.raises(ArithmeticError):
        run.fit(net, datamodule=data)
    assert workers() == set()


@pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")
@pytest.mark.parametrize("keep", [True, False])
def test_workers_are_kept_from_epoch_to_epoch_as_asked(
    keep: bool,  # noqa: FBT001
    workers: Callable[[], set[int | None]],
) -> None:
    net = Net()
    found: list[set[int | None]] = []

    def watch(*_: object) -> None:
        found.append(workers())

    data = PolarsDataModule(net, train=FRAME, num_workers=2, persistent_workers=keep)
    trainer([LambdaCallback(on_train_batch_end=watch)], max_epochs=3).fit(net, datamodule=data)
    seen = set[int | None]().union(*found)
    assert len(seen) == (2 if keep else 6)
    assert workers() == set()
    for epoch in range(3):
        ids = [number for one in net.trained if one.epoch == epoch for number in one.ids]
        assert sorted(ids) == list(range(RECORDS))


def test_loaders_of_every_epoch_leave_no_workers_behind(
    workers: Callable[[], set[int | None]],
) -> None:
    net = Net()
    counts: list[int] = []

    def watch(*_: object) -> None:
        counts.append(len(workers()))

    data = PolarsDataModule(net, train=FRAME, validate=FRAME, num_workers=1)
    options = {"max_epochs": 4, "limit_val_batches": 2, "reload_dataloaders_every_n_epochs": 1}
    gc.disable()  # Else it is left to chance.
    try:
        trainer([LambdaCallback(on_train_batch_end=watch)], **options).fit(net, datamodule=data)
        assert workers() == set()
    finally:
        gc.enable()
    assert max(counts) <= 2
    assert len(net.trained) == 16


@pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")
def test_a_run_of_a_split_without_data_is_warned_of() -> None:
    net = Net()
    data = PolarsDataModule(net, train=FRAME, num_workers=0)
    with pytest.warns(UserWarning, match="no dataframe is configured for strata: predict"):
        trainer().predict(net, datamodule=data)


def test_a_model_that_the_module_does_not_read_is_warned_of() -> None:
    net, other = Net(), Net()
    data = PolarsDataModule(net, train=FRAME, num_workers=0)
    with pytest.warns(UserWarning, match="the trainer has another Net than the data module"):
        trainer(limit_val_batches=0).fit(other, datamodule=data)
    # It may be read through the schema that both share.
    data = PolarsDataModule(net.schema, train=FRAME, num_workers=0)
    trainer(limit_val_batches=0).fit(net, datamodule=data)


class UsedUp(IterableDataset[dict[str, Any]]):
    """Yields its records once."""

    def __init__(self) -> None:
        self.records = iter(FRAME.to_dicts())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.records


def test_epochs_of_training_without_a_batch_are_warned_of() -> None:
    net = Net()
    used_up = CustomDataModule(net, train=UsedUp(), num_workers=0)
    with pytest.warns(UserWarning, match="an epoch of training has no batch"):
        trainer(max_epochs=2, limit_val_batches=0).fit(net, datamodule=used_up)
    assert len(net.trained) == 4
    dropped = PolarsDataModule(net, train=FRAME, preprocessor=some, times=0, num_workers=0)
    with pytest.warns(UserWarning, match="an epoch of training has no batch"):
        trainer(limit_val_batches=0).fit(net, datamodule=dropped)


@pytest.mark.parametrize(
    "draws", [{"replacement": True}, {"observation_buffer_size": 5}, {"sample_rate": 0.5}, None]
)
def test_overfitting_needs_batches_that_come_again(draws: dict[str, Any] | None) -> None:
    net = Net()
    data = PolarsDataModule(net, dataframe=FRAME, num_workers=0, **draws or {})
    run = trainer(max_epochs=2, overfit_batches=2)
    if draws is None:
        run.fit(net, datamodule=data)
        assert [one.ids for one in net.trained] == [[0, 1, 2], [3, 4, 5]] * 2
        return
    with pytest.warns(UserWarning, match="these differ from epoch to epoch"):
        run.fit(net, datamodule=data)
    plain = DataModule(FRAME, FRAME, encode=net.schema, batch_size=3, shuffle=True)
    with pytest.warns(UserWarning, match="these differ from epoch to epoch"):
        trainer(overfit_batches=2).fit(net, datamodule=plain)


def test_a_trainer_of_several_runs_brings_ranks_together_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "lightning.pytorch")
    net, run = Net(), trainer(limit_val_batches=0)
    data = PolarsDataModule(net, train=FRAME, num_workers=0)
    for epochs in (1, 2):
        run.fit_loop.max_epochs = epochs
        run.fit(net, datamodule=data)
    names = [type(one).__name__ for one in run.callbacks]  # type: ignore[attr-defined]
    assert names == ["Follower", "Synchronizer"]
    assert "override existing callbacks" not in caplog.text


class Logs(Net):
    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        self.log("records", float(len(batch)), on_step=False, on_epoch=True)
        return loss


def test_lightning_finds_the_size_of_a_batch_by_itself() -> None:
    net, run = Logs(), trainer(limit_val_batches=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*infer the batch_size")
        run.fit(net, datamodule=PolarsDataModule(net, train=FRAME, num_workers=0))
    # The mean over records, not over batches of 3, 3, 3 and 2.
    assert float(run.callback_metrics["records"]) == pytest.approx(31 / 11)


# Loaders without a data module.


def read(unit: int, start: int = 0) -> Any:
    yield from FRAME.to_dicts()[unit * 4 + start : unit * 4 + 4]


def flow(net: Net) -> penstock.DataLoader:
    stream = penstock.stream(range(3), read)
    return penstock.DataLoader(stream, net.schema, batch_size=3, num_workers=0)


def test_a_loader_without_a_length_warns_in_fit_and_goes_on_behind_the_batch_read_ahead(
    tmp_path: Path,
) -> None:
    whole, again = Net(), Net()
    saves = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=1, save_top_k=-1)
    with pytest.warns(UserWarning, match=r"reads one batch ahead.*DataModule") as caught:
        trainer([saves], max_epochs=2).fit(whole, flow(whole), flow(whole))
    assert sum("reads one batch ahead" in str(one.message) for one in caught) == 1
    path = tmp_path / "step=2.ckpt"
    with pytest.warns(UserWarning, match="reads one batch ahead"):
        trainer(max_epochs=2).fit(again, flow(again), flow(again), ckpt_path=path)
    assert [one.ids for one in again.trained] == [one.ids for one in whole.trained[3:]]


def test_one_with_a_length_does_not_warn() -> None:
    net = Net()
    loader = penstock.DataLoader(FRAME, net.schema, batch_size=3, num_workers=0)
    trainer(max_epochs=2).fit(net, loader, loader)
    assert len(net.trained) == 8
    assert torch.isfinite(net.linear.weight).all()
