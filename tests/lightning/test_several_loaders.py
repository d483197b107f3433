"""Several loaders in one training: each goes on after a resume as if it had never stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities.combined_loader import CombinedLoader

import penstock
from penstock.lightning import DataModule, PolarsDataModule, SchemaMixin
from tests.lightning.small_models import FRAME, batches, model, seen, trainer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import polars as pl

    Make = Callable[["Both"], Any]

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning",
    "ignore:.*callbacks used to create the checkpoint",
    "ignore:You passed in a `val_dataloader`",  # It looks for the method of data modules.
)

LONG, SHORT = 6, 4
"""Batches of an epoch: the shorter one begins again, and is left in the middle."""


class Both(SchemaMixin, lightning.LightningModule):
    """Writes down the batches that each step gets from each loader; None where one has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.schema = model(2)
        self.linear = torch.nn.Linear(1, 1)
        self.trained: list[Any] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        parts = batch.values() if isinstance(batch, dict) else batch
        self.trained.append([None if part is None else written(part) for part in parts])
        return self.linear(torch.ones(1, 1)).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)


def written(part: Any) -> Any:
    return part["n"].tolist() if "n" in part else seen(part)


def loader(count: int, **options: Any) -> penstock.DataLoader:
    records = [{"n": number} for number in range(2 * count)]
    return penstock.DataLoader(records, {"n": "int64"}, batch_size=2, shuffle=True, **options)


def loaders(_: Both) -> list[penstock.DataLoader]:
    return [loader(LONG), loader(SHORT)]


def shorter_first(_: Both) -> dict[str, penstock.DataLoader]:
    return {"short": loader(SHORT, seed=1), "long": loader(LONG)}


def three(_: Both) -> list[penstock.DataLoader]:
    return [loader(1), loader(LONG), loader(SHORT)]


def in_mode(mode: Any) -> Make:
    return lambda net: CombinedLoader(loaders(net), mode)


def with_one_schema(net: Both) -> list[Any]:
    """Loaders that teach one vocabulary their labels."""
    frames = [FRAME, FRAME[6:].with_columns(c="c" + FRAME[6:]["c"])]
    return [penstock.DataLoader(one, net.schema, batch_size=2, shuffle=True) for one in frames]


def of_modules(net: Both) -> dict[str, Any]:
    """Loaders of two data modules, which the trainer does not know."""
    net.data = [
        DataModule(FRAME, encode=net.schema, batch_size=2, shuffle=True),
        PolarsDataModule(net, train=FRAME[:5], observation_buffer_size=3, num_workers=0),
    ]
    return {"one": batches(net.data[0]), "other": batches(net.data[1])}


def of_modules_in_turn(net: Both) -> CombinedLoader:
    """The one that ends first does not know the labels that the other one goes on to teach."""
    return CombinedLoader(of_modules(net), "max_size")


class Two(DataModule):
    """A data module with a loader beside its own."""

    def train_dataloader(self) -> Any:
        return [super().train_dataloader(), loader(SHORT)]


class TwoInTurn(DataModule):
    """A data module whose own loader is the shorter one, and ends first."""

    def train_dataloader(self) -> Any:
        return CombinedLoader([super().train_dataloader(), loader(LONG)], "max_size")


def in_a_module(kind: type[DataModule], frame: pl.DataFrame) -> Make:
    return lambda net: kind(frame, encode=net.schema, batch_size=2, shuffle=True)


KINDS: dict[str, Make] = {
    "a list": loaders,
    "a dict": shorter_first,
    "three": three,
    "min_size": in_mode("min_size"),
    "max_size": in_mode("max_size"),
    "one schema": with_one_schema,
    "loaders of modules": of_modules,
    "loaders of modules in turn": of_modules_in_turn,
    "a module of two": in_a_module(Two, FRAME),
    "a module of two in turn": in_a_module(TwoInTurn, FRAME[:7]),
}


STOPS = (3, 4, 5, 6, 9, 10, 11)
"""Steps whose checkpoints are resumed: before, at and behind the end of the shorter one, and at the
last batch of an epoch."""


def fit(
    make: Make, checkpoint: Path | None = None, *, saves: Path | None = None, **more: Any
) -> Both:
    net = Both()
    every: dict[str, Any] = {"dirpath": saves, "save_top_k": -1}
    callbacks = [
        ModelCheckpoint(filename="{step}", every_n_train_steps=1, **every),
        ModelCheckpoint(filename="end-{step}", save_on_train_epoch_end=True, **every),
    ]
    run = trainer(callbacks if saves else [], max_epochs=2, **more)
    torch.manual_seed(1)
    run.fit(net, make(net), ckpt_path=checkpoint)
    return net


def check(make: Make, folder: Path, **options: Any) -> None:
    whole = fit(make, saves=folder, **options)
    epoch = len(whole.trained) // 2
    stops = [f"step={step}" for step in STOPS if step < 2 * epoch]
    for stop in [*stops, f"end-step={epoch}"]:
        step = int(stop.rpartition("=")[2])
        again = fit(make, folder / f"{stop}.ckpt", **options)
        assert again.trained == whole.trained[step:], stop
        assert again.schema.state_dict() == whole.schema.state_dict(), stop


@pytest.mark.parametrize("kind", KINDS)
def test_each_of_them_goes_on_as_if_it_had_never_stopped(kind: str, tmp_path: Path) -> None:
    check(KINDS[kind], tmp_path)


def test_a_limit_ends_an_epoch_of_all_of_them(tmp_path: Path) -> None:
    check(shorter_first, tmp_path, limit_train_batches=5)


def test_a_batch_read_ahead_is_named_where_one_of_them_has_no_length() -> None:
    def flowing(_: Both) -> list[penstock.DataLoader]:
        records = penstock.stream(
            [range(5)], lambda unit, start=0: ({"n": n} for n in unit[start:])
        )
        return [loader(LONG), penstock.DataLoader(records, {"n": "int64"}, batch_size=2)]

    with pytest.warns(UserWarning, match="reads one batch ahead of a loader without a length"):
        fit(flowing)


def test_an_epoch_set_by_hand_behind_a_state_stands() -> None:
    made = loader(LONG)
    next(iter(made))
    made.load_state_dict(made.state_dict())
    made.set_epoch(2)
    made.batch_sampler.sampler.set_epoch(2)
    other = loader(LONG)
    other.set_epoch(2)
    assert [batch.ids.tolist() for batch in made] == [batch.ids.tolist() for batch in other]
