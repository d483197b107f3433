"""A loader of a data module that `fit` gets without the module: it keeps its own position."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
from lightning.pytorch.callbacks import ModelCheckpoint

from penstock.errors import ChangedSourceError
from penstock.lightning import CustomDataModule, EngineOptions, PolarsDataModule
from tests.lightning.small_models import FRAME, Net, Rows, batches, trainer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.lightning._batch_module import BatchModule

    Make = Callable[[Net], BatchModule]

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning",
    "ignore:.*callbacks used to create the checkpoint",
    "ignore:You defined a `validation_step`",
    "ignore:Total length of `list` across ranks is zero",
)


def frames(net: Net, **options: Any) -> PolarsDataModule:
    options = {"num_workers": 0, "engine": EngineOptions(seed=5), **options}
    return PolarsDataModule(net, train=FRAME, **options)


def shuffled(net: Net) -> PolarsDataModule:
    return frames(net, observation_buffer_size=5)


def drawn(net: Net) -> PolarsDataModule:
    return frames(net, replacement=True)


def sampled(net: Net) -> PolarsDataModule:
    return frames(net, sample_rate=0.7)


def datasets(net: Net) -> CustomDataModule:
    return CustomDataModule(net, train=Rows(), num_workers=0, engine=EngineOptions(seed=5))


def fit(
    make: Make, checkpoint: Path | None = None, *, saves: Path | None = None, alone: bool = True
) -> Net:
    net = Net()
    data = make(net)
    every: dict[str, Any] = {"every_n_train_steps": 1, "save_top_k": -1}
    run = trainer([ModelCheckpoint(saves, "{step}", **every)] if saves else [], max_epochs=3)
    given = {"train_dataloaders": batches(data)} if alone else {"datamodule": data}
    run.fit(net, ckpt_path=checkpoint, **given)
    return net


@pytest.mark.parametrize("make", [frames, shuffled, drawn])
def test_one_with_a_length_goes_on_with_the_very_next_batch(make: Make, tmp_path: Path) -> None:
    whole = fit(make, saves=tmp_path)
    for step in (1, 3, 4, 5):
        again = fit(make, tmp_path / f"step={step}.ckpt")
        assert again.trained == whole.trained[step:], step
        assert again.schema.state_dict() == whole.schema.state_dict(), step


@pytest.mark.parametrize("make", [sampled, datasets])
def test_one_without_a_length_leaves_out_the_batch_read_ahead_and_says_so(
    make: Make, tmp_path: Path
) -> None:
    with pytest.warns(UserWarning, match="reads one batch ahead of a loader without a length"):
        whole = fit(make, saves=tmp_path)
    first = sum(one.epoch == 0 for one in whole.trained)
    for step in (1, first, first + 1):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Lightning reads one batch ahead")
            again = fit(make, tmp_path / f"step={step}.ckpt")
        begins = step if step == first else step + 1  # Nothing was read ahead at the end.
        assert again.trained == whole.trained[begins:], step


def test_a_module_goes_on_where_its_loader_alone_stood_and_warns_of_nothing(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    whole = fit(shuffled, saves=tmp_path)
    again = fit(shuffled, tmp_path / "step=2.ckpt", alone=False)
    assert again.trained == whole.trained[2:]
    assert not [one for one in recwarn if "holds no position" in str(one.message)]


def test_a_loader_alone_says_that_the_module_holds_the_position(tmp_path: Path) -> None:
    whole = fit(shuffled, saves=tmp_path, alone=False)
    with pytest.warns(UserWarning, match="give the module itself to Trainer.fit"):
        again = fit(shuffled, tmp_path / "step=2.ckpt")
    assert [one.ids for one in again.trained[:2]] == [one.ids for one in whole.trained[:2]]


def test_draws_of_another_seed_are_refused_with_the_remedy(tmp_path: Path) -> None:
    def other(net: Net) -> PolarsDataModule:
        return frames(net, replacement=True, engine=EngineOptions(seed=6))

    fit(drawn, saves=tmp_path)
    with pytest.raises(ChangedSourceError, match=r"Bring back the data, the seed, num_workers="):
        fit(other, tmp_path / "step=2.ckpt")
