"""A model that writes down its batches, and runs of Lightning with it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import lightning as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from penstock.lightning import EngineOptions, Number, SchemaMixin, SchemaModel, StreamingDataModule
from tests.lightning.streaming_files import values

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.batch import Batch

for _name in ("pytorch", "fabric"):
    logging.getLogger(f"lightning.{_name}").setLevel(logging.ERROR)


class Net(SchemaMixin, pl.LightningModule):
    """Writes down what each step gets."""

    def __init__(self) -> None:
        super().__init__()
        self.schema = SchemaModel(
            Number("n"), Number("masked", query="[*].n", p_mask=0.3), batch_size=4
        )
        self.linear = torch.nn.Linear(1, 1)
        self.trained: list[Any] = []
        self.validated: list[Any] = []
        self.predicted: list[Any] = []

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        masked = batch["record/masked"].content.flatten().tolist()
        self.trained.append([self.current_epoch, values(batch), masked])
        return self.linear(batch["record/n"].content).square().mean()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        if not self.trainer.sanity_checking:
            self.validated.append([self.current_epoch, values(batch)])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.0)

    def predict_step(self, batch: Batch, batch_idx: int) -> None:
        self.predicted.append(values(batch))


def fit(  # noqa: PLR0913 (what runs differ in)
    root: Path,
    saves: Path | None = None,
    *,
    checkpoint: Path | None = None,
    engine: dict[str, Any] | None = None,
    trainer: dict[str, Any] | None = None,
    seed: int = 1,
    **options: Any,
) -> Net:
    """Run with the files below a root, and return the model."""
    torch.manual_seed(seed if checkpoint is None else 99)  # A resumed run has that of its state.
    net = Net()
    given = {"train": r"/\d\.jsonl$", "num_workers": 0, **options}
    data = StreamingDataModule(net, root, "ndjson", **given, engine=EngineOptions(**(engine or {})))
    callbacks = []
    if saves is not None:
        every: dict[str, Any] = {"save_top_k": -1, "filename": "{step}", "every_n_train_steps": 1}
        callbacks = [ModelCheckpoint(saves, **every)]
    runs = pl.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=bool(callbacks),
        callbacks=callbacks,
        **{"max_epochs": 2, **(trainer or {})},
    )
    if "predict" in options:
        runs.predict(net, datamodule=data, return_predictions=False)
    else:
        runs.fit(net, datamodule=data, ckpt_path=checkpoint)
    return net
